import asyncio
from random import Random
from typing import Any
from uuid import UUID

import pytest

from lograft.broker.control.topic_creation import create_on_demand
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.exchange import CloseConnection, PendingReply
from lograft.model.types import Offset
from lograft.simulation.disk import DiskFault
from lograft.storage.validation import PARSED_ON_LOOP_MAX, RECOMPRESSED_ON_LOOP_BYTES_MAX
from lograft.wire.batches import Record, build_batch, read_header
from lograft.wire.compression import Codec
from lograft.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run, set_leader

VERSIONS = range(3, 14)
NOW_MS = 1_767_225_600_000


def request_of(
    bench: Bench,
    topic: str,
    *batches: bytes | None,
    acks: int = -1,
    index: int = 0,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=bench.broker.image.topic_ids.get(topic, UUID(int=404)),
                partition_data=[
                    PartitionProduceData(index=index + number, records=batch)
                    for number, batch in enumerate(batches)
                ],
            )
        ],
    )


async def produce(
    bench: Bench, topic: str, *batches: bytes | None, version: int = 13, acks: int = -1
) -> list[PartitionProduceResponse]:
    request = request_of(bench, topic, *batches, acks=acks)
    response = await bench.ask(request, version, ProduceResponse)
    return response.responses[0].partition_responses


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_every_version_appends(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a", partitions=2)
    responses = await produce(bench, "a", batch_of(b"1", b"2"), batch_of(b"3"), version=version)
    assert [(a.index, a.error_code, a.base_offset) for a in responses] == [(0, 0, 0), (1, 0, 0)]
    (again, _) = await produce(bench, "a", batch_of(b"4"), batch_of(b"5"), version=version)
    assert again.base_offset == 2
    assert again.log_append_time_ms == -1
    assert again.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("acks", [-1, 1])
@scenario(run)
async def test_response_is_immediate_if_nothing_must_be_flushed(bench: Bench, /, acks: int) -> None:
    await bench.create_topic("a")
    reply = bench.send(request_of(bench, "a", batch_of(b"1"), acks=acks), 13)
    assert reply is not None
    assert not isinstance(reply, PendingReply)


@pytest.mark.parametrize("acks", [-1, 1])
@scenario(run)
async def test_response_waits_for_the_flush_that_the_topic_requires(
    bench: Bench, /, acks: int
) -> None:
    (partition,) = await bench.create_topic("a", flush_messages="1")
    first = bench.send(request_of(bench, "a", batch_of(b"1"), acks=acks), 13)
    second = bench.send(request_of(bench, "a", batch_of(b"2"), acks=acks), 13)
    assert isinstance(first, PendingReply)
    assert isinstance(second, PendingReply)
    assert first.allows_pipelining, "the append has happened: later requests need not wait"
    await asyncio.gather(first.response, second.response)
    assert partition.log is not None
    assert partition.log.durable_offset == 2


@scenario(run)
async def test_slow_flush_times_out(bench: Bench, /) -> None:
    await bench.create_topic("a", flush_messages="1")
    request = request_of(bench, "a", batch_of(b"1"), timeout_ms=0)
    response = await bench.ask(request, 13, ProduceResponse)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert result.base_offset == -1


@scenario(run)
async def test_acks_0_has_no_response_and_closes_on_errors(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    assert bench.send(request_of(bench, "a", batch_of(b"1"), acks=0), 13) is None
    assert partition.high_watermark == 1
    with pytest.raises(CloseConnection):
        bench.send(request_of(bench, "nope", batch_of(b"1"), acks=0), 9)


@scenario(run)
async def test_invalid_acks_are_rejected_without_an_append(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    for acks in (2, -2):
        (response,) = await produce(bench, "a", batch_of(b"1"), acks=acks)
        assert response.error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert response.base_offset == -1
    assert partition.high_watermark == 0


@scenario(run)
async def test_idempotent_producers_are_deduplicated_ordered_and_fenced(bench: Bench, /) -> None:
    await bench.create_topic("a")

    async def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        batch = batch_of(
            b"%d" % sequence, producer_id=9, producer_epoch=epoch, base_sequence=sequence
        )
        (response,) = await produce(bench, "a", batch)
        return response.error_code, response.base_offset

    assert [await send(n) for n in range(6)] == [(0, n) for n in range(6)]
    assert await send(3) == (0, 3), "a duplicate batch gets its original offset"
    assert await send(0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(0, epoch=1) == (0, 6)
    assert await send(6, epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


@scenario(run)
async def test_invalid_partition_does_not_affect_the_others(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=3)
    broken = bytearray(batch_of(b"2"))
    broken[-1] ^= 1
    responses = await produce(bench, "a", batch_of(b"1"), bytes(broken), batch_of(b"3"))
    codes = [response.error_code for response in responses]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert responses[1].error_message


def old_format() -> bytes:
    batch = bytearray(batch_of(b"x"))
    batch[16] = 1
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "version", "code"),
    [
        (None, 13, ErrorCode.INVALID_RECORD),
        (b"", 13, ErrorCode.INVALID_RECORD),
        (b"tiny", 13, ErrorCode.INVALID_RECORD),
        (old_format(), 13, ErrorCode.INVALID_RECORD),
        (batch_of(b"1") + batch_of(b"2"), 13, ErrorCode.INVALID_RECORD),
        (batch_of(b"1")[:-1], 13, ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"x" * 1_100_000), 13, ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"1", compression=Codec.ZSTD), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch_of(b"1", timestamp=2**42), 13, ErrorCode.INVALID_TIMESTAMP),
        (
            batch_of(b"1", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            13,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
@scenario(run)
async def test_invalid_batches_are_rejected(
    bench: Bench, /, batch: bytes | None, version: int, code: ErrorCode
) -> None:
    (partition,) = await bench.create_topic("a")
    (response,) = await produce(bench, "a", batch, version=version)
    assert ErrorCode(response.error_code) == code
    assert partition.high_watermark == 0


@scenario(run)
async def test_zstd_needs_version_7(bench: Bench, /) -> None:
    await bench.create_topic("a")
    batch = batch_of(b"1", compression=Codec.ZSTD)
    (response,) = await produce(bench, "a", batch, version=7)
    assert response.error_code == 0


@scenario(run)
async def test_unknown_topics_and_partitions_are_rejected(bench: Bench, /) -> None:
    await bench.create_topic("a")
    (result,) = await produce(bench, "b", batch_of(b"1"), version=12)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (result,) = await produce(bench, "b", batch_of(b"1"), version=13)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request = request_of(bench, "a", batch_of(b"1"), index=1)
    response = await bench.ask(request, 13, ProduceResponse)
    (result,) = response.responses[0].partition_responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@scenario(run)
async def test_clients_cannot_write_to_internal_topics(bench: Bench, /) -> None:
    await bench.create_topic("__consumer_offsets")
    for version in (12, 13):
        (response,) = await produce(bench, "__consumer_offsets", batch_of(b"1"), version=version)
        assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@scenario(run)
async def test_response_has_the_new_leader(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    set_leader(partition, 2, epoch=7)
    for version in (9, 12, 13):
        request = request_of(bench, "a", batch_of(b"1"))
        response = await bench.ask(request, version, ProduceResponse)
        (result,) = response.responses[0].partition_responses
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (result.current_leader is not None) == (version >= 10)
        assert [node.port for node in response.node_endpoints] == ([9092] if version >= 10 else [])


@scenario(run, log_dirs="/one,/two", metadata_log_dir="/two")
async def test_failed_disk_is_a_storage_error(bench: Bench, /) -> None:
    await bench.create_topic("a")
    bench.life.disk.faults.append(DiskFault(operation="write", path_part="a-0"))
    for _ in range(2):
        (response,) = await produce(bench, "a", batch_of(b"1"))
        assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@scenario(run)
async def test_log_append_time(bench: Bench, /) -> None:
    await bench.create_topic("a", message_timestamp_type="LogAppendTime")
    (response,) = await produce(bench, "a", batch_of(b"1"))
    assert response.log_append_time_ms == bench.broker.clock.wall_ms()


@scenario(run)
async def test_request_waits_for_a_partition_that_is_opening(bench: Bench, /) -> None:
    (partition,) = bench.begin_topic("a")
    assert partition.log is None
    reply = bench.send(request_of(bench, "a", batch_of(b"1"), timeout_ms=1000), 13)
    assert isinstance(reply, PendingReply)
    assert not reply.allows_pipelining, "a later request must not overtake the append"
    result = await reply.response
    assert result is not None
    response = bench.read(result, 0, 13, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert partition.high_watermark == 1


@scenario(run, auto_create_partitions_enable="true", auto_create_partitions_max="4")
async def test_partitions_grow_on_demand_up_to_the_limit(bench: Bench, /) -> None:
    assert await create_on_demand(bench.broker.metadata, bench.broker.link, ["auto"]) == {}
    await bench.create_topic("made")

    async def send(topic: str, index: int) -> PartitionProduceResponse:
        request = request_of(bench, topic, batch_of(b"1"), index=index)
        response = await bench.ask(request, 13, ProduceResponse)
        return response.responses[0].partition_responses[0]

    assert (await send("auto", 3)).error_code == 0
    assert len(bench.broker.image.topics[bench.topic_id("auto")].partitions) == 4
    beyond = await send("auto", 4)
    assert beyond.error_code == ErrorCode.INVALID_PARTITIONS
    assert "4" in (beyond.error_message or "")
    assert (await send("auto", -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rejected = await send("made", 1)
    assert rejected.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@scenario(run)
async def test_topic_grows_once_it_has_the_setting(bench: Bench, /) -> None:
    """Even if automatically created topics do not."""
    await bench.create_topic("a", auto_create_partitions_max="2")

    async def send(index: int) -> PartitionProduceResponse:
        request = request_of(bench, "a", batch_of(b"1"), index=index)
        response = await bench.ask(request, 13, ProduceResponse)
        return response.responses[0].partition_responses[0]

    assert (await send(1)).error_code == 0
    beyond = await send(2)
    assert beyond.error_code == ErrorCode.INVALID_PARTITIONS
    assert "auto.create.partitions.max" in (beyond.error_message or "")


@scenario(run)
async def test_deleted_records_do_not_come_back(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    await produce(bench, "a", batch_of(b"1", b"2"))
    partition.advance_log_start(Offset(1))
    (response,) = await produce(bench, "a", batch_of(b"3"))
    assert (response.base_offset, response.log_start_offset) == (2, 1)


@scenario(run, auto_create_partitions_enable="true")
async def test_null_records_do_not_create_a_partition(bench: Bench, /) -> None:
    """No partition is created for them, and the other partition is served."""
    await create_on_demand(bench.broker.metadata, bench.broker.link, ["a"])
    responses = await produce(bench, "a", batch_of(b"1"), None)
    assert [response.error_code for response in responses] == [0, ErrorCode.INVALID_RECORD]
    assert len(bench.broker.image.topics[bench.topic_id("a")].partitions) == 1


def big_batch(count: int, key: bytes | None, **settings: Any) -> bytes:
    records = [Record(number, NOW_MS, key, b"v") for number in range(count)]
    return build_batch(records, **settings)


@scenario(run)
async def test_worker_validates_many_records(bench: Bench, /) -> None:
    """Validating them in the event loop would block other requests for half a second."""
    (partition,) = await bench.create_topic("a", cleanup_policy="compact")
    assert partition.log is not None
    sent = {"producer_id": 7, "producer_epoch": 0}
    for sequence in (0, PARSED_ON_LOOP_MAX + 1):
        batch = big_batch(PARSED_ON_LOOP_MAX + 1, b"k", base_sequence=sequence, **sent)
        reply = bench.send(request_of(bench, "a", batch), 13)
        assert isinstance(reply, PendingReply)
        assert not reply.allows_pipelining, "it is not appended yet: the next request must wait"
        assert partition.log.end_offset == sequence
        await reply.response
        assert partition.log.end_offset == sequence + PARSED_ON_LOOP_MAX + 1
    (rejected,) = await produce(bench, "a", big_batch(PARSED_ON_LOOP_MAX + 1, None))
    assert rejected.error_code == ErrorCode.INVALID_RECORD
    assert len(rejected.record_errors) == PARSED_ON_LOOP_MAX + 1
    (few,) = await produce(bench, "a", big_batch(2, b"k"))
    assert few.error_code == 0


@scenario(run)
async def test_worker_recompresses_large_batches(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", compression_type="zstd")
    batch = batch_of(Random(1).randbytes(2 * RECOMPRESSED_ON_LOOP_BYTES_MAX), b"2")
    reply = bench.send(request_of(bench, "a", batch), 13)
    assert isinstance(reply, PendingReply)
    await reply.response
    assert read_header(stored_batch(partition)).compression == Codec.ZSTD


def stored_batch(partition: Partition) -> bytes:
    assert partition.log is not None
    piece = partition.log.read(0, bytes_max=1)
    assert piece is not None
    return piece.file.pread(piece.size, piece.position)


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_response_lists_the_rejected_records(bench: Bench, /, version: int) -> None:
    """The first request takes the general path, the later ones the fast path (KIP-467)."""
    await bench.create_topic("a", cleanup_policy="compact")
    mixed = [Record(number, NOW_MS, key, b"v") for number, key in enumerate((None, b"k", None))]
    for _ in range(2):
        (accepted,) = await produce(bench, "a", big_batch(2, b"k"), version=version)
        assert (accepted.error_code, accepted.record_errors) == (0, [])
        (rejected,) = await produce(bench, "a", build_batch(mixed), version=version)
        assert rejected.error_code == ErrorCode.INVALID_RECORD
        named = [error.batch_index for error in rejected.record_errors]
        assert named == ([0, 2] if version >= 8 else [])
        assert bool(rejected.error_message) == (version >= 8)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, PARSED_ON_LOOP_MAX + 1])
@scenario(run)
async def test_rejected_batches_get_the_log_start(
    bench: Bench, /, version: int, count: int
) -> None:
    """On the general path, on the fast path and in the worker, as in Kafka."""
    (partition,) = await bench.create_topic("a", cleanup_policy="compact,delete")
    for _ in range(2):
        await produce(bench, "a", big_batch(2, b"k"), version=version)
        partition.advance_log_start(Offset(1))
        (rejected,) = await produce(bench, "a", big_batch(count, None), version=version)
        assert rejected.error_code == ErrorCode.INVALID_RECORD
        assert rejected.base_offset == -1
        assert rejected.log_start_offset == (1 if version >= 5 else -1)
        stale = big_batch(1, b"k", producer_id=7, producer_epoch=0, base_sequence=4)
        await produce(
            bench, "a", big_batch(1, b"k", producer_id=7, producer_epoch=0, base_sequence=0)
        )
        (stale_answer,) = await produce(bench, "a", stale, version=version)
        assert stale_answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert stale_answer.log_start_offset == (1 if version >= 5 else -1)


@scenario(run)
async def test_rejections_unrelated_to_the_log_have_no_log_start(bench: Bench, /) -> None:
    await bench.create_topic("a", max_message_bytes="1000")
    too_large = batch_of(b"x" * 2_000)
    for batch, code in (
        (None, ErrorCode.INVALID_RECORD),
        (too_large, ErrorCode.MESSAGE_TOO_LARGE),
    ):
        (rejected,) = await produce(bench, "a", batch)
        assert rejected.error_code == code
        assert rejected.log_start_offset == -1
