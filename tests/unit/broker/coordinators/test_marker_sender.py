"""Sending markers: to several brokers, again after errors, and not for a replaced coordinator."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.marker_sender import ENDING, IN_FLIGHT_MAX, MarkerSender
from lograft.broker.errors import NotLeader, PeerLost
from lograft.broker.links.broker_link import BrokerLink
from lograft.coordination.errors import CoordinatorNotAvailable, NotCoordinator
from lograft.coordination.transaction import Transaction
from lograft.coordination.transaction_shard import WriteMarkers
from lograft.coordination.transaction_states import PREPARE_COMMIT
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import value_of
from lograft.model.types import NO_NODE, Epoch, NodeId, TopicPartition
from lograft.storage.errors import ProducerFenced
from lograft.storage.types import TransactionEnd
from lograft.wire.message import Message
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import make_config, new_machine

Written = tuple[int, int, str, int]
HERE = NodeId(3)


class Brokers(BrokerLink):
    """Records the requests; `codes` rejects them, `down` makes the broker unreachable."""

    def __init__(self) -> None:
        self.me = HERE
        self.requests: list[tuple[int, int]] = []
        self.written: list[Written] = []
        self.codes: dict[tuple[int, str, int], list[ErrorCode]] = {}
        self.down: set[int] = set()
        self.held: dict[int, asyncio.Event] = {}

    async def request(self, node_id: NodeId, message: Message, *args: Any, **more: Any) -> Any:
        assert isinstance(message, WriteTxnMarkersRequest)
        self.requests.append((node_id, len(message.markers)))
        if node_id in self.held:
            await self.held[node_id].wait()
        await asyncio.sleep(0.001)
        if node_id in self.down:
            raise PeerLost("gone")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self._write(
                                        node_id, marker.producer_id, topic.name, index
                                    ),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in message.markers
            ]
        )

    def _write(self, node_id: int, producer_id: int, topic: str, index: int) -> ErrorCode:
        codes = self.codes.get((node_id, topic, index))
        if codes:
            return codes.pop(0)
        self.written.append((node_id, producer_id, topic, index))
        return ErrorCode.NONE


class Coordinator:
    """Stands in for the runtime of the transaction coordinators."""

    def __init__(self) -> None:
        self.epoch = 5
        self.ended: list[list[str]] = []
        self.failures = 0
        self.refusal: type[LograftError] = CoordinatorNotAvailable

    def leads(self, index: int, epoch: Epoch) -> bool:
        return epoch == self.epoch

    def partition_of(self, key: str) -> int:
        return len(key) % 2

    def ask_partition(self, index: int, decide: Callable[[Any, None, int], None]) -> None:
        if self.failures:
            self.failures -= 1
            raise self.refusal("not now")
        decide(self, None, 0)

    def markers_written(self, ticket: None, ended: list[WriteMarkers]) -> None:
        self.ended.append([each.transactional_id for each in ended])


class StandInPartition:
    """Led by this broker; `commits` is set when all records are replicated."""

    topic_partition = "t-0"
    leader_epoch = 1

    def __init__(self) -> None:
        self.ends: list[TransactionEnd] = []
        self.refusals: list[LograftError] = []
        self.commits = asyncio.Event()
        self.commits.set()
        self.loses_leadership = False

    def is_acknowledged(self, end: int, *, acks_all: bool) -> bool:
        return acks_all and self.commits.is_set()

    async def wait_committed(self, end: int, *, timeout_ms: int, leader_epoch: int) -> None:
        assert (end, leader_epoch) == (len(self.ends), 1)
        await self.commits.wait()
        if self.loses_leadership:
            self.loses_leadership = False
            raise NotLeader("gone")


class World:
    def __init__(self) -> None:
        self.machine = new_machine()
        self.life = self.machine.boot()
        metadata = ClusterMetadata(make_config())
        self.image = metadata.image
        self.brokers = Brokers()
        self.coordinator = Coordinator()
        self.logs: dict[TopicPartition, StandInPartition] = {}
        self.sender = MarkerSender(
            self.life.runtime,
            self.brokers,
            append_here=self._append,  # type: ignore[arg-type]
            metadata=metadata,
        )
        self.sender.transactions = self.coordinator  # type: ignore[assignment]

    def _append(self, where: TopicPartition, end: TransactionEnd) -> "tuple[StandInPartition, int]":
        log = self.logs.setdefault(where, StandInPartition())
        if log.refusals:
            raise log.refusals.pop(0)
        log.ends.append(end)
        return log, len(log.ends)

    def lead(self, topic: str, index: int, leader: int, *, is_new: bool = True) -> None:
        topic_id = UUID(int=len(topic))
        records: list[Message] = []
        if topic not in self.image.topic_ids:
            records.append(TopicRecord(name=topic, topic_id=topic_id))
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=leader,
                leader_epoch=self.image.offset + 1,
                partition_epoch=self.image.offset + 1,
                directories=[UUID(int=9)] * 2,
            )
        )
        self.image.apply(records, offset=self.image.offset + 1, epoch=1)  # type: ignore[arg-type]

    def end(self, name: str, producer_id: int, partitions: dict[str, tuple[int, ...]]) -> None:
        transaction = Transaction(
            state=PREPARE_COMMIT,
            producer_id=producer_id,
            epoch=3,
            timeout_ms=1000,
            updated_ms=0,
            partitions=partitions,
        )
        self.sender.on_effect(WriteMarkers(name, transaction, Epoch(5)))

    def play(self, scenario: Callable[["World"], Any]) -> None:
        self.machine.loop.run_until_complete(self.life.run(scenario(self), name="test"))
        assert not self.life.failures, self.life.failures


async def ended(world: World, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while sum(map(len, world.coordinator.ended)) < count:
            await asyncio.sleep(0.001)


def world_of(**leaders: int) -> World:
    """t0=1: partition t-0 is led by broker 1."""
    world = World()
    for name, leader in leaders.items():
        world.lead(name[:-1], int(name[-1]), leader)
    return world


def play(scenario: Callable[[World], Any], **leaders: int) -> None:
    world_of(**leaders).play(scenario)


@scenario(play, t0=1, t1=2, uu0=1)
async def test_each_broker_gets_what_it_leads(world: World, /) -> None:
    world.end("x", 7, {"t": (0, 1), "uu": (0,)})
    await ended(world)
    assert sorted(world.brokers.written) == [
        (1, 7, "t", 0),
        (1, 7, "uu", 0),
        (2, 7, "t", 1),
    ]
    assert world.brokers.requests == [(1, 1), (2, 1)]


@scenario(play, t0=1)
async def test_many_transactions_share_a_request_and_a_batch(world: World, /) -> None:
    for number in range(20):
        world.end("x" * (number + 1), number, {"t": (0,)})
    await ended(world, 20)
    assert world.brokers.requests == [(1, 20)]
    assert len(world.coordinator.ended) == 2, "one batch for each partition"


@scenario(play, t0=1, t1=1)
async def test_refused_ones_go_to_the_new_leader(world: World, /) -> None:
    world.brokers.codes[1, "t", 0] = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.end("x", 7, {"t": (0, 1)})
    await asyncio.sleep(0.01)
    assert world.coordinator.ended == []
    world.lead("t", 0, 2)
    await ended(world)
    assert world.brokers.written == [(1, 7, "t", 1), (2, 7, "t", 0)]


@scenario(play, t0=1)
async def test_a_broker_that_is_lost_is_asked_again(world: World, /) -> None:
    world.brokers.down.add(1)
    world.end("x", 7, {"t": (0,)})
    await asyncio.sleep(1)
    assert world.coordinator.ended == []
    world.brokers.down.clear()
    await ended(world)
    assert world.brokers.written == [(1, 7, "t", 0)]


@scenario(play, t0=NO_NODE)
async def test_without_a_leader_it_waits(world: World, /) -> None:
    world.end("x", 7, {"t": (0,)})
    await asyncio.sleep(1)
    assert world.brokers.requests == []
    world.lead("t", 0, 2)
    await ended(world)


@scenario(play, t0=1)
async def test_partitions_that_are_gone_need_no_marker(world: World, /) -> None:
    world.end("x", 7, {"gone": (0,), "t": (9,)})
    await ended(world)
    assert world.brokers.requests == []


@scenario(play, t0=1)
async def test_an_epoch_that_is_over_needs_no_marker(world: World, /) -> None:
    world.brokers.codes[1, "t", 0] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    world.end("x", 7, {"t": (0,)})
    await ended(world)
    assert world.brokers.written == []


@scenario(play, t0=1)
async def test_nothing_is_sent_for_a_coordinator_that_was_replaced(world: World, /) -> None:
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    world.brokers.codes[1, "t", 0] = [fenced, fenced]
    world.end("x", 7, {"t": (0,)})
    await asyncio.sleep(0.01)
    world.coordinator.epoch += 1
    await asyncio.sleep(1)
    assert len(world.brokers.requests) == 1
    assert world.coordinator.ended == []
    assert value_of(world.sender, ENDING) == 0


@pytest.mark.parametrize("refusal", [CoordinatorNotAvailable, NotCoordinator])
@scenario(play, t0=1)
async def test_books_that_cannot_be_closed_now_are_closed_later(
    world: World, /, refusal: type[LograftError]
) -> None:
    """Also if no heartbeat has reached the controller for a while: the leadership may continue."""
    world.coordinator.failures = 3
    world.coordinator.refusal = refusal
    world.end("x", 7, {"t": (0,)})
    await ended(world)
    assert world.brokers.written == [(1, 7, "t", 0)], "the markers are not written again"


@scenario(play, t0=1, t1=2)
async def test_a_slow_broker_holds_up_nobody_else(world: World, /) -> None:
    world.brokers.held[2] = asyncio.Event()
    for number in range(IN_FLIGHT_MAX + 3):
        world.end(f"slow {number}", number, {"t": (1,)})
        await asyncio.sleep(0.001)
    assert len(world.brokers.requests) == IN_FLIGHT_MAX
    world.end("fast", 77, {"t": (0,)})
    await ended(world)
    assert world.coordinator.ended == [["fast"]]
    world.brokers.held[2].set()
    await ended(world, IN_FLIGHT_MAX + 4)
    assert world.brokers.requests[-1] == (2, 3), "what has gathered goes together"


T0 = TopicPartition("t", 0)


@scenario(play, t0=HERE)
async def test_this_brokers_partitions_have_it_at_once(world: World, /) -> None:
    for number in range(5):
        world.end(f"x{number}", number, {"t": (0,)})
    await asyncio.sleep(0)
    assert [end.producer_id for end in world.logs[T0].ends] == [0, 1, 2, 3, 4]
    assert world.coordinator.ended == [[f"x{number}" for number in range(5)]]
    assert world.logs[T0].ends[0] == TransactionEnd(0, 3, True, 5, 0)
    assert world.brokers.requests == []


@scenario(play, t0=HERE, t1=1)
async def test_this_brokers_partitions_are_waited_for(world: World, /) -> None:
    log = world.logs[T0] = StandInPartition()
    log.commits.clear()
    world.end("x", 7, {"t": (0,)})
    world.end("y", 8, {"t": (0, 1)})
    await asyncio.sleep(1)
    assert world.coordinator.ended == []
    log.commits.set()
    await ended(world, 2)
    assert len(log.ends) == 2


@scenario(play, t0=HERE)
async def test_what_this_broker_loses_goes_to_the_next_leader(world: World, /) -> None:
    log = world.logs[T0] = StandInPartition()
    log.commits.clear()
    log.loses_leadership = True
    world.end("x", 7, {"t": (0,)})
    await asyncio.sleep(0.01)
    world.lead("t", 0, 2)
    log.commits.set()
    await ended(world)
    assert world.brokers.written == [(2, 7, "t", 0)]


@scenario(play, t0=HERE)
async def test_what_this_broker_refuses(world: World, /) -> None:
    log = world.logs[T0] = StandInPartition()
    log.refusals = [NotLeader("not yet"), ProducerFenced("a later epoch")]
    world.end("x", 7, {"t": (0,)})
    await ended(world)
    assert (log.ends, log.refusals) == ([], [])
