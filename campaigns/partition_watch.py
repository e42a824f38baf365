"""Looks at every replica of every partition whenever time is about to pass: D6, D8, D9, M6-M8.

It also is the atlas of the faults: it knows where whole copies of what was committed are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

from campaigns.log_matching import is_unlike_replay
from campaigns.quorum_watch import QuorumWatch, broker_of
from lograft.metadata.elections import controller_elects
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import PartitionState
from lograft.model.types import ReplicationMode
from lograft.simulation.cluster import DATA, SimulatedCluster
from lograft.simulation.hosts import Host

#: Here a majority that has fsynced decides, and nothing that is acknowledged can be lost.
QUORUM_MODES: Final = (ReplicationMode.RAFT, ReplicationMode.LEAVING)
#: (topic id, index)
Key: TypeAlias = tuple[UUID, int]


@dataclass(slots=True)
class Marks:
    """One replica as last seen, also after the death of its process."""

    life: object
    start: int
    stable: int
    watermark: int
    end: int
    durable: int
    leader_epoch: int
    is_being_cut: bool = False
    #: A replica that was removed and came back begins anew.
    partition: object = None
    #: What it had when its leader heard of it, before a power loss.
    had: int = 0
    #: Of its folder on the platter: one of the same name that was made anew is another.
    folder: object = None


@dataclass(slots=True)
class Fate:
    """How a node's last life ended, and what it had."""

    kind: str
    replicas: dict[Key, Marks] = field(default_factory=dict)


