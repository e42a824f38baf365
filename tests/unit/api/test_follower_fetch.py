"""Responses of a leader to its followers, and when they are sent."""

import asyncio

from lograft.broker.replicas.follower_sessions import SESSIONS, SESSIONS_PER_NODE_MAX
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.model.types import NodeId
from lograft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader

VERSION = 17


def followed_by(bench: Bench, topic: str = "a") -> None:
    """Adds a replica on broker 2 to the partition's assignment."""
    partition = bench.partition(topic)
    before = partition.assignment
    partition.on_assignment(
        before._replace(replicas=(NodeId(1), NodeId(2)), partition_epoch=before.partition_epoch + 1)
    )


class Follower:
    def __init__(self, bench: Bench, node: int = 2) -> None:
        self.bench = bench
        self.node = node
        self.session = (0, 0)

    async def poll(
        self,
        offset: int | None = None,
        *,
        topic: str = "a",
        epoch: int = 0,
        last_epoch: int = -1,
        max_wait_ms: int = 0,
        forget: bool = False,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> FetchResponse:
        topic_id = self.bench.topic_id(topic)
        asked = []
        if offset is not None:
            asked = [
                FetchPartition(
                    partition=0,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=last_epoch,
                    log_start_offset=0,
                    partition_max_bytes=1 << 20,
                )
            ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.node, replica_epoch=-1),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[FetchTopic(topic_id=topic_id, partitions=asked)] if asked else [],
            forgotten_topics_data=(
                [ForgottenTopic(topic_id=topic_id, partitions=[0])] if forget else []
            ),
        )
        if self.session[1] > 0 or self.session[0] == 0:
            self.session = (self.session[0], self.session[1] + 1)
        response = await self.bench.ask(request, VERSION, FetchResponse)
        self.session = (response.session_id, max(1, self.session[1]))
        return response

    async def fetch(
        self,
        offset: int | None = None,
        *,
        epoch: int = 0,
        last_epoch: int = -1,
        max_wait_ms: int = 0,
        forget: bool = False,
    ) -> PartitionData | None:
        response = await self.poll(
            offset, epoch=epoch, last_epoch=last_epoch, max_wait_ms=max_wait_ms, forget=forget
        )
        assert response.error_code == 0
        results = [data for topic in response.responses for data in topic.partitions]
        assert len(results) <= 1
        return results[0] if results else None


def append(bench: Bench, *values: bytes, topic: str = "a") -> None:
    partition = bench.partition(topic)
    partition.append(memoryview(bytearray(batch_of(*values))), now_ms=1_767_225_600_000)


@scenario(run)
async def test_records_are_sent_once_until_the_follower_fetches_them_again(bench: Bench, /) -> None:
    await bench.create_topic("a")
    followed_by(bench)
    append(bench, b"x", b"y")
    follower = Follower(bench)
    first = await follower.fetch(0)
    assert first is not None
    assert first.records
    assert await follower.fetch() is None, "the same bytes are not sent twice"
    second = await follower.fetch(2, last_epoch=0)
    assert second is None
    append(bench, b"z")
    third = await follower.fetch()
    assert third is not None
    assert third.records


@scenario(run)
async def test_fetch_waits_for_an_append_or_max_wait_ms(bench: Bench, /) -> None:
    await bench.create_topic("a")
    followed_by(bench)
    follower, clock = Follower(bench), bench.broker.clock
    assert await follower.fetch(0) is None
    begin_ms = clock.mono_ms()
    assert await follower.fetch(max_wait_ms=500) is None
    assert 500 <= clock.mono_ms() - begin_ms <= 510
    poll = asyncio.ensure_future(follower.fetch(max_wait_ms=5_000))
    await asyncio.sleep(0.1)
    append(bench, b"x")
    response = await poll
    assert response is not None
    assert response.records
    assert clock.mono_ms() - begin_ms < 1_000


@scenario(run)
async def test_next_request_ends_the_wait_of_the_previous_one(bench: Bench, /) -> None:
    await bench.create_topic("a")
    await bench.create_topic("b")
    followed_by(bench)
    followed_by(bench, "b")
    append(bench, b"x", topic="b")
    follower, clock = Follower(bench), bench.broker.clock
    assert await follower.fetch(0) is None
    begin_ms = clock.mono_ms()
    parked = asyncio.ensure_future(follower.poll(max_wait_ms=30_000))
    await asyncio.sleep(0.1)
    following = await follower.poll(0, topic="b", max_wait_ms=30_000)
    assert following.responses[0].partitions[0].records
    assert not (await parked).responses
    assert clock.mono_ms() - begin_ms < 1_000


