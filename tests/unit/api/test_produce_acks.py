"""Acknowledgements that wait, on both paths: the second request of a client takes the fast one."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import pytest

from lograft.api.router import Router, Session
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.exchange import DelayedReply, PendingReply, Reply
from lograft.model.seams import Channel
from lograft.wire.apis import PRODUCE_KEY, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import LISTENER, Bench, Peer, batch_of, decoded, fast_paths_of, run
from tests.unit.broker.replicas.replica_bench import Cluster, run_cluster

VERSION: Final = 10


def frame_of(topic: str = "a", *, timeout_ms: int = 5_000, acks: int = -1) -> memoryview:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=0, records=batch_of(b"v"))],
            )
        ],
    )
    return memoryview(
        bytearray(frame_request(request, VERSION, correlation_id=7, client_id="client")[4:])
    )


def read(data: bytes) -> ProduceResponse:
    _, position = read_response_header(data[4:], response_header_version(PRODUCE_KEY, VERSION))
    return read_all(ProduceResponse, VERSION, data[4:], position)


async def response_of(reply: Reply) -> ProduceResponse:
    reply_done = decoded(reply)
    if isinstance(reply_done, PendingReply):
        reply_done = await reply_done.response
    assert reply_done is not None
    assert not isinstance(reply_done, PendingReply)
    return read(b"".join(cast(tuple[bytes, ...], reply_done.parts)))


def only(response: ProduceResponse) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]


async def learned(cluster: Cluster, *, timeout_ms: int = 5_000) -> Session:
    """Returns a connection whose next request takes the fast path."""
    broker = cluster.nodes[1].broker
    session = Router(broker.shared, broker, listener=LISTENER)(cast(Channel, Peer()))
    first = session.handle_frame(frame_of(timeout_ms=timeout_ms))
    assert not isinstance(first, DelayedReply)
    assert only(await response_of(first)).error_code == 0
    return session


def waits_of(partition: Partition) -> int:
    return len(partition.acks_of(acks_all=True).waits)


def parked(session: Session, frame: memoryview) -> DelayedReply:
    reply = session.handle_frame(frame)
    assert isinstance(reply, DelayedReply)
    return reply


@scenario(run_cluster)
async def test_response_is_sent_when_followers_have_the_records(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    session = await learned(cluster)
    acks = [parked(session, frame_of()) for _ in range(3)]
    responses = await asyncio.gather(*(response_of(ack) for ack in acks))
    assert [only(response).base_offset for response in responses] == [1, 2, 3]
    assert leader.high_watermark == 4
    assert not waits_of(leader)


@scenario(run_cluster, replica_lag_time_max_ms="30000")
async def test_slow_followers_cause_a_timeout(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    session = await learned(cluster, timeout_ms=100)
    cluster.kill(2)
    response = only(await response_of(parked(session, frame_of(timeout_ms=100))))
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert response.error_message == "not committed within 100 ms"
    assert response.base_offset == -1
    assert not waits_of(leader)


def lose_leadership(cluster: Cluster) -> None:
    state = cluster.state("a")
    topic = cluster.controller.image.topic("a")
    assert topic is not None
    cluster.controller.append(
        (PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=3),)
    )
    assert cluster.state("a").leader != state.leader


def lose_followers(cluster: Cluster) -> None:
    cluster.kill(3)
    for number in (2, 3):
        cluster.fence(number)


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (lose_leadership, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lose_followers, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
@scenario(run_cluster, replica_lag_time_max_ms="30000")
async def test_fast_and_general_path_return_the_same_errors(
    cluster: Cluster, /, happens: Callable[[Cluster], None], code: ErrorCode
) -> None:
    cluster.create_topic("a", 1, 2, 3, min_insync_replicas="2")
    leader = await cluster.until_led("a")
    short = await learned(cluster)
    generic = await learned(cluster)
    fast_paths_of(generic._router).produce.forget()
    cluster.kill(2)
    replies = [parked(short, frame_of()), generic.handle_frame(frame_of())]
    responses = [asyncio.ensure_future(response_of(reply)) for reply in replies]
    await asyncio.sleep(0)
    happens(cluster)
    first, second = await asyncio.gather(*responses)
    assert first == second
    assert only(first).error_code == code
    assert bool(first.node_endpoints) == (code == ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not waits_of(leader)


@scenario(run_cluster)
async def test_closed_connection_removes_its_acknowledgements(cluster: Cluster, /) -> None:
    cluster.create_topic("a", 1, 2, 3)
    leader = await cluster.until_led("a")
    session = await learned(cluster)
    cluster.kill(2)
    ack = parked(session, frame_of())
    looks: list[None] = []
    ack.begin(lambda: looks.append(None))
    assert waits_of(leader) == 1
    ack.cancel()
    assert not waits_of(leader)
    await asyncio.sleep(10)
    assert not looks


@scenario(run)
async def test_acks_1_waits_for_the_flush_that_the_topic_requires(bench: Bench, /) -> None:
    await bench.create_topic("a", flush_messages="1")
    session = Router(bench.broker.shared, bench.broker, listener=LISTENER)(cast(Channel, Peer()))
    for _ in range(2):
        reply = session.handle_frame(frame_of(acks=1))
        partition = bench.broker.partitions.get("a", 0)
        assert partition is not None
        assert partition.log is not None
        end = partition.log.end_offset
        assert partition.log.durable_offset < end
        assert only(await response_of(reply)).error_code == 0
        assert partition.log.durable_offset == end
    assert isinstance(reply, DelayedReply)