class PartitionWatch:
    def __init__(
        self,
        cluster: SimulatedCluster,
        quorum: QuorumWatch,
        violated: Callable[[str, str], None],
    ) -> None:
        self._cluster = cluster
        self._quorum = quorum
        self._violated = violated
        self.replicas: dict[tuple[int, Key], Marks] = {}
        self.names: dict[Key, str] = {}
        #: What was last seen of each; a new life has new objects.
        self._views: dict[Any, tuple[int, int, int, int]] = {}
        #: Mode and number of truncations when its producers were last compared with its log.
        self._compared: dict[Any, tuple[ReplicationMode, int]] = {}
        #: Everything below was visible to consumers once.
        self.committed: dict[Key, int] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        #: (log start, last stable offset) of a leadership.
        self._led: dict[tuple[Key, int], tuple[int, int]] = {}
        self._fates: dict[int, Fate] = {}
        #: Committed metadata when the present life began: a registration above is of this life.
        self._boots: dict[int, int] = {}
        self._image_offset = -1
        self._states: dict[Key, PartitionState] = {}
        #: Partitions that fsync before they acknowledge.
        self._fsyncing: dict[Key, None] = {}

    @property
    def leaderships(self) -> int:
        return len(self._leaders)

    # -- looking -----------------------------------------------------------------------------------

    def look(self, nodes: Iterable[int] | None = None) -> None:
        """At these nodes, or at all."""
        changed = []
        newest: MetadataImage | None = None
        for node_id in self._cluster.hosts if nodes is None else nodes:
            host = self._cluster.hosts[node_id]
            broker = broker_of(host.node)
            if broker is None:
                continue
            if broker.image.offset > self._image_offset:
                self._image_offset = broker.image.offset
                newest = broker.image
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
                marks = self._note(node_id, host, key, partition, view[3])
                changed.append((node_id, key, partition, marks, seen))
        # Only now: what one replica claims rests on what others have at this instant.
        for node_id, key, partition, marks, seen in changed:
            self._look_at(node_id, key, partition, marks, seen)
        if newest is not None:
            self._look_at_states(newest)
        if changed or newest is not None:
            self._look_at_members()

    def _compare_producers(self, node_id: int, partition: Any, log: Any) -> None:
        """D9, after every truncation and every step of a switch."""
        now = (partition.assignment.mode, log.truncations)
        if not partition.is_usable or self._compared.get(partition) == now:
            return
        self._compared[partition] = now
        if is_unlike_replay(partition):
            self._violated(
                "D9",
                f"{partition.topic_partition} on node {node_id}: after a cut or a switch it knows"
                " other producers than its log",
            )

    def _newest_image(self) -> MetadataImage | None:
        images = [
            broker.image
            for host in self._cluster.hosts.values()
            if (broker := broker_of(host.node)) is not None
        ]
        return max(images, key=lambda image: image.offset) if images else None

    def _note(self, node_id: int, host: Host, key: Key, partition: Any, epoch: int) -> Marks:
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

    def _look_at(
        self, node_id: int, key: Key, partition: Any, marks: Marks, seen: Marks | None
    ) -> None:
        where = f"{self.names[key]} on node {node_id}"
        if marks.is_being_cut:
            return
        if not marks.start <= marks.stable <= marks.watermark <= marks.end:
            self._violated("D6", f"{where}: marks out of order: {marks}")
        is_same = seen is not None and seen.partition is marks.partition
        if seen is not None and is_same and marks.watermark < seen.watermark:
            self._violated(
                "D6", f"{where}: the watermark went from {seen.watermark} to {marks.watermark}"
            )
        if marks.leader_epoch >= 0:
            self._look_at_leader(node_id, key, partition, marks)

    def _look_at_leader(self, node_id: int, key: Key, partition: Any, marks: Marks) -> None:
        name, epoch = self.names[key], marks.leader_epoch
        if self._leaders.setdefault((key, epoch), node_id) != node_id:
            other = self._leaders[key, epoch]
            self._violated("M1", f"{name}: {node_id} and {other} lead in epoch {epoch}")
        start, stable = self._led.get((key, epoch), (marks.start, marks.stable))
        if marks.start < start or marks.stable < stable:
            self._violated("D6", f"{name}: log start or stable offset fell in epoch {epoch}")
        self._led[key, epoch] = (marks.start, marks.stable)
        if marks.watermark > self.committed.get(key, 0):
            self._look_at_evidence(node_id, key, partition, marks)
            self.committed[key] = marks.watermark

    def _look_at_evidence(self, node_id: int, key: Key, partition: Any, marks: Marks) -> None:
        """D8: what a leader calls committed is on enough replicas, on disk where it must be."""
        replicas = partition.assignment.replicas
        by_quorum = partition.assignment.mode in QUORUM_MODES
        needed = min(partition.config.min_insync_replicas, len(replicas))
        if by_quorum:
            adding = partition.assignment.adding
            voters = [each for each in replicas if each not in adding]
            raft = getattr(partition.replica, "raft", None)
            if raft is not None:
                # They change one at a time, and count as soon as the leader has written it.
                voters = list(raft.core.voters.node_ids)
            needed = len(voters) // 2 + 1
        on_disk = partition.flush_before_ack or by_quorum
        if partition.assignment.mode is ReplicationMode.ENTERING:
            # What its leader found in the log, the epoch before may have committed without flushes,
            # in the same moment even; and the others may know that the switch was taken back.
            state = self._states.get(key)
            is_over = state is not None and state.mode is ReplicationMode.ISR
            is_old = marks.watermark <= partition.leader.epoch_start
            on_disk = partition.config.flush_messages == 1 or not (is_old or is_over)
        holders = []
        for each in replicas:
            found = self.replicas.get((each, key))
            if found is None:
                continue
            # Without flushes a leader may count what a replica had until it lost its power.
            has = found.durable if on_disk else max(found.end, found.had)
            if has >= marks.watermark:
                holders.append(each)
        if len(holders) < needed:
            self._violated(
                "D8",
                f"{self.names[key]}: node {node_id} calls {marks.watermark} committed in epoch"
                f" {marks.leader_epoch}, only {holders} of {list(replicas)} have it",
            )

    def _look_at_states(self, image: MetadataImage) -> None:
        """M6, M7: what the metadata says about a partition makes sense."""
        self._states = {
            (topic.topic_id, index): state
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
        }
        for (node_id, key), marks in self.replicas.items():
            if node_id not in replicas_of(self._states.get(key)):
                # Taken away: should it come back, it begins anew.
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
                for complaint in wrong_with(state, image, minimum=minimum):
                    self._violated("M6", f"{topic.name}-{index}: {complaint}: {state}")

    def _default_minimum(self) -> int:
        host = next(iter(self._cluster.hosts.values()))
        return int(host.config.topic_defaults.min_insync_replicas)

    def _look_at_members(self) -> None:
        """M6, M7: whoever may be elected has all that was committed."""
        image = self._newest_image()
        if image is None:
            return
        for key, state in self._states.items():
            committed = self.committed.get(key, 0)
            if not committed or not controller_elects(state):
                # Raft elects by comparing logs; its ISR is for people.
                continue
            for member in (*state.isr, *state.elr):
                marks = self.replicas.get((member, key))
                host = self._cluster.hosts.get(member)
                if marks is None or host is None or marks.life is not host.life:
                    continue
                if marks.is_being_cut or not self._is_registered(member, image):
                    continue
                if marks.end < committed:
                    self._violated(
                        "M6",
                        f"{self.names[key]}: node {member} is in sync with {marks.end} of"
                        f" {committed} records: {state}",
                    )

    def _is_registered(self, node_id: int, image: MetadataImage) -> bool:
        """Whether the node's registration belongs to its present life."""
        broker = image.brokers.get(node_id)
        return broker is not None and broker.epoch >= self._boots.get(node_id, 0)

    def look_at_folders(self) -> None:
        """M8: what the metadata gives to a node is not taken away, whatever the node itself has
        read of the metadata: its folder is there, under its name."""
        for (node_id, key), marks in self.replicas.items():
            state = self._states.get(key)
            is_owed = node_id in replicas_of(state) and marks.partition is not None
            if is_owed and self._folder(node_id, key) is not marks.folder:
                self._violated("M8", f"node {node_id} has given up {self.names[key]}: {state}")

    def _folder(self, node_id: int, key: Key) -> object:
        platter = self._cluster.hosts[node_id].machine.platter
        return platter.find(f"{DATA}/{self.names[key]}")

    # -- lives -------------------------------------------------------------------------------------

    def ends(self, node_id: int, kind: str) -> None:
        """Called just before a process ends."""
        self.look()
        self.look_at_folders()
        host = self._cluster.hosts[node_id]
        if host.is_disk_hurt:
            kind = "hurt"
        self._fates[node_id] = Fate(
            kind,
            {
                key: marks
                for (each, key), marks in self.replicas.items()
                if each == node_id and marks.life is host.life
            },
        )
        if kind in ("power", "hurt"):
            for key, marks in self._fates[node_id].replicas.items():
                self.replicas[node_id, key] = replace(marks, end=marks.durable, had=marks.end)

    def begins(self, node_id: int) -> None:
        self._boots[node_id] = self._quorum.committed

    def recovered(self, node_id: int, topic_partition: str, end: int) -> None:
        """D9: a restart finds what was fsynced, and everything after a mere kill."""
        fate = self._fates.get(node_id)
        if fate is None or fate.kind == "hurt":
            return
        for key, marks in fate.replicas.items():
            if self.names[key] != topic_partition or marks.is_being_cut:
                continue
            least = marks.durable if fate.kind == "power" else marks.end
            if end < least:
                self._violated(
                    "D9",
                    f"{topic_partition} on node {node_id}: recovered to {end} after a"
                    f" {fate.kind}, {least} was safe",
                )

    # -- the atlas ---------------------------------------------------------------------------------

    def survives_loss_of(self, node_id: int) -> bool:
        image = self._newest_image()
        if image is None:
            return False
        return all(
            any(
                self._is_whole(member, key, image)
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
        """A killed node has what it had, and still it leaves the ISR to those that stay there. If
        one of them has lost power, and nobody has noticed yet, a partition may be left to it."""
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

    def _is_whole(self, node_id: int, key: Key, image: MetadataImage) -> bool:
        host = self._cluster.hosts.get(node_id)
        marks = self.replicas.get((node_id, key))
        if host is None or marks is None or host.is_disk_hurt:
            return False
        if marks.end < self.committed.get(key, 0) or marks.is_being_cut:
            return False
        # A killed process has everything too, but the cluster cannot know: it counts as lost until
        # it has caught up.
        return host.is_up and marks.life is host.life and self._is_registered(node_id, image)


def replicas_of(state: PartitionState | None) -> tuple[int, ...]:
    return () if state is None else state.replicas


def wrong_with(state: PartitionState, image: MetadataImage, *, minimum: int) -> list[str]:
    complaints = []
    replicas, isr, elr = set(state.replicas), set(state.isr), set(state.elr)
    if not isr <= replicas or not elr <= replicas:
        complaints.append("ISR or ELR holds who is no replica")
    if isr & elr:
        complaints.append("ISR and ELR overlap")
    if len(isr) >= min(minimum, len(replicas)) and elr:
        complaints.append("an ELR beside an ISR that is large enough")
    if state.leader >= 0 and state.leader not in isr:
        complaints.append("the leader is not in its ISR")
    if len(isr) > 1:
        fenced = [
            each for each in sorted(isr) if each not in image.brokers or image.brokers[each].fenced
        ]
        if fenced:
            complaints.append(f"{fenced} are fenced and in the ISR")
    return complaints
