"""Tests that every check of the watches and of a cluster's history detects its violation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from campaigns.cluster_checks import check_cluster
from campaigns.log_matching import find_log_differences, find_replay_differences
from campaigns.partition_watch import PartitionWatch, state_problems
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
    """Three healthy nodes, to which tests apply violations."""

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
                is_up=True, has_disk_failed=False, machine=SimpleNamespace(platter=Platter()),
                config=SimpleNamespace(
                    topic_defaults=SimpleNamespace(min_insync_replicas=1)
                ),
            )  # fmt: skip
        for host in self.hosts.values():
            for path in (DATA, f"{DATA}/t-0"):
                parent, _, name = path.rpartition("/")
                host.machine.platter.folder(parent).change(Link(name, FolderNode(0)))
        self.violations: list[tuple[str, str]] = []
        cluster: Any = self
        self.quorum = QuorumWatch(cluster, self.report_violation, voters=3)
        self.watch = PartitionWatch(cluster, self.quorum, self.report_violation)

    def report_violation(self, invariant: str, message: str) -> None:
        self.violations.append((invariant, message))

    def broker(self, node_id: int) -> Any:
        return self.hosts[node_id].node._broker

    def inspect(self) -> list[str]:
        self.quorum.inspect()
        self.watch.inspect()
        self.watch.check_folders()
        return [invariant for invariant, _ in self.violations]


def make_two_quorum_leaders(world: World) -> None:
    world.cores[2].is_leader = True
    world.cores[2].role = "leader"


def make_different_leader_known(world: World) -> None:
    world.cores[2].leader = 3


def revert_epoch(world: World) -> None:
    world.cores[2]._on_disk = HardState(Epoch(2), NodeId(1), None)


def revert_quorum_watermark(world: World) -> None:
    world.cores[2].high_watermark = 9


def commit_metadata_on_one_disk(world: World) -> None:
    world.cores[1].high_watermark = 15
    world.logs[1].durable_offset = 15


def revert_image(world: World) -> None:
    world.images[3].offset = Offset(4)


def change_image_epoch(world: World) -> None:
    world.images[3].offset = Offset(12)
    world.inspect()
    world.images[2].offset = Offset(12)
    world.images[2].epoch = Epoch(2)


def change_image_content(world: World) -> None:
    for i in (2, 3):
        world.images[i].offset = Offset(12)
    world.images[3].producer_ids_next = 99


def replace_two_voters(world: World) -> None:
    voters = VoterSet(tuple(Voter(key, ()) for key in (KEYS[0], KEYS[3], ReplicaKey(NodeId(9)))))
    for i in (1, 2, 3):
        world.logs[i].durable_offset = 20
        world.broker(i).quorum.quorum.voters = voters
    world.cores[1].high_watermark = 20


def raise_watermark_above_the_end(world: World) -> None:
    world.partitions[2].high_watermark = 11


def revert_replica_watermark(world: World) -> None:
    world.partitions[2].high_watermark = world.partitions[2].last_stable_offset = 8


def revert_leader_stable_offset(world: World) -> None:
    world.partitions[1].last_stable_offset = 7
    world.partitions[1].log.durable_offset = 9


def make_two_partition_leaders(world: World) -> None:
    world.partitions[2].leader = SimpleNamespace(leader_epoch=4)


def commit_on_one_replica(world: World) -> None:
    partition = world.partitions[1]
    partition.log.end_offset = partition.high_watermark = partition.last_stable_offset = 12


def commit_without_fsync(world: World) -> None:
    for i in (1, 2, 3):
        world.partitions[i].flush_before_ack = True
        world.partitions[i].log.end_offset = 12
    world.partitions[1].high_watermark = world.partitions[1].last_stable_offset = 12


def commit_without_isr_member(world: World) -> None:
    # 1 and 2 commit records that 3 does not have, although 3 is in the ISR.
    for i in (1, 2):
        world.partitions[i].log.end_offset = 12
        world.partitions[i].high_watermark = world.partitions[i].last_stable_offset = 12


def delete_folder(world: World) -> None:
    world.hosts[2].machine.platter.folder(DATA).change(Unlink("t-0"))


def recreate_folder(world: World) -> None:
    world.hosts[2].machine.platter.folder(DATA).change(Link("t-0", FolderNode(0)))


@pytest.mark.parametrize(
    ("invariant", "violate"),
    [
        ("M8", delete_folder),
        ("M8", recreate_folder),
        ("M1", make_two_quorum_leaders),
        ("M1", make_different_leader_known),
        ("M2", revert_epoch),
        ("M3", revert_quorum_watermark),
        ("M3", commit_metadata_on_one_disk),
        ("M5", revert_image),
        ("M3", change_image_epoch),
        ("M4", change_image_content),
        ("M9", replace_two_voters),
        ("D6", raise_watermark_above_the_end),
        ("D6", revert_replica_watermark),
        ("D6", revert_leader_stable_offset),
        ("M1", make_two_partition_leaders),
        ("D8", commit_on_one_replica),
        ("D8", commit_without_fsync),
        ("M6", commit_without_isr_member),
    ],
)
def test_watches_detect_the_violation(invariant: str, violate: Callable[[World], None]) -> None:
    world = World()
    assert world.inspect() == []
    violate(world)
    assert invariant in world.inspect(), world.violations


def test_isr_that_only_a_controller_knows_yet_counts() -> None:
    world = World()
    assert world.inspect() == []
    commit_without_isr_member(world)
    broker = world.hosts[3]
    shared = SimpleNamespace(
        quorum=broker.node._shared.quorum, image=image_of(state(isr=(1, 2)), offset=11)
    )
    node = SimpleNamespace(_broker=None, _shared=shared)
    world.hosts[4] = SimpleNamespace(**{**vars(broker), "name": "n4", "node": node})
    assert world.inspect() == []


def test_reassigned_replica_may_be_deleted() -> None:
    world = World()
    assert world.inspect() == []
    for i in (1, 2, 3):
        world.broker(i).image = image_of(state(replicas=(1, 3), isr=(1, 3)), offset=11)
    world.inspect()
    delete_folder(world)
    assert world.inspect() == []


def test_second_vote_in_an_epoch_is_detected() -> None:
    world = World()
    world.cores[2]._on_disk = HardState(Epoch(4), NodeId(-1), KEYS[2])
    world.cores[2].epoch, world.cores[2].leader = 4, -1
    assert world.inspect() == []
    # After the leader is known, the vote need not be kept.
    world.cores[2]._on_disk = HardState(Epoch(4), NodeId(3), None)
    assert world.inspect() == []
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), KEYS[2])
    world.inspect()
    # A static quorum persists only the node ID of the vote.
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), ReplicaKey(KEYS[2].node_id))
    assert world.inspect() == []
    world.cores[2]._on_disk = HardState(Epoch(5), NodeId(-1), KEYS[1])
    assert world.inspect() == ["M2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"isr": (1, 4)},
        {"elr": (2,), "isr": (1, 2)},
        {"elr": (3,), "isr": (1, 2)},
        {"leader": 3, "isr": (1, 2)},
    ],
)
def test_inconsistent_partition_state_is_detected(changes: dict[str, Any]) -> None:
    assert state_problems(state(), image_of(state()), minimum=2) == []
    assert state_problems(state(**changes), image_of(state()), minimum=2) != []


def test_fenced_isr_member_is_detected() -> None:
    assert state_problems(state(), image_of(state(), fenced=2), minimum=2) != []
    alone = state(isr=(2,), leader=-1)
    assert state_problems(alone, image_of(alone, fenced=2), minimum=2) == []


@pytest.mark.parametrize(("kind", "end", "violations"), [
    ("kill", 10, []), ("kill", 9, ["D9"]), ("power", 6, []), ("power", 5, ["D9"]),
])  # fmt: skip
def test_restart_must_recover_durable_records(kind: str, end: int, violations: list[str]) -> None:
    world = World()
    world.partitions[2].log.durable_offset = 6
    assert world.inspect() == []
    world.watch.on_process_end(2, kind)
    world.watch.on_recovered(2, "t-0", end)
    assert [invariant for invariant, _ in world.violations] == violations


def test_atlas_protects_the_last_complete_replica() -> None:
    world = World()
    world.inspect()
    assert world.watch.survives_loss_of(1)
    world.watch.on_process_end(2, "power")
    world.hosts[2].is_up = False
    assert world.watch.survives_loss_of(1)
    # A kill loses no records, but counts as a loss until 3 has caught up.
    world.watch.on_process_end(3, "kill")
    world.hosts[3].is_up = False
    assert not world.watch.survives_loss_of(1)


def test_logs_that_differ_below_the_watermark_are_detected() -> None:
    world = World()
    batch = build_batch([Record(i, 0, None, b"x") for i in range(10)], leader_epoch=4)
    other = build_batch([Record(i, 0, None, b"x") for i in range(10)], leader_epoch=3)
    cluster: Any = world
    for i in (1, 2, 3):
        world.partitions[i].log.data = world.logs[i].data = bytes(batch)
    assert list(find_log_differences(cluster)) == []
    world.partitions[2].log.data = bytes(other)
    assert len(list(find_log_differences(cluster))) == 1


def test_compacted_logs_need_only_agree_on_common_records() -> None:
    world = World()
    cluster: Any = world

    def batch(**values: bytes) -> bytes:
        records = [Record(int(n[1:]), 0, b"k", value) for n, value in values.items()]
        return bytes(build_batch(records, leader_epoch=4))

    for i in (1, 2, 3):
        world.partitions[i].config.cleanup_compact = True
        world.partitions[i].log.data = batch(_0=b"a", _1=b"b", _9=b"c")
    world.partitions[2].log.data = batch(_0=b"a", _9=b"c")
    assert list(find_log_differences(cluster)) == []
    world.partitions[2].log.data = batch(_0=b"a", _9=b"other")
    assert len(list(find_log_differences(cluster))) == 1


def test_producer_state_that_differs_from_a_replay_is_detected() -> None:
    world = World()
    cluster: Any = world
    log = open_log(MemoryDisk())
    for sequence in range(3):
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    for i in (1, 2, 3):
        partition: Any = world.partitions[i]
        partition.log = log
    assert list(find_replay_differences(cluster)) == []
    log.producers.clear()
    assert len(list(find_replay_differences(cluster))) == 3


@pytest.mark.parametrize("change", ["truncation", "mode switch"])
def test_producer_state_is_compared_after_truncations_and_mode_switches(change: str) -> None:
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
    world.watch.inspect()
    assert world.violations == []
    log.producers.clear()
    world.watch.inspect()
    assert world.violations == [], "there was no truncation or mode switch"
    if change == "truncation":
        log.truncations += 1
    else:
        partition.assignment = partition.assignment._replace(mode=ReplicationMode.RAFT)
    world.watch.inspect()
    assert [invariant for invariant, _ in world.violations] == ["D9"]


def test_closed_log_is_not_compared() -> None:
    world = World()
    log = open_log(MemoryDisk())
    batch = make_batch([b"v"] * 10, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    partition: Any = world.partitions[2]
    partition.log = log
    log.close(clean=True)
    world.watch.inspect()
    assert world.violations == []


def test_last_value_of_a_key_must_survive_compaction() -> None:
    history = History()
    record_send(history, "p1-1", "ok", offset=3, key="1")
    record_send(history, "p2-1", "ok", offset=5, key="1")
    record_final(history, (5, "p2-1"))
    assert invariants(history) == []
    # A later value with unknown outcome is valid, too.
    history = History()
    record_send(history, "p1-1", "ok", offset=3, key="1")
    record_send(history, "p2-1", "info", key="1")
    record_final(history, (5, "p2-1"))
    assert invariants(history) == []
    history = History()
    record_send(history, "p1-1", "ok", offset=3, key="1")
    record_send(history, "p2-1", "ok", offset=5, key="1")
    record_final(history, (3, "p1-1"))
    assert invariants(history) == ["D11"]


def record_send(history: History, uid: str, end: str, **v: Any) -> None:
    arguments = {"tp": "t-0", "uid": uid, "acks": -1}
    arguments |= {name: v.pop(name) for name in ("pid", "seq", "weak", "key") if name in v}
    history.record(uid, "invoke", "send", **arguments)
    history.record(uid, end, "send", **v)  # type: ignore[arg-type]


def record_final(history: History, *records: tuple[int, str]) -> None:
    history.record("final", "invoke", "final", tp="t-0", offset=0)
    history.record(
        "final", "ok", "final", records=list(records), hw=99, log_start=0, bad_crc=0
    )  # fmt: skip


def invariants(history: History) -> list[str]:
    return [violation.invariant for violation in check_cluster(history)]


def test_weak_send_is_not_binding() -> None:
    history = History()
    record_send(history, "p1-1", "ok", offset=0, weak=True)
    record_send(history, "p2-1", "ok", offset=0)
    record_final(history, (0, "p2-1"))
    assert invariants(history) == []
    record_send(history, "p3-1", "ok", offset=1)
    assert invariants(history) == ["D1"]


@pytest.mark.parametrize("result", [{"diverging": True}, {"error": 1}])
def test_consumed_records_must_not_be_lost(result: dict[str, Any]) -> None:
    history = History()
    history.record("c1", "invoke", "poll", tp="t-0", offset=5)
    history.record("c1", "fail", "poll", **result)
    assert invariants(history) == ["D3"]


def test_deleted_records_may_be_out_of_range() -> None:
    history = History()
    history.record("d", "invoke", "delete", tp="t-0", before=6)
    history.record("d", "ok", "delete", log_start=6)
    history.record("c1", "invoke", "poll", tp="t-0", offset=5)
    history.record("c1", "fail", "poll", error=1)
    assert invariants(history) == []


def test_next_sequence_must_not_be_rejected() -> None:
    history = History()
    record_send(history, "p1-1", "fail", error=45, is_first=False, pid=1, seq=0)
    assert invariants(history) == []
    record_send(history, "p1-2", "fail", error=45, is_first=True, pid=1, seq=1)
    assert invariants(history) == ["P3"]


def test_producer_id_must_have_one_owner() -> None:
    history = History()
    record_send(history, "p1-1", "info", pid=1, seq=0)
    record_send(history, "p2-1", "info", pid=1, seq=0)
    assert invariants(history) == ["P4"]


def test_deposed_leader_may_return_an_older_offset() -> None:
    history = History()
    for offset, epoch in ((9, 4), (7, 3), (9, 4)):
        history.record("l", "invoke", "list_offsets", tp="t-0", at="latest")
        history.record("l", "ok", "list_offsets", offset=offset, epoch=epoch)
    assert invariants(history) == []
    history.record("l", "invoke", "list_offsets", tp="t-0", at="latest")
    history.record("l", "ok", "list_offsets", offset=7, epoch=4)
    assert invariants(history) == ["D6"]
