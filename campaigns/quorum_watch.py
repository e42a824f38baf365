"""Looks at the metadata quorum whenever time is about to pass: M1-M5 and M9 as they happen.

It reads the nodes' objects and asks them for nothing, so that production code knows nothing of it.
What died is remembered as it was when it died.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from lograft.broker.broker import Broker
from lograft.broker.shared_services import SharedServices
from lograft.consensus.types import ReplicaKey
from lograft.metadata.image import MetadataImage
from lograft.simulation.cluster import SimulatedCluster

#: What an image is made of; the rest is derived.
IMAGE_FIELDS: Final = (
    "epoch", "features", "brokers", "controllers", "topics", "configs", "producer_ids_next",
    "client_quotas", "acls", "scram", "delegation_tokens",
)  # fmt: skip


class QuorumWatch:
    def __init__(
        self, cluster: SimulatedCluster, violated: Callable[[str, str], None], *, voters: int
    ) -> None:
        self._cluster = cluster
        self._violated = violated
        self._majority = voters // 2 + 1
        self._seen: dict[int, Any] = {}
        #: Of each epoch: who led it, and whom anyone named as its leader.
        self.leaders: dict[int, int] = {}
        self._named: dict[int, int] = {}
        #: (epoch, vote) of each node, as last on its disk.
        self._votes: dict[int, tuple[int, ReplicaKey | None]] = {}
        #: (life, watermark) and (life, offset of the image) of each node.
        self._watermarks: dict[int, tuple[object, int]] = {}
        self._images: dict[int, tuple[object, int]] = {}
        #: How far each node's log is on disk, the dead included.
        self._durable: dict[int, int] = {}
        self._voters: tuple[Any, ...] = ()
        #: Everything below was committed.
        self.committed = 0
        #: Offset of a committed record -> the epoch that wrote it.
        self._epochs: dict[int, int] = {}

    def look(self, nodes: Iterable[int] | None = None) -> None:
        """At these nodes, or at all."""
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
            self._look_at_roles(node_id, core)
            self._look_at_votes(node_id, core)
            self._look_at_image(node_id, host.life, shared.image)
            self._look_at_watermark(node_id, host.life, core, driver)

    def _look_at_roles(self, node_id: int, core: Any) -> None:
        """M1: an epoch has one leader, and nobody names another."""
        epoch = core.epoch
        if core.is_leader and self.leaders.setdefault(epoch, node_id) != node_id:
            self._violated("M1", f"{node_id} and {self.leaders[epoch]} lead epoch {epoch}")
        if core.leader >= 0 and self._named.setdefault(epoch, core.leader) != core.leader:
            self._violated(
                "M1",
                f"node {node_id} names {core.leader} as leader of epoch {epoch}, another one"
                f" names {self._named[epoch]}",
            )

    def _look_at_votes(self, node_id: int, core: Any) -> None:
        """M2: what was on disk is never taken back, not even by a power loss."""
        state = core._on_disk
        before = self._votes.get(node_id)
        if before is not None:
            epoch, vote = before
            if state.epoch < epoch:
                self._violated("M2", f"node {node_id} went from epoch {epoch} to {state.epoch}")
            elif (
                state.epoch == epoch
                and vote is not None
                and not _is_same_vote(state.voted_for, vote)
                # Who knows the leader of the epoch gives no vote in it any more.
                and (state.voted_for is not None or state.leader < 0)
            ):
                self._violated(
                    "M2", f"node {node_id} changed its vote in epoch {epoch}: {state.voted_for}"
                )
        self._votes[node_id] = (state.epoch, state.voted_for)

    def _look_at_watermark(self, node_id: int, life: object, core: Any, driver: Any) -> None:
        """M3: never falls, and only a majority that has it on disk moves it."""
        mark = core.high_watermark
        known = self._watermarks.get(node_id)
        if known is not None and known[0] is life and mark < known[1]:
            self._violated(
                "M3", f"node {node_id}: the watermark of the metadata fell {known[1]} -> {mark}"
            )
        self._watermarks[node_id] = (life, mark)
        if mark <= self.committed:
            return
        voters = [voter.key.node_id for voter in core.voters.voters]
        holders = [each for each in voters if self._durable.get(each, 0) >= mark]
        if len(holders) <= len(voters) // 2:
            self._violated(
                "M3",
                f"node {node_id} takes {mark} for committed, on disk it is on {holders}"
                f" of {voters} only",
            )
        self.committed = mark
        self._look_at_voters(driver)

    def _look_at_voters(self, driver: Any) -> None:
        """M9: one voter comes or goes at a time."""
        voters = tuple(sorted(voter.key for voter in driver.quorum.voters.voters))
        if self._voters and len(set(voters) ^ set(self._voters)) > 2:
            self._violated("M9", f"the voters went from {self._voters} to {voters} in one step")
        self._voters = voters

    def _look_at_image(self, node_id: int, life: object, image: MetadataImage) -> None:
        """M4, M5: a prefix of one log, the same for all who read it as far."""
        offset = image.offset
        known = self._images.get(node_id)
        if known is not None and known[0] is life and offset < known[1]:
            self._violated("M5", f"node {node_id}: metadata went from {known[1]} to {offset}")
        if known is not None and known == (life, offset):
            return
        self._images[node_id] = (life, offset)
        if offset < 0:
            return
        if self._epochs.setdefault(offset, image.epoch) != image.epoch:
            self._violated(
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
                    self._violated(
                        "M4", f"nodes {node_id} and {other_id} differ in {name} at {offset}"
                    )
            break


def shared_of(node: Any) -> SharedServices | None:
    """Of a node that is starting, serving or stopping, whatever its roles."""
    shared: SharedServices | None = None if node is None else node._shared
    return shared


def broker_of(node: Any) -> Broker | None:
    """Of a node that has come far enough in its start to have one."""
    broker: Broker | None = None if node is None else node._broker
    return broker


def _is_same_vote(vote: ReplicaKey | None, before: ReplicaKey) -> bool:
    """A restart forgets the directory id where the quorum is static."""
    return vote is not None and (vote.matches(before) or before.matches(vote))
