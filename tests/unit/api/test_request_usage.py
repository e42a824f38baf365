"""Quotas of clients, as they see them: throttle times, muted connections, empty Fetch responses.

One client sends as fast as it may, in virtual time; its rate must be the quota.
"""

import asyncio
from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.exchange import EncodedResponse, PendingReply
from lograft.model.seams import FileSlice
from lograft.wire.message import Message
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lograft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from lograft.wire.messages.produce import ProduceRequest, ProduceResponse
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData
from tests.support.scenarios import scenario
from tests.unit.api.test_produce import request_of
from tests.unit.broker.bench import Bench, batch_of, fast_paths_of, run

VERSION = 12
SECONDS = 60


def set_quota(bench: Bench, key: str, value: float, **entity: str | None) -> None:
    """By default of the client id that the bench uses."""
    parts = entity or {"client-id": "test"}
    bench.controller.append(
        (
            ClientQuotaRecord(
                entity=[
                    EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
                    for kind, name in parts.items()
                ],
                key=key,
                value=value,
            ),
        )
    )


async def reply_of(bench: Bench, request: Message, version: int = VERSION) -> EncodedResponse:
    reply = bench.send(request, version)
    if isinstance(reply, PendingReply):
        reply = await reply.response
    assert isinstance(reply, EncodedResponse)
    return reply


def fetch_request(offset: int = 0, **fields: object) -> FetchRequest:
    defaults: dict[str, object] = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [
            FetchTopic(
                topic="a",
                topic_id=UUID(int=0),
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
        ],
    }
    return FetchRequest(**(defaults | fields))  # type: ignore[arg-type]


def record_bytes(reply: EncodedResponse) -> int:
    return sum(part.size for part in reply.parts if isinstance(part, FileSlice))


@pytest.mark.parametrize("acks", [0, 1])
@scenario(run)
async def test_a_producer_writes_at_its_quota(bench: Bench, /, acks: int) -> None:
    await bench.create_topic("a")
    set_quota(bench, "producer_byte_rate", 50_000)
    request = request_of(bench, "a", batch_of(bytes(20_000)), acks=acks)
    clock = bench.life.runtime.clock
    begin_ms = clock.mono_ms()
    sent: list[tuple[int, int]] = []
    while (at_ms := clock.mono_ms() - begin_ms) < SECONDS * 1000:
        reply = bench.send(request, VERSION)
        sent.append((at_ms, 20_000))
        if isinstance(reply, PendingReply):
            reply = await reply.response
        # A response without a throttle time is not sent with acks=0.
        mute_ms = 0 if reply is None else reply.mute_ms
        if acks and reply is not None:
            response = bench.read(reply, ProduceRequest.KEY, VERSION, ProduceResponse)
            assert response.throttle_time_ms == mute_ms
            assert response.responses[0].partition_responses[0].error_code == 0
        elif reply is not None:
            assert reply.parts == ()
        await asyncio.sleep((mute_ms + 1) / 1000)
    # From the end of the first windows on, and in whole seconds.
    later = sum(size for at_ms, size in sent if at_ms >= 11_000)
    assert later / (SECONDS - 11) == pytest.approx(50_000, rel=0.05)
    assert bench.broker.shared.quotas.produce.throttled > 10
    assert bench.partition("a").serving_log().end_offset == len(sent)


@scenario(run)
async def test_a_consumer_reads_at_its_quota(bench: Bench, /) -> None:
    await bench.create_topic("a")
    for _ in range(200):
        await bench.ask(request_of(bench, "a", batch_of(bytes(20_000))), VERSION, ProduceResponse)
    set_quota(bench, "consumer_byte_rate", 40_000)
    clock = bench.life.runtime.clock
    begin_ms, offset, read = clock.mono_ms(), 0, []
    # As with Kafka, a consumer that is always behind reads in bursts, one in each round of windows.
    while (at_ms := clock.mono_ms() - begin_ms) < 121_000:
        request = fetch_request(offset % 190, max_bytes=20_000)
        reply = await reply_of(bench, request)
        response = bench.read(reply, FetchRequest.KEY, VERSION, FetchResponse)
        assert response.throttle_time_ms == reply.mute_ms
        if reply.mute_ms:
            # The records are not sent, and do not count: the client asks for them again.
            assert response.responses == []
            assert response.session_id == 0
        else:
            read.append((at_ms, record_bytes(reply)))
            offset += 1
        await asyncio.sleep((reply.mute_ms + 1) / 1000)
    later = sum(size for at_ms, size in read if at_ms >= 11_000)
    assert later / 110 == pytest.approx(40_000, rel=0.05)
    assert bench.broker.shared.quotas.fetch.throttled > 5


@scenario(run)
async def test_a_response_is_smaller_than_the_quota_of_all_windows(bench: Bench, /) -> None:
    """Otherwise the client could never get it."""
    await bench.create_topic("a")
    for _ in range(20):
        await bench.ask(request_of(bench, "a", batch_of(bytes(1_000))), VERSION, ProduceResponse)
    set_quota(bench, "consumer_byte_rate", 300)
    # min_bytes is limited, too: the client does not wait for what it cannot get.
    request = fetch_request(min_bytes=1 << 20, max_wait_ms=1 << 30)
    clock = bench.life.runtime.clock
    begin_ms = clock.mono_ms()
    while (reply := await reply_of(bench, request)).mute_ms:
        await asyncio.sleep(reply.mute_ms / 1000)
    assert clock.mono_ms() - begin_ms <= 11_000
    assert record_bytes(reply) == 3_000


