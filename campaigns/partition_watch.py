"""Inspects every replica of every partition before time advances: D6, D8, D9, M6-M8.

It is also the atlas for the fault injector: it knows which replicas have all committed records.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

from campaigns.log_matching import differs_from_replay
from campaigns.quorum_watch import QuorumWatch, broker_of, shared_of
from lograft.metadata.elections import controller_elects
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import PartitionState
from lograft.model.types import ReplicationMode
from lograft.simulation.cluster import DATA, SimulatedCluster
from lograft.simulation.hosts import Host

#: In these modes a majority that has fsynced commits, so no acknowledged record can be lost.
QUORUM_MODES: Final = (ReplicationMode.RAFT, ReplicationMode.LEAVING)
#: (topic ID, partition)
Key: TypeAlias = tuple[UUID, int]


@dataclass(slots=True)
class Marks:
    """Last known state of a replica; kept after its process dies."""

    life: object
    start: int
    stable: int
    watermark: int
    end: int
    durable: int
    leader_epoch: int
    is_truncating: bool = False
    #: The partition object; a replica that was removed and added again has a new one.
    partition: object = None
    #: Its log end offset before a power loss, which its leader may still count.
    end_before_loss: int = 0
    #: Its folder on the platter; a recreated folder of the same name is a different object.
    folder: object = None


@dataclass(slots=True)
class Fate:
    """How a node's last process ended, and the state of its replicas then."""

    kind: str
    replicas: dict[Key, Marks] = field(default_factory=dict)


