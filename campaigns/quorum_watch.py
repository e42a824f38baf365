"""Inspects the metadata quorum before time advances, to detect violations of M1-M5 and M9 at once.

It reads the nodes' objects and sends no requests, so production code does not know about it. The
state of dead nodes is remembered."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from lograft.broker.broker import Broker
from lograft.broker.shared_services import SharedServices
from lograft.consensus.types import ReplicaKey
from lograft.metadata.image import MetadataImage
from lograft.simulation.cluster import SimulatedCluster

#: Fields of an image that are not derived.
IMAGE_FIELDS: Final = (
    "epoch", "features", "brokers", "controllers", "topics", "configs", "producer_ids_next",
    "client_quotas", "acls", "scram", "delegation_tokens",
)  # fmt: skip


class QuorumWatch:
    def __init__(
        self,
        cluster: SimulatedCluster,
        report_violation: Callable[[str, str], None],
        *,
        voters: int,
    ) -> None:
        self._cluster = cluster
        self._report_violation = report_violation
        self._majority = voters // 2 + 1
        self._seen: dict[int, Any] = {}
        #: By epoch: the node that was leader, and the node that others consider the leader.
        self.leaders: dict[int, int] = {}
        self._named: dict[int, int] = {}
        #: (epoch, vote) that each node last persisted.
        self._votes: dict[int, tuple[int, ReplicaKey | None]] = {}
        #: (process, high watermark) and (process, image offset) of each node.
        self._watermarks: dict[int, tuple[object, int]] = {}
        self._images: dict[int, tuple[object, int]] = {}
        #: Durable offset of each node's log, including dead nodes.
        self._durable: dict[int, int] = {}
        self._voters: tuple[Any, ...] = ()
        #: Offset below which the metadata was committed.
        self.committed = 0
        #: Offset of a committed record -> its epoch.
        self._epochs: dict[int, int] = {}

    def inspect(self, nodes: Iterable[int] | None = None) -> None:
        """Inspects these nodes, or all."""
        changed = []
        for node_id in self._cluster.hosts if nodes is None else nodes:
            host = self._cluster.hosts[node_id]
            shared = shared_of(host.node)
            if shared is None:
                continue
            driver: Any = shared.quorum
            core = driver.core
            view = (
                id(core), core.epoch, core.role, core.leader, core.high_watermark, core._on_disk,
                driver.log.durable_offset, shared.image.offset,
            )  # fmt: skip
            if self._seen.get(node_id) == view:
                continue
            self._seen[node_id] = view
            self._durable[node_id] = driver.log.durable_offset
            changed.append((node_id, host, shared, driver, core))
        for node_id, host, shared, driver, core in changed:
            self._check_roles(node_id, core)
            self._check_votes(node_id, core)
            self._check_image(node_id, host.life, shared.image)
            self._check_watermark(node_id, host.life, core, driver)

    def _check_roles(self, node_id: int, core: Any) -> None:
        """M1: an epoch has one leader, and no node considers another node the leader."""
        epoch = core.epoch
        if core.is_leader and self.leaders.setdefault(epoch, node_id) != node_id:
            self._report_violation(
                "M1", f"{node_id} and {self.leaders[epoch]} are both leaders of epoch {epoch}"
            )
        if core.leader >= 0 and self._named.setdefault(epoch, core.leader) != core.leader:
            self._report_violation(
                "M1",
                f"node {node_id} considers {core.leader} the leader of epoch {epoch}, another"
                f" node {self._named[epoch]}",
            )

    def _check_votes(self, node_id: int, core: Any) -> None:
        """M2: a persisted epoch or vote is never reverted, not even by a power loss."""
        state = core._on_disk
        before = self._votes.get(node_id)
        if before is not None:
            epoch, vote = before
            if state.epoch < epoch:
                self._report_violation(
                    "M2", f"node {node_id} went back from epoch {epoch} to {state.epoch}"
                )
            elif (
                state.epoch == epoch
                and vote is not None
                and not _is_same_vote(state.voted_for, vote)
                # A node that knows the leader of the epoch does not vote in it.
                and (state.voted_for is not None or state.leader < 0)
            ):
                self._report_violation(
                    "M2", f"node {node_id} changed its vote in epoch {epoch}: {state.voted_for}"
                )
        self._votes[node_id] = (state.epoch, state.voted_for)

    def _check_watermark(self, node_id: int, life: object, core: Any, driver: Any) -> None:
        """M3: it never moves back, and advances only if a majority has the records on disk."""
        mark = core.high_watermark
        known = self._watermarks.get(node_id)
        if known is not None and known[0] is life and mark < known[1]:
            self._report_violation(
                "M3",
                f"node {node_id}: the metadata high watermark moved back from {known[1]} to {mark}",
            )
        self._watermarks[node_id] = (life, mark)
        if mark <= self.committed:
            return
        voters = [voter.key.node_id for voter in core.voters.voters]
        holders = [each for each in voters if self._durable.get(each, 0) >= mark]
        if len(holders) <= len(voters) // 2:
            self._report_violation(
                "M3",
                f"node {node_id} committed up to {mark}, but only {holders} of {voters} have it"
                " on disk",
            )
        self.committed = mark
        self._check_voters(driver)

    def _check_voters(self, driver: Any) -> None:
        """M9: one voter is added or removed at a time."""
        voters = tuple(sorted(voter.key for voter in driver.quorum.voters.voters))
        if self._voters and len(set(voters) ^ set(self._voters)) > 2:
            self._report_violation(
                "M9", f"the voters went from {self._voters} to {voters} in one step"
            )
        self._voters = voters

    def _check_image(self, node_id: int, life: object, image: MetadataImage) -> None:
        """M4, M5: images are prefixes of one log, and equal at equal offsets."""
        offset = image.offset
        known = self._images.get(node_id)
        if known is not None and known[0] is life and offset < known[1]:
            self._report_violation(
                "M5", f"node {node_id}: the metadata image moved back from {known[1]} to {offset}"
            )
        if known is not None and known == (life, offset):
            return
        self._images[node_id] = (life, offset)
        if offset < 0:
            return
        if self._epochs.setdefault(offset, image.epoch) != image.epoch:
            self._report_violation(
                "M3",
                f"node {node_id} has epoch {image.epoch} at {offset}, others"
                f" {self._epochs[offset]}",
            )
        for other_id, other_host in self._cluster.hosts.items():
            other = shared_of(other_host.node)
            if other is None or other_id == node_id or other.image.offset != offset:
                continue
            for name in IMAGE_FIELDS:
                if getattr(image, name) != getattr(other.image, name):
                    self._report_violation(
                        "M4", f"nodes {node_id} and {other_id} differ in {name} at {offset}"
                    )
            break


def shared_of(node: Any) -> SharedServices | None:
    """Returns the services of a node that is starting, serving or stopping, in any role."""
    shared: SharedServices | None = None if node is None else node._shared
    return shared


def broker_of(node: Any) -> Broker | None:
    """Returns the broker of a node, if it has started one."""
    broker: Broker | None = None if node is None else node._broker
    return broker


def _is_same_vote(vote: ReplicaKey | None, before: ReplicaKey) -> bool:
    """In a static quorum, a restart does not keep the directory ID."""
    return vote is not None and (vote.matches(before) or before.matches(vote))