@scenario(run)
async def test_a_throttled_session_continues_where_it_was(bench: Bench, /) -> None:
    await bench.create_topic("a")
    await bench.ask(request_of(bench, "a", batch_of(b"1")), VERSION, ProduceResponse)
    first = bench.read(
        await reply_of(bench, fetch_request(session_epoch=0)), 1, VERSION, FetchResponse
    )
    assert first.session_id > 0
    set_quota(bench, "consumer_byte_rate", 1)
    for epoch in (1, 2):
        request = fetch_request(1, session_id=first.session_id, session_epoch=epoch)
        await bench.ask(request_of(bench, "a", batch_of(bytes(100))), VERSION, ProduceResponse)
        reply = await reply_of(bench, request)
        response = bench.read(reply, 1, VERSION, FetchResponse)
        assert (response.session_id, response.responses) == (first.session_id, [])
        assert response.throttle_time_ms > 0
    set_quota(bench, "consumer_byte_rate", 1_000_000)
    request = fetch_request(1, session_id=first.session_id, session_epoch=3)
    response = bench.read(await reply_of(bench, request), 1, VERSION, FetchResponse)
    # The high watermark changed during the throttled responses, which the client has not seen.
    assert response.responses[0].partitions[0].high_watermark == 3
    # A session that begins with a throttled response does not exist.
    set_quota(bench, "consumer_byte_rate", 1)
    begun = bench.read(
        await reply_of(bench, fetch_request(session_epoch=0)), 1, VERSION, FetchResponse
    )
    assert (begun.session_id, begun.responses) == (0, [])


@scenario(run)
async def test_replicas_and_other_clients_are_exempt(bench: Bench, /) -> None:
    await bench.create_topic("a")
    await bench.ask(request_of(bench, "a", batch_of(bytes(9_000))), VERSION, ProduceResponse)
    for key in ("consumer_byte_rate", "request_percentage"):
        set_quota(bench, key, 0.001)
    assert (await reply_of(bench, fetch_request())).mute_ms > 0
    version = 17
    request = fetch_request(replica_state=ReplicaState(replica_id=7, replica_epoch=1))
    request.topics[0].topic_id = bench.topic_id("a")
    bench.send(request, version)
    usage = bench.broker.shared.quotas.fetch
    assert usage.throttled <= 1
    reply = bench.send(fetch_request(), VERSION, client_id="other")
    assert isinstance(reply, EncodedResponse)
    assert reply.mute_ms == 0


@scenario(run)
async def test_fast_paths_end_and_return_with_the_quotas(bench: Bench, /) -> None:
    await bench.create_topic("a")
    request = request_of(bench, "a", batch_of(bytes(1_000)))
    session = bench.session("broker")
    assert session is not None
    for _ in range(3):
        await reply_of(bench, request)
    router = session._router
    served = fast_paths_of(router).produce.served
    assert served > 0
    set_quota(bench, "producer_byte_rate", 1)
    assert not router.fast_paths
    assert (await reply_of(bench, request)).mute_ms > 0
    bench.controller.append(
        (
            ClientQuotaRecord(
                entity=[EntityData(entity_type="client-id", entity_name="test")],
                key="producer_byte_rate",
                remove=True,
            ),
        )
    )
    assert (await reply_of(bench, request)).mute_ms == 0
    assert fast_paths_of(router).produce.served == served + 1
    # Quotas of connections and of partition changes do not need the general path.
    set_quota(bench, "controller_mutation_rate", 1)
    set_quota(bench, "connection_creation_rate", 1, ip=None)
    assert fast_paths_of(router)
    assert bench.broker.shared.quotas.connection_rate("10.0.0.1") == 1


def topics(*names: str, partitions: int = 6) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ]
    )


@scenario(run)
async def test_new_clients_are_rejected_beyond_the_mutation_rate(bench: Bench, /) -> None:
    set_quota(bench, "controller_mutation_rate", 1)
    # 11 tokens: the second topic overdraws the bucket, the third is rejected.
    reply = await reply_of(bench, topics("a", "b", "c"), 7)
    response = bench.read(reply, 19, 7, CreateTopicsResponse)
    codes = [topic.error_code for topic in response.topics]
    assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 900 <= response.throttle_time_ms <= 1_000
    assert reply.mute_ms == response.throttle_time_ms
    assert bench.broker.image.topic("c") is None
    reply = await reply_of(
        bench,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=7, assignments=None)], timeout_ms=1_000
        ),
        3,
    )
    partitions = bench.read(reply, 37, 3, CreatePartitionsResponse)
    assert partitions.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    reply = await reply_of(
        bench, DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000), 6
    )
    deleted = bench.read(reply, 20, 6, DeleteTopicsResponse)
    assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await asyncio.sleep(1.1)
    reply = await reply_of(
        bench, DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000), 6
    )
    assert bench.read(reply, 20, 6, DeleteTopicsResponse).responses[0].error_code == 0
    assert bench.broker.shared.quotas.mutations.throttled == 3


@scenario(run)
async def test_old_clients_are_muted_beyond_the_mutation_rate(bench: Bench, /) -> None:
    set_quota(bench, "controller_mutation_rate", 1)
    reply = await reply_of(bench, topics("a", "b", "c"), 5)
    response = bench.read(reply, 19, 5, CreateTopicsResponse)
    assert [topic.error_code for topic in response.topics] == [0, 0, 0]
    assert 6_900 <= response.throttle_time_ms == reply.mute_ms <= 7_000
