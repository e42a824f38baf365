"""A fetch stream: its requests to the leader, and the responses that it accepts."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

import pytest

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost
from lograft.broker.links.peers import Peers
from lograft.broker.partitions.replication_throttle import FOLLOWER_RATE, ReplicationThrottle
from lograft.broker.replicas.follower_partition import FollowerPartition
from lograft.broker.replicas.replica_fetcher import (
    IN_FLIGHT_MAX,
    Exchange,
    FetcherContext,
    ReplicaFetcher,
)
from lograft.broker.replicas.suspect_brokers import SuspectBrokers
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.types import FollowerFetch
from lograft.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.support.clocks import FakeClock
from tests.support.scenarios import scenario
from tests.unit.broker.bench import make_config

TOPIC = UUID(int=1)
SESSION = 77


class FakePeers:
    """Requests wait until the test responds to them, in order."""

    def __init__(self) -> None:
        self.sent: list[FetchRequest] = []
        self.open: list[Exchange] = []

    def send(
        self, to: Address, message: FetchRequest, version: int, asker: Exchange, **_: Any
    ) -> None:
        self.sent.append(message)
        self.open.append(asker)

    async def connect(self, to: Address, **_: Any) -> None:
        """The peer is connected."""

    def answer(self, *partitions: PartitionData, error: int = 0, session: int = SESSION) -> None:
        topics = [FetchableTopicResponse(topic_id=TOPIC, partitions=list(partitions))]
        self.open.pop(0).on_response(
            FetchResponse(
                error_code=error, session_id=session, responses=topics if partitions else []
            )
        )


class FakeRole:
    leader = NodeId(2)
    leader_epoch = Epoch(0)
    high_watermark = Offset(0)


class FakeFollowed:
    """A partition that fetches from `end` whenever it is `ready`."""

    def __init__(self, index: int) -> None:
        self.key = (TOPIC, index)
        self.role = FakeRole()
        self.end = 0
        self.ready = True
        self.is_disk_busy = False
        self.is_over = False
        self.is_throttled = False
        self.retry_at_ms = 0
        self.answers: list[tuple[int, int]] = []
        self.unanswered = 0
        self._asked: FollowerFetch | None = None

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        if not self.ready or self._asked is not None or now_ms < self.retry_at_ms:
            return None
        self._asked = FollowerFetch(
            NodeId(1), BrokerEpoch(5), Epoch(0), Offset(self.end), Epoch(0), Offset(0)
        )
        return self._asked

    def on_response(self, fetch: FollowerFetch, data: PartitionData, *, now_ms: int) -> None:
        assert fetch is self._asked, "an answer to something else"
        self._asked = None
        self.answers.append((fetch.offset, data.error_code))
        if data.records:
            self.end += 1

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        assert fetch is self._asked
        self._asked = None
        self.unanswered += 1
        self.retry_at_ms = now_ms + 20


class Bench:
    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.peers, self.clock = FakePeers(), FakeClock(now_ms=0)
        self.gone: list[NodeId] = []
        metadata = ClusterMetadata(make_config())
        self.fetcher = ReplicaFetcher(
            NodeId(2),
            FetcherContext(
                NodeId(1),
                self.clock,
                lambda work, *, name: tasks.create_task(work, name=name),
                cast(Peers, self.peers),
                metadata,
                lambda: BrokerEpoch(5),
                lambda _: Address("n2", 9092),
                ReplicationThrottle(FOLLOWER_RATE, metadata),
                self.gone.append,
                SuspectBrokers(self.clock),
            ),
        )

    def follow(self, index: int) -> FakeFollowed:
        followed = FakeFollowed(index)
        self.fetcher.follow(cast(FollowerPartition, followed))
        return followed

    def fetch_offsets(self, number: int) -> dict[int, int]:
        """Partitions and offsets in the request."""
        topics = self.peers.sent[number].topics
        return {each.partition: each.fetch_offset for topic in topics for each in topic.partitions}


def run(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def live() -> None:
        async with asyncio.TaskGroup() as tasks:
            bench = Bench(tasks)
            await scenario(bench)
            bench.fetcher.stop()

    asyncio.run(live())


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def data(index: int, *, records: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> PartitionData:
    return PartitionData(partition_index=index, error_code=error, records=records or None)


@scenario(run)
async def test_a_request_names_only_what_changed(bench: Bench, /) -> None:
    first, second = bench.follow(0), bench.follow(1)
    await turn()
    peers = bench.peers
    assert bench.fetch_offsets(0) == {0: 0, 1: 0}
    assert (peers.sent[0].session_id, peers.sent[0].session_epoch) == (0, 0)
    peers.answer(data(0, records=b"x"))
    await turn()
    assert bench.fetch_offsets(1) == {0: 1}
    assert (peers.sent[1].session_id, peers.sent[1].session_epoch) == (SESSION, 1)
    # Updates without records are no reason for another request.
    peers.answer(data(1))
    await turn()
    assert bench.fetch_offsets(2) == {}
    assert peers.sent[2].session_epoch == 2
    assert (first.answers, second.answers) == ([(0, 0)], [(0, 0)])


@scenario(run)
async def test_what_is_not_ready_is_forgotten_and_interrupts_when_it_is(bench: Bench, /) -> None:
    first, second = bench.follow(0), bench.follow(1)
    await turn()
    first.ready = False
    bench.peers.answer(data(0, records=b"x"))
    await turn()
    assert bench.fetch_offsets(1) == {}
    assert [each.partitions for each in bench.peers.sent[1].forgotten_topics_data] == [[0]]
    first.ready = True
    bench.fetcher.consider(cast(FollowerPartition, first))
    await turn()
    # The poll for the other one is still parked first.
    assert bench.fetch_offsets(2) == {0: 1}
    assert len(bench.peers.open) == IN_FLIGHT_MAX
    three = bench.follow(2)
    await turn()
    assert len(bench.peers.sent) == 3
    bench.peers.answer()
    await turn()
    assert bench.fetch_offsets(3) == {2: 0}
    assert three.answers == second.answers == []


async def wait_for_request(bench: Bench, number: int) -> None:
    async with asyncio.timeout(5):
        while len(bench.peers.sent) <= number:
            await asyncio.sleep(0.005)


@scenario(run)
async def test_a_partition_whose_disk_is_busy_stays_in_the_session(bench: Bench, /) -> None:
    first = bench.follow(0)
    await turn()
    first.ready, first.is_disk_busy = False, True
    bench.peers.answer(data(0, records=b"x"))
    await turn()
    assert len(bench.peers.sent) == 1, "most flushes are done before the leader needs a sign"
    followed = cast(FollowerPartition, first)
    assert bench.fetcher.last_contact_ms(followed) == -1
    bench.clock.now_ms = 400
    bench.fetcher.consider(followed)
    await wait_for_request(bench, 1)
    assert (bench.fetch_offsets(1), bench.peers.sent[1].forgotten_topics_data) == ({}, [])
    bench.clock.now_ms = 900
    bench.peers.answer()
    assert bench.fetcher.last_contact_ms(followed) == 900
    # The flush completes while the next poll is parked.
    first.ready, first.is_disk_busy = True, False
    bench.fetcher.consider(followed)
    await wait_for_request(bench, 3)
    assert bench.fetch_offsets(3) == {0: 1}


@scenario(run)
async def test_an_empty_poll_goes_out_without_an_event_when_a_flush_takes_long(
    bench: Bench, /
) -> None:
    first = bench.follow(0)
    await turn()
    first.ready, first.is_disk_busy = False, True
    # Below a quarter of the fetch timeout, so that a timer must send the poll.
    bench.clock.now_ms = 300
    bench.peers.answer(data(0, records=b"x"))
    bench.clock.now_ms = 400
    await wait_for_request(bench, 1)
    assert bench.fetch_offsets(1) == {}


@scenario(run)
async def test_a_leader_that_is_none_any_more_is_not_heard(bench: Bench, /) -> None:
    first, second = bench.follow(0), bench.follow(1)
    await turn()
    first.ready, first.is_disk_busy = False, True
    bench.peers.answer(data(0, records=b"x"))
    bench.clock.now_ms = 100
    bench.peers.answer(data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert bench.fetcher.last_contact_ms(cast(FollowerPartition, first)) == -1
    assert bench.fetcher.last_contact_ms(cast(FollowerPartition, second)) == 100
    assert (first.answers, second.answers) == ([(0, 0)], [])
    await turn()
    bench.peers.answer()
    assert any(request.forgotten_topics_data for request in bench.peers.sent)


@scenario(run)
async def test_an_answer_counts_only_for_what_was_asked_by_then(bench: Bench, /) -> None:
    first, second = bench.follow(0), bench.follow(1)
    await turn()
    bench.peers.answer(data(0, records=b"x"), data(1, records=b"x"))
    await turn()
    assert bench.fetch_offsets(1) == {0: 1, 1: 1}
    # The leadership changes while the poll is parked.
    bench.fetcher.unfollow(cast(FollowerPartition, first))
    again = bench.follow(0)
    again.end = 1
    await turn()
    assert bench.fetch_offsets(2) == {0: 1}, "asked anew although it is the same"
    bench.peers.answer(data(0, error=ErrorCode.FENCED_LEADER_EPOCH))
    await turn()
    assert again.answers == []
    bench.peers.answer(data(0, records=b"x"))
    await turn()
    assert again.answers == [(1, 0)]
    assert len(second.answers) == 1


@scenario(run)
async def test_a_session_that_the_leader_lost_begins_anew_with_all(bench: Bench, /) -> None:
    bench.follow(0)
    bench.follow(1)
    await turn()
    bench.peers.answer(data(0, records=b"x"))
    await turn()
    bench.peers.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session=0)
    await turn()
    assert bench.fetch_offsets(2) == {0: 1, 1: 0}
    assert bench.peers.sent[2].session_epoch == 0


@scenario(run)
async def test_after_a_lost_connection_all_is_asked_again_later(bench: Bench, /) -> None:
    first = bench.follow(0)
    await turn()
    bench.peers.open.pop(0).on_failed(PeerLost("gone"))
    await turn()
    assert first.unanswered == 1
    assert len(bench.peers.sent) == 1
    bench.clock.now_ms = 20
    async with asyncio.timeout(5):
        while len(bench.peers.sent) == 1:
            await asyncio.sleep(0.005)
    assert bench.fetch_offsets(1) == {0: 0}
    assert bench.peers.sent[1].session_epoch == 0


@scenario(run)
async def test_the_next_request_leaves_with_the_answer(bench: Bench, /) -> None:
    bench.follow(0)
    await turn()
    bench.peers.answer(data(0, records=b"x"))
    assert bench.fetch_offsets(1) == {0: 1}


@scenario(run)
async def test_after_a_stop_nothing_is_asked_and_no_answer_counts(bench: Bench, /) -> None:
    first = bench.follow(0)
    await turn()
    bench.fetcher.stop()
    bench.peers.answer(data(0, records=b"x"))
    bench.follow(1)
    await turn()
    assert len(bench.peers.sent) == 1
    assert first.answers == []


def test_a_bug_in_the_handling_of_an_answer_ends_the_node() -> None:
    async def scenario(bench: Bench) -> None:
        first = bench.follow(0)
        await turn()
        first._asked = None
        bench.peers.answer(data(0, records=b"x"))
        await turn()

    with pytest.raises(ExceptionGroup) as ended:
        run(scenario)
    assert ended.group_contains(AssertionError, match="an answer to something else")
