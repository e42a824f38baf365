"""Every check of the watches and of a cluster's history, shown a violation and its absence."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from campaigns.cluster_checks import check_cluster
from campaigns.log_matching import unlike_logs, unlike_replays
from campaigns.partition_watch import PartitionWatch, wrong_with
from campaigns.quorum_watch import QuorumWatch
from lograft.consensus.types import HardState, ReplicaKey, Voter, VoterSet
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import BrokerState, ConfigResource, PartitionState, TopicState
from lograft.model.types import (
    BrokerEpoch,
    Epoch,
    NodeId,
    Offset,
    ReplicationMode,
    TopicPartition,
)
from lograft.replication.types import NO_ASSIGNMENT, Assignment
from lograft.simulation.cluster import DATA
from lograft.simulation.history import History
from lograft.simulation.platter import FolderNode, Link, Platter, Unlink
from lograft.storage.producers import UNVERIFIED, ProducerStates
from lograft.storage.types import Origin
from lograft.testing.memory import MemoryDisk
from lograft.wire.batches import Record, build_batch
from tests.unit.storage.logs import NOW_MS, make_batch, make_marker, open_log

TOPIC = UUID(int=7)
KEYS = [ReplicaKey(NodeId(i), UUID(int=i)) for i in (1, 2, 3, 4)]


def broker_state(node_id: int, *, epoch: int = 5, fenced: bool = False) -> BrokerState:
    return BrokerState(
        broker_id=node_id, epoch=BrokerEpoch(epoch), incarnation_id=UUID(int=node_id),
        endpoints=(), features={}, rack=None, fenced=fenced, in_controlled_shutdown=False,
        log_dirs=(), cordoned_log_dirs=None, is_migrating_zk_broker=False,
    )  # fmt: skip


def state(**changes: Any) -> PartitionState:
    return PartitionState(
        replicas=(1, 2, 3), directories=(UUID(int=0),) * 3, isr=(1, 2, 3), removing_replicas=(),
        adding_replicas=(), elr=(), last_known_elr=(), leader=1, leader_recovery=0,
        leader_epoch=4, partition_epoch=9,
    )._replace(**changes)  # fmt: skip


def image_of(partition: PartitionState, *, offset: int = 10, fenced: int = 0) -> MetadataImage:
    image = MetadataImage(offset=Offset(offset), epoch=Epoch(3))
    image.brokers = {i: broker_state(i, fenced=i == fenced) for i in (1, 2, 3)}
    image.topics = {TOPIC: TopicState("t", TOPIC, {0: partition})}
    image.topic_ids = {"t": TOPIC}
    image.configs = {ConfigResource(2, "t"): {"min.insync.replicas": "2"}}
    return image


@dataclass
class FakeLog:
    log_start_offset: int = 0
    end_offset: int = 10
    durable_offset: int = 10
    data: bytes = b""
    truncations: int = 0
    segments: Any = (SimpleNamespace(base_offset=0),)
    producers: Any = field(default_factory=ProducerStates)

    def read(self, offset: int, *, bytes_max: int, bound: int) -> Any:
        file = SimpleNamespace(pread=lambda size, position: self.data)
        return SimpleNamespace(file=file, size=len(self.data), position=0)


@dataclass
class FakeCore:
    epoch: int = 3
    leader: int = 1
    is_leader: bool = False
    high_watermark: int = 11
    role: str = "follower"
    _on_disk: HardState = field(default_factory=lambda: HardState(Epoch(3), NodeId(1), None))
    voters: VoterSet = field(
        default_factory=lambda: VoterSet(tuple(Voter(key, ()) for key in KEYS[:3]))
    )


@dataclass(eq=False)
class FakePartition:
    leader: Any = None
    high_watermark: int = 10
    log: FakeLog = field(default_factory=FakeLog)
    last_stable_offset: int = 10
    topic_id: UUID = TOPIC
    index: int = 0
    is_deleted: bool = False
    offline: str = ""
    kept_offsets: Any = None
    flush_before_ack: bool = False
    is_usable: bool = True
    topic_partition: TopicPartition = field(default_factory=lambda: TopicPartition("t", 0))

    @property
    def rule(self) -> "FakePartition":
        return self

    assignment: Assignment = field(
        default_factory=lambda: NO_ASSIGNMENT._replace(
            replicas=(NodeId(1), NodeId(2), NodeId(3)), mode=ReplicationMode.ISR
        )
    )
    config: Any = field(
        default_factory=lambda: SimpleNamespace(min_insync_replicas=2, cleanup_compact=False)
    )


class World:
    """Three healthy nodes, to be spoilt."""

    def __init__(self) -> None:
        self.cores = {i: FakeCore(is_leader=i == 1) for i in (1, 2, 3)}
        self.partitions = {i: FakePartition() for i in (1, 2, 3)}
        self.partitions[1].leader = SimpleNamespace(leader_epoch=4)
        self.images = {i: image_of(state()) for i in (1, 2, 3)}
        self.logs = {i: FakeLog(end_offset=11, durable_offset=11) for i in (1, 2, 3)}
        self.hosts: dict[int, Any] = {}
        for i in (1, 2, 3):
            quorum = SimpleNamespace(
                core=self.cores[i],
                log=self.logs[i],
                high_watermark=11,
                quorum=SimpleNamespace(voters=self.cores[i].voters),
            )
            broker = SimpleNamespace(
                quorum=quorum, image=self.images[i], partitions=[self.partitions[i]]
            )
            self.hosts[i] = SimpleNamespace(
                name=f"n{i}", node=SimpleNamespace(_broker=broker, _shared=broker), life=f"life{i}",
                is_up=True, is_disk_hurt=False, machine=SimpleNamespace(platter=Platter()),
                config=SimpleNamespace(
                    topic_defaults=SimpleNamespace(min_insync_replicas=1)
                ),
            )  # fmt: skip
        for host in self.hosts.values():
            for path in (DATA, f"{DATA}/t-0"):
                parent, _, name = path.rpartition("/")
                host.machine.platter.folder(parent).change(Link(name, FolderNode(0)))
        self.found: list[tuple[str, str]] = []
        cluster: Any = self
        self.quorum = QuorumWatch(cluster, self.violated, voters=3)
        self.watch = PartitionWatch(cluster, self.quorum, self.violated)

    def violated(self, invariant: str, message: str) -> None:
        self.found.append((invariant, message))

    def broker(self, node_id: int) -> Any:
        return self.hosts[node_id].node._broker

    def look(self) -> list[str]:
        self.quorum.look()
        self.watch.look()
        self.watch.look_at_folders()
        return [invariant for invariant, _ in self.found]


def spoil_two_leaders(world: World) -> None:
    world.cores[2].is_leader = True
    world.cores[2].role = "leader"


def spoil_other_name(world: World) -> None:
    world.cores[2].leader = 3


def spoil_epoch_back(world: World) -> None:
    world.cores[2]._on_disk = HardState(Epoch(2), NodeId(1), None)


def spoil_watermark_back(world: World) -> None:
    world.cores[2].high_watermark = 9


def spoil_metadata_on_one_disk(world: World) -> None:
    world.cores[1].high_watermark = 15
    world.logs[1].durable_offset = 15


def spoil_image_back(world: World) -> None:
    world.images[3].offset = Offset(4)


def spoil_image_epoch(world: World) -> None:
    world.images[3].offset = Offset(12)
    world.look()
    world.images[2].offset = Offset(12)
    world.images[2].epoch = Epoch(2)


def spoil_image_content(world: World) -> None:
    for i in (2, 3):
        world.images[i].offset = Offset(12)
    world.images[3].producer_ids_next = 99


def spoil_two_voters_at_once(world: World) -> None:
    voters = VoterSet(tuple(Voter(key, ()) for key in (KEYS[0], KEYS[3], ReplicaKey(NodeId(9)))))
    for i in (1, 2, 3):
        world.logs[i].durable_offset = 20
        world.broker(i).quorum.quorum.voters = voters
    world.cores[1].high_watermark = 20


def spoil_order_of_marks(world: World) -> None:
    world.partitions[2].high_watermark = 11


def spoil_watermark_of_a_replica(world: World) -> None:
    world.partitions[2].high_watermark = world.partitions[2].last_stable_offset = 8


def spoil_stable_offset_of_a_leader(world: World) -> None:
    world.partitions[1].last_stable_offset = 7
    world.partitions[1].log.durable_offset = 9


def spoil_two_partition_leaders(world: World) -> None:
    world.partitions[2].leader = SimpleNamespace(leader_epoch=4)


def spoil_commit_on_one_replica(world: World) -> None:
    partition = world.partitions[1]
    partition.log.end_offset = partition.high_watermark = partition.last_stable_offset = 12


def spoil_commit_not_on_disk(world: World) -> None:
    for i in (1, 2, 3):
        world.partitions[i].flush_before_ack = True
        world.partitions[i].log.end_offset = 12
    world.partitions[1].high_watermark = world.partitions[1].last_stable_offset = 12


def spoil_member_without_data(world: World) -> None:
    # 3 holds back, 2 and 1 commit, and 3 is in the ISR all the same.
    for i in (1, 2):
        world.partitions[i].log.end_offset = 12
        world.partitions[i].high_watermark = world.partitions[i].last_stable_offset = 12


def spoil_folder_gone(world: World) -> None:
    world.hosts[2].machine.platter.folder(DATA).change(Unlink("t-0"))


def spoil_folder_made_anew(world: World) -> None:
    world.hosts[2].machine.platter.folder(DATA).change(Link("t-0", FolderNode(0)))


@pytest.mark.parametrize(
    ("invariant", "spoil"),
    [
        ("M8", spoil_folder_gone),
        ("M8", spoil_folder_made_anew),
        ("M1", spoil_two_leaders),
        ("M1", spoil_other_name),
        ("M2", spoil_epoch_back),
        ("M3", spoil_watermark_back),
        ("M3", spoil_metadata_on_one_disk),
        ("M5", spoil_image_back),
        ("M3", spoil_image_epoch),
        ("M4", spoil_image_content),
        ("M9", spoil_two_voters_at_once),
        ("D6", spoil_order_of_marks),
        ("D6", spoil_watermark_of_a_replica),
        ("D6", spoil_stable_offset_of_a_leader),
        ("M1", spoil_two_partition_leaders),
        ("D8", spoil_commit_on_one_replica),
        ("D8", spoil_commit_not_on_disk),
        ("M6", spoil_member_without_data),
    ],
)
def test_a_spoilt_cluster_is_noticed(invariant: str, spoil: Callable[[World], None]) -> None:
    world = World()
    assert world.look() == []
    spoil(world)
    assert invariant in world.look(), world.found


def test_a_replica_that_moved_away_may_be_deleted() -> None:
    world = World()
    assert world.look() == []
    for i in (1, 2, 3):
        world.broker(i).image = image_of(state(replicas=(1, 3), isr=(1, 3)), offset=11)
    world.look()
    spoil_folder_gone(world)
    assert world.look() == []


def test_a_vote_is_not_given_twice() -> None:
    world = World()
    world.cores[2]._on_disk = HardState(Epoch(4), NodeId(-1), KEYS[2])
    world.cores[2].epoch, world.cores[2].leader = 4, -1
    assert world.look() == []
    # Once the leader is known the vote has done its duty.
    world.cores[2]._on_disk = HardState(Epoch(4), NodeId(3), None)
    assert world.look() == []
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), KEYS[2])
    world.look()
    # What a static quorum keeps of the vote is the node.
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), ReplicaKey(KEYS[2].node_id))
    assert world.look() == []
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), KEYS[1])
    assert world.look() == ["M2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"isr": (1, 4)},
        {"elr": (2,), "isr": (1, 2)},
        {"elr": (3,), "isr": (1, 2)},
        {"leader": 3, "isr": (1, 2)},
    ],
)
def test_a_senseless_partition_is_noticed(changes: dict[str, Any]) -> None:
    assert wrong_with(state(), image_of(state()), minimum=2) == []
    assert wrong_with(state(**changes), image_of(state()), minimum=2) != []


def test_a_fenced_member_is_noticed() -> None:
    assert wrong_with(state(), image_of(state(), fenced=2), minimum=2) != []
    alone = state(isr=(2,), leader=-1)
    assert wrong_with(alone, image_of(alone, fenced=2), minimum=2) == []


@pytest.mark.parametrize(("kind", "end", "found"), [
    ("kill", 10, []), ("kill", 9, ["D9"]), ("power", 6, []), ("power", 5, ["D9"]),
])  # fmt: skip
def test_what_a_restart_must_find(kind: str, end: int, found: list[str]) -> None:
    world = World()
    world.partitions[2].log.durable_offset = 6
    assert world.look() == []
    world.watch.ends(2, kind)
    world.watch.recovered(2, "t-0", end)
    assert [invariant for invariant, _ in world.found] == found


def test_the_atlas_spares_the_last_whole_copy() -> None:
    world = World()
    world.look()
    assert world.watch.survives_loss_of(1)
    world.watch.ends(2, "power")
    world.hosts[2].is_up = False
    assert world.watch.survives_loss_of(1)
    # A kill loses nothing, but the cluster takes it for a loss until 3 has caught up.
    world.watch.ends(3, "kill")
    world.hosts[3].is_up = False
    assert not world.watch.survives_loss_of(1)


def test_logs_that_differ_below_the_watermark_are_noticed() -> None:
    world = World()
    batch = build_batch([Record(i, 0, None, b"x") for i in range(10)], leader_epoch=4)
    other = build_batch([Record(i, 0, None, b"x") for i in range(10)], leader_epoch=3)
    cluster: Any = world
    for i in (1, 2, 3):
        world.partitions[i].log.data = world.logs[i].data = bytes(batch)
    assert list(unlike_logs(cluster)) == []
    world.partitions[2].log.data = bytes(other)
    assert len(list(unlike_logs(cluster))) == 1


def test_cleaned_logs_need_only_agree_on_what_both_keep() -> None:
    world = World()
    cluster: Any = world

    def batch(**values: bytes) -> bytes:
        records = [Record(int(n[1:]), 0, b"k", value) for n, value in values.items()]
        return bytes(build_batch(records, leader_epoch=4))

    for i in (1, 2, 3):
        world.partitions[i].config.cleanup_compact = True
        world.partitions[i].log.data = batch(_0=b"a", _1=b"b", _9=b"c")
    world.partitions[2].log.data = batch(_0=b"a", _9=b"c")
    assert list(unlike_logs(cluster)) == []
    world.partitions[2].log.data = batch(_0=b"a", _9=b"other")
    assert len(list(unlike_logs(cluster))) == 1


def test_producers_that_differ_from_a_replay_are_noticed() -> None:
    world = World()
    cluster: Any = world
    log = open_log(MemoryDisk())
    for sequence in range(3):
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    for i in (1, 2, 3):
        partition: Any = world.partitions[i]
        partition.log = log
    assert list(unlike_replays(cluster)) == []
    log.producers.clear()
    assert len(list(unlike_replays(cluster))) == 3


@pytest.mark.parametrize("change", ["cut", "switch"])
def test_producers_are_compared_after_every_cut_and_switch(change: str) -> None:
    world = World()
    log = open_log(MemoryDisk())
    batch = make_batch(
        [b"v"] * 9, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, verification=UNVERIFIED)
    marker = make_marker(7, commit=False, epoch=1)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    partition: Any = world.partitions[2]
    partition.log = log
    log.durable_offset = log.end_offset
    world.watch.look()
    assert world.found == []
    log.producers.clear()
    world.watch.look()
    assert world.found == [], "nothing was cut or switched"
    if change == "cut":
        log.truncations += 1
    else:
        partition.assignment = partition.assignment._replace(mode=ReplicationMode.RAFT)
    world.watch.look()
    assert [invariant for invariant, _ in world.found] == ["D9"]


def test_a_log_that_its_node_has_closed_is_not_compared() -> None:
    world = World()
    log = open_log(MemoryDisk())
    batch = make_batch([b"v"] * 10, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    partition: Any = world.partitions[2]
    partition.log = log
    log.close(clean=True)
    world.watch.look()
    assert world.found == []


def test_the_last_value_of_a_key_survives() -> None:
    history = History()
    sent(history, "p1-1", "ok", offset=3, key="1")
    sent(history, "p2-1", "ok", offset=5, key="1")
    final(history, (5, "p2-1"))
    assert invariants(history) == []
    # A later value whose outcome nobody knew is as good.
    history = History()
    sent(history, "p1-1", "ok", offset=3, key="1")
    sent(history, "p2-1", "info", key="1")
    final(history, (5, "p2-1"))
    assert invariants(history) == []
    history = History()
    sent(history, "p1-1", "ok", offset=3, key="1")
    sent(history, "p2-1", "ok", offset=5, key="1")
    final(history, (3, "p1-1"))
    assert invariants(history) == ["D11"]


def sent(history: History, uid: str, end: str, **v: Any) -> None:
    asked = {"tp": "t-0", "uid": uid, "acks": -1}
    asked |= {name: v.pop(name) for name in ("pid", "seq", "weak", "key") if name in v}
    history.record(uid, "invoke", "send", **asked)
    history.record(uid, end, "send", **v)  # type: ignore[arg-type]


def final(history: History, *records: tuple[int, str]) -> None:
    history.record("final", "invoke", "final", tp="t-0", offset=0)
    history.record(
        "final", "ok", "final", records=list(records), hw=99, log_start=0, bad_crc=0
    )  # fmt: skip


def invariants(history: History) -> list[str]:
    return [violation.invariant for violation in check_cluster(history)]


def test_a_weak_send_binds_nobody() -> None:
    history = History()
    sent(history, "p1-1", "ok", offset=0, weak=True)
    sent(history, "p2-1", "ok", offset=0)
    final(history, (0, "p2-1"))
    assert invariants(history) == []
    sent(history, "p3-1", "ok", offset=1)
    assert invariants(history) == ["D1"]


@pytest.mark.parametrize("answer", [{"diverging": True}, {"error": 1}])
def test_a_consumer_is_never_told_that_its_records_are_gone(answer: dict[str, Any]) -> None:
    history = History()
    history.record("c1", "invoke", "poll", tp="t-0", offset=5)
    history.record("c1", "fail", "poll", **answer)
    assert invariants(history) == ["D3"]


def test_records_below_a_deletion_may_be_out_of_range() -> None:
    history = History()
    history.record("d", "invoke", "delete", tp="t-0", before=6)
    history.record("d", "ok", "delete", log_start=6)
    history.record("c1", "invoke", "poll", tp="t-0", offset=5)
    history.record("c1", "fail", "poll", error=1)
    assert invariants(history) == []


def test_the_next_in_line_is_in_order() -> None:
    history = History()
    sent(history, "p1-1", "fail", error=45, is_first=False, pid=1, seq=0)
    assert invariants(history) == []
    sent(history, "p1-2", "fail", error=45, is_first=True, pid=1, seq=1)
    assert invariants(history) == ["P3"]


def test_a_producer_id_has_one_owner() -> None:
    history = History()
    sent(history, "p1-1", "info", pid=1, seq=0)
    sent(history, "p2-1", "info", pid=1, seq=0)
    assert invariants(history) == ["P4"]


def test_a_deposed_leader_may_answer_with_an_older_end() -> None:
    history = History()
    for offset, epoch in ((9, 4), (7, 3), (9, 4)):
        history.record("l", "invoke", "list_offsets", tp="t-0", at="latest")
        history.record("l", "ok", "list_offsets", offset=offset, epoch=epoch)
    assert invariants(history) == []
    history.record("l", "invoke", "list_offsets", tp="t-0", at="latest")
    history.record("l", "ok", "list_offsets", offset=7, epoch=4)
    assert invariants(history) == ["D6"]