@scenario(run)
async def test_divergence_and_wrong_epochs_are_reported_immediately(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    append(bench, b"x", b"y")
    set_leader(partition, 1, epoch=3)
    followed_by(bench)
    append(bench, b"z")
    wait_ms = 30_000
    parts = await Follower(bench).fetch(3, epoch=3, last_epoch=2, max_wait_ms=wait_ms)
    assert parts is not None
    assert parts.diverging_epoch is not None
    assert (parts.diverging_epoch.epoch, parts.diverging_epoch.end_offset) == (0, 2)
    assert not parts.records
    for epoch, code in (
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        response = await Follower(bench).fetch(0, epoch=epoch, max_wait_ms=wait_ms)
        assert response is not None
        assert response.error_code == code
    stranger = await Follower(bench, node=9).fetch(0, epoch=3, max_wait_ms=wait_ms)
    assert stranger is not None
    assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    beyond = await Follower(bench).fetch(9, epoch=3, max_wait_ms=wait_ms)
    assert beyond is not None
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario(run)
async def test_leader_change_completes_a_waiting_fetch(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    followed_by(bench)
    follower = Follower(bench)
    assert await follower.fetch(0) is None
    poll = asyncio.ensure_future(follower.fetch(max_wait_ms=30_000))
    await asyncio.sleep(0.1)
    set_leader(partition, 2, epoch=1)
    response = await poll
    assert response is not None
    assert response.error_code == ErrorCode.FENCED_LEADER_EPOCH
    # An error is also reported only once.
    assert await follower.fetch() is None


@scenario(run)
async def test_forgotten_partitions_are_not_returned(bench: Bench, /) -> None:
    await bench.create_topic("a")
    followed_by(bench)
    follower = Follower(bench)
    assert await follower.fetch(0) is None
    assert await follower.fetch(forget=True) is None
    append(bench, b"x")
    assert await follower.fetch() is None
    assert not bench.partition("a").watchers


@scenario(run)
async def test_unknown_session_is_rejected_and_reopened(bench: Bench, /) -> None:
    await bench.create_topic("a")
    followed_by(bench)
    follower = Follower(bench)
    await follower.fetch(0)
    session = follower.session
    follower.session = (session[0] + 1, 1)
    response = await follower.poll()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    follower.session = (session[0], 7)
    response = await follower.poll()
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # Another broker cannot continue the session.
    other = Follower(bench, node=3)
    other.session = session
    response = await other.poll()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@scenario(run)
async def test_number_of_sessions_per_follower_is_limited(bench: Bench, /) -> None:
    await bench.create_topic("a")
    followed_by(bench)
    oldest = Follower(bench)
    await oldest.fetch(0)
    for _ in range(SESSIONS_PER_NODE_MAX):
        await Follower(bench).fetch(0)
    assert value_of(bench.broker.follower_sessions, SESSIONS) == SESSIONS_PER_NODE_MAX
    assert len(bench.partition("a").watchers) == SESSIONS_PER_NODE_MAX
    response = await oldest.poll()
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@scenario(run)
async def test_records_beyond_the_size_limit_are_in_the_next_response(bench: Bench, /) -> None:
    follower, clock = Follower(bench), bench.broker.clock
    for name in ("a", "b"):
        await bench.create_topic(name)
        followed_by(bench, name)
        assert not (await follower.poll(0, topic=name)).responses
    for name in ("a", "b"):
        append(bench, b"x" * 1000, topic=name)
    begin_ms = clock.mono_ms()
    served = []
    for _ in range(2):
        # The request allows more bytes than one response has: it is sent as soon as it is full.
        response = await follower.poll(max_bytes=500, min_bytes=1 << 20, max_wait_ms=30_000)
        served += [topic.topic_id for topic in response.responses if topic.partitions[0].records]
    assert served == [bench.topic_id("a"), bench.topic_id("b")]
    assert clock.mono_ms() - begin_ms < 31_000