class PartitionWatch:
    def __init__(
        self,
        cluster: SimulatedCluster,
        quorum: QuorumWatch,
        report_violation: Callable[[str, str], None],
    ) -> None:
        self._cluster = cluster
        self._quorum = quorum
        self._report_violation = report_violation
        self.replicas: dict[tuple[int, Key], Marks] = {}
        self.names: dict[Key, str] = {}
        #: Last inspected state of each partition object; a new process has new objects.
        self._views: dict[Any, tuple[int, int, int, int]] = {}
        #: Mode and number of truncations when its producers were last compared with its log.
        self._compared: dict[Any, tuple[ReplicationMode, int]] = {}
        #: Offset below which records were visible to consumers.
        self.committed: dict[Key, int] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        #: (log start offset, last stable offset) by leader epoch.
        self._led: dict[tuple[Key, int], tuple[int, int]] = {}
        self._fates: dict[int, Fate] = {}
        #: Committed metadata offset at a node's boot: later registrations belong to this process.
        self._boots: dict[int, int] = {}
        self._image_offset = -1
        self._states: dict[Key, PartitionState] = {}
        #: Partitions that fsync before they acknowledge.
        self._fsyncing: dict[Key, None] = {}

    @property
    def leaderships(self) -> int:
        return len(self._leaders)

    # -- inspection --------------------------------------------------------------------------------

    def inspect(self, nodes: Iterable[int] | None = None) -> None:
        """Inspects these nodes, or all."""
        changed = []
        newest: MetadataImage | None = None
        for node_id in self._cluster.hosts if nodes is None else nodes:
            host = self._cluster.hosts[node_id]
            shared, broker = shared_of(host.node), broker_of(host.node)
            # A controller accepts a new ISR before any broker has replayed it.
            if shared is not None and shared.image.offset > self._image_offset:
                self._image_offset = shared.image.offset
                newest = shared.image
            if broker is None:
                continue
            for partition in broker.partitions:
                log = partition.log
                if log is None or partition.is_deleted or partition.offline:
                    continue
                self._compare_producers(node_id, partition, log)
                leader = partition.leader
                view = (
                    log.end_offset,
                    partition.rule.high_watermark,
                    log.durable_offset,
                    -1 if leader is None else leader.leader_epoch,
                )
                if self._views.get(partition) == view:
                    continue
                self._views[partition] = view
                key = (partition.topic_id, partition.index)
                seen = self.replicas.get((node_id, key))
                marks = self._record(node_id, host, key, partition, view[3])
                changed.append((node_id, key, partition, marks, seen))
        # Only after all replicas are read: a leader's claim depends on the others at this instant.
        for node_id, key, partition, marks, seen in changed:
            self._check_replica(node_id, key, partition, marks, seen)
        if newest is not None:
            self._check_states(newest)
        if changed or newest is not None:
            self._check_members()

    def _compare_producers(self, node_id: int, partition: Any, log: Any) -> None:
        """D9, after every truncation and every step of a mode switch."""
        now = (partition.assignment.mode, log.truncations)
        if not partition.is_usable or self._compared.get(partition) == now:
            return
        self._compared[partition] = now
        if differs_from_replay(partition):
            self._report_violation(
                "D9",
                f"{partition.topic_partition} on node {node_id}: after a truncation or mode"
                " switch, its producer state differs from its log",
            )

    def _newest_image(self) -> MetadataImage | None:
        images = [
            shared.image
            for host in self._cluster.hosts.values()
            if (shared := shared_of(host.node)) is not None
        ]
        return max(images, key=lambda image: image.offset) if images else None

    def _record(self, node_id: int, host: Host, key: Key, partition: Any, epoch: int) -> Marks:
        log = partition.log
        marks = Marks(
            host.life,
            log.log_start_offset,
            partition.last_stable_offset,
            partition.high_watermark,
            log.end_offset,
            log.durable_offset,
            epoch,
            partition.kept_offsets is not None,
            partition,
        )
        if key not in self.names:
            self.names[key] = str(partition.topic_partition)
        seen = self.replicas.get((node_id, key))
        is_known = seen is not None and seen.partition is not None
        marks.folder = seen.folder if seen and is_known else self._folder(node_id, key)
        self.replicas[node_id, key] = marks
        return marks

    def _check_replica(
        self, node_id: int, key: Key, partition: Any, marks: Marks, seen: Marks | None
    ) -> None:
        where = f"{self.names[key]} on node {node_id}"
        if marks.is_truncating:
            return
        if not marks.start <= marks.stable <= marks.watermark <= marks.end:
            self._report_violation("D6", f"{where}: offsets out of order: {marks}")
        is_same = seen is not None and seen.partition is marks.partition
        if seen is not None and is_same and marks.watermark < seen.watermark:
            self._report_violation(
                "D6",
                f"{where}: high watermark moved back from {seen.watermark} to {marks.watermark}",
            )
        if marks.leader_epoch >= 0:
            self._check_leader(node_id, key, partition, marks)

    def _check_leader(self, node_id: int, key: Key, partition: Any, marks: Marks) -> None:
        name, epoch = self.names[key], marks.leader_epoch
        if self._leaders.setdefault((key, epoch), node_id) != node_id:
            other = self._leaders[key, epoch]
            self._report_violation(
                "M1", f"{name}: {node_id} and {other} are both leaders in epoch {epoch}"
            )
        start, stable = self._led.get((key, epoch), (marks.start, marks.stable))
        if marks.start < start or marks.stable < stable:
            self._report_violation(
                "D6", f"{name}: log start or last stable offset moved back in epoch {epoch}"
            )
        self._led[key, epoch] = (marks.start, marks.stable)
        if marks.watermark > self.committed.get(key, 0):
            self._check_commit(node_id, key, partition, marks)
            self.committed[key] = marks.watermark

    def _check_commit(self, node_id: int, key: Key, partition: Any, marks: Marks) -> None:
        """D8: records below a leader's high watermark are on enough replicas, and on disk if
        required."""
        replicas = partition.assignment.replicas
        by_quorum = partition.assignment.mode in QUORUM_MODES
        needed = min(partition.config.min_insync_replicas, len(replicas))
        if by_quorum:
            adding = partition.assignment.adding
            voters = [each for each in replicas if each not in adding]
            raft = getattr(partition.replica, "raft", None)
            if raft is not None:
                # Voters change one at a time, as soon as the leader has appended the change.
                voters = list(raft.core.voters.node_ids)
            needed = len(voters) // 2 + 1
        on_disk = partition.flush_before_ack or by_quorum
        if partition.assignment.mode is ReplicationMode.ENTERING:
            # The previous epoch may have committed records in the leader's log without a flush,
            # even at the same moment; and other replicas may know that the switch was cancelled.
            state = self._states.get(key)
            is_cancelled = state is not None and state.mode is ReplicationMode.ISR
            is_from_earlier_epoch = marks.watermark <= partition.leader.epoch_start
            on_disk = partition.config.flush_messages == 1 or not (
                is_from_earlier_epoch or is_cancelled
            )
        holders = []
        for each in replicas:
            found = self.replicas.get((each, key))
            if found is None:
                continue
            # Without flushes, a leader may count records that a replica has lost in a power loss.
            has = found.durable if on_disk else max(found.end, found.end_before_loss)
            if has >= marks.watermark:
                holders.append(each)
        if len(holders) < needed:
            self._report_violation(
                "D8",
                f"{self.names[key]}: node {node_id} committed up to {marks.watermark} in epoch"
                f" {marks.leader_epoch}, but only {holders} of {list(replicas)} have the records",
            )

    def _check_states(self, image: MetadataImage) -> None:
        """M6, M7: the metadata of a partition is consistent."""
        self._states = {
            (topic.topic_id, index): state
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
        }
        for (node_id, key), marks in self.replicas.items():
            if node_id not in replicas_of(self._states.get(key)):
                # Removed; if it is added again, it is a new replica.
                marks.partition = None
        for topic in image.topics.values():
            minimum = int(
                image.config_of(2, topic.name).get("min.insync.replicas", self._default_minimum())
            )
            fsyncs = image.config_of(2, topic.name).get("flush.messages") == "1"
            for index, state in topic.partitions.items():
                if fsyncs:
                    self._fsyncing[topic.topic_id, index] = None
                if not controller_elects(state):
                    continue
                for problem in state_problems(state, image, minimum=minimum):
                    self._report_violation("M6", f"{topic.name}-{index}: {problem}: {state}")

    def _default_minimum(self) -> int:
        host = next(iter(self._cluster.hosts.values()))
        return int(host.config.topic_defaults.min_insync_replicas)

    def _check_members(self) -> None:
        """M6, M7: every electable replica has all committed records."""
        image = self._newest_image()
        if image is None:
            return
        for key, state in self._states.items():
            committed = self.committed.get(key, 0)
            if not committed or not controller_elects(state):
                # Raft elects by comparing logs; its ISR is informational.
                continue
            for member in (*state.isr, *state.elr):
                marks = self.replicas.get((member, key))
                host = self._cluster.hosts.get(member)
                if marks is None or host is None or marks.life is not host.life:
                    continue
                if marks.is_truncating or not self._is_registered(member, image):
                    continue
                if marks.end < committed:
                    self._report_violation(
                        "M6",
                        f"{self.names[key]}: node {member} is in sync, but has only {marks.end} of"
                        f" {committed} records: {state}",
                    )

    def _is_registered(self, node_id: int, image: MetadataImage) -> bool:
        """Returns whether the node's registration belongs to its current process."""
        broker = image.brokers.get(node_id)
        return broker is not None and broker.epoch >= self._boots.get(node_id, 0)

    def check_folders(self) -> None:
        """M8: a node keeps the folders of the replicas that the metadata assigns to it, regardless
        of how much of the metadata it has read."""
        for (node_id, key), marks in self.replicas.items():
            state = self._states.get(key)
            is_assigned = node_id in replicas_of(state) and marks.partition is not None
            if is_assigned and self._folder(node_id, key) is not marks.folder:
                self._report_violation(
                    "M8", f"node {node_id} deleted its replica of {self.names[key]}: {state}"
                )

    def _folder(self, node_id: int, key: Key) -> object:
        platter = self._cluster.hosts[node_id].machine.platter
        return platter.find(f"{DATA}/{self.names[key]}")

    # -- processes ---------------------------------------------------------------------------------

    def on_process_end(self, node_id: int, kind: str) -> None:
        """Called before a process ends."""
        self.inspect()
        self.check_folders()
        host = self._cluster.hosts[node_id]
        if host.has_disk_failed:
            kind = "disk-failed"
        self._fates[node_id] = Fate(
            kind,
            {
                key: marks
                for (each, key), marks in self.replicas.items()
                if each == node_id and marks.life is host.life
            },
        )
        if kind in ("power", "disk-failed"):
            for key, marks in self._fates[node_id].replicas.items():
                self.replicas[node_id, key] = replace(
                    marks, end=marks.durable, end_before_loss=marks.end
                )

    def on_boot(self, node_id: int) -> None:
        self._boots[node_id] = self._quorum.committed

    def on_recovered(self, node_id: int, topic_partition: str, end: int) -> None:
        """D9: a restart recovers all fsynced records, and after a kill all records."""
        fate = self._fates.get(node_id)
        if fate is None or fate.kind == "disk-failed":
            return
        for key, marks in fate.replicas.items():
            if self.names[key] != topic_partition or marks.is_truncating:
                continue
            least = marks.durable if fate.kind == "power" else marks.end
            if end < least:
                self._report_violation(
                    "D9",
                    f"{topic_partition} on node {node_id}: recovered up to {end} after"
                    f" {fate.kind}, but {least} was durable",
                )

    # -- the atlas ---------------------------------------------------------------------------------

    def survives_loss_of(self, node_id: int) -> bool:
        image = self._newest_image()
        if image is None:
            return False
        return all(
            any(
                self._is_complete(member, key, image)
                for member in (*state.isr, *state.elr)
                if member != node_id
            )
            for key, state in self._states.items()
            if node_id in state.replicas
            and self.committed.get(key)
            and state.mode not in QUORUM_MODES
            and key not in self._fsyncing
        )

    def survives_kill_of(self, node_id: int) -> bool:
        """A killed node keeps its records, but leaves the ISR to the other members. If one of them
        has lost power and this is not known yet, a partition could depend on it alone."""
        for key, state in self._states.items():
            members = {*state.isr, *state.elr}
            if node_id not in members or state.mode in QUORUM_MODES:
                continue
            ends = [each.end for other in members if (each := self.replicas.get((other, key)))]
            if min(ends, default=0) < self.committed.get(key, 0):
                return False
        return True

    def unflushed_on(self, node_id: int) -> list[str]:
        life = self._cluster.hosts[node_id].life
        return [
            self.names[key]
            for (each, key), marks in self.replicas.items()
            if each == node_id and marks.life is life and marks.durable < marks.end
        ]

    def _is_complete(self, node_id: int, key: Key, image: MetadataImage) -> bool:
        host = self._cluster.hosts.get(node_id)
        marks = self.replicas.get((node_id, key))
        if host is None or marks is None or host.has_disk_failed:
            return False
        if marks.end < self.committed.get(key, 0) or marks.is_truncating:
            return False
        # A killed process keeps its records, too, but the cluster cannot know this: the replica
        # counts as lost until it has caught up.
        return host.is_up and marks.life is host.life and self._is_registered(node_id, image)


def replicas_of(state: PartitionState | None) -> tuple[int, ...]:
    return () if state is None else state.replicas


def state_problems(state: PartitionState, image: MetadataImage, *, minimum: int) -> list[str]:
    problems = []
    replicas, isr, elr = set(state.replicas), set(state.isr), set(state.elr)
    if not isr <= replicas or not elr <= replicas:
        problems.append("the ISR or ELR contains a node that is not a replica")
    if isr & elr:
        problems.append("the ISR and ELR overlap")
    if len(isr) >= min(minimum, len(replicas)) and elr:
        problems.append("the ELR is not empty although the ISR is large enough")
    if state.leader >= 0 and state.leader not in isr:
        problems.append("the leader is not in its ISR")
    if len(isr) > 1:
        fenced = [
            each for each in sorted(isr) if each not in image.brokers or image.brokers[each].fenced
        ]
        if fenced:
            problems.append(f"fenced nodes {fenced} are in the ISR")
    return problems
