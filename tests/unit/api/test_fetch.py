import asyncio
from uuid import UUID

import pytest

from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.exchange import EncodedResponse, PendingReply
from lograft.model.seams import FileSlice
from lograft.model.types import NodeId, Offset
from lograft.storage.producers import UNVERIFIED
from lograft.storage.types import Origin, TransactionEnd
from lograft.wire.batches import Record, build_batch, iterate_headers
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

VERSIONS = range(4, 19)


def fill(bench: Bench, partition: Partition, *values: bytes) -> None:
    for value in values:
        batch = memoryview(bytearray(batch_of(value)))
        partition.append(batch, now_ms=bench.broker.clock.wall_ms())


def request_of(
    bench: Bench,
    topic: str = "a",
    offsets: dict[int, int] | None = None,
    *,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    wanted = {0: 0} if offsets is None else offsets
    topic_request = FetchTopic(
        topic=topic,
        topic_id=bench.broker.image.topic_ids.get(topic, UUID(int=404)),
        partitions=[
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
            for index, offset in wanted.items()
        ],
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic_request] if wanted else [],
    )


async def fetch(bench: Bench, request: FetchRequest, version: int = 18) -> list[PartitionData]:
    response = await bench.ask(request, version, FetchResponse)
    assert response.error_code == 0
    return [result for topic in response.responses for result in topic.partitions]


def values_of(answer: PartitionData) -> list[int]:
    """Returns the base offsets of the complete batches."""
    assert not isinstance(answer.records, FileSlice)
    return [header.base_offset for _, header in iterate_headers(answer.records or b"")]


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_every_version_returns_records(bench: Bench, /, version: int) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1", b"2", b"3")
    (response,) = await fetch(bench, request_of(bench, offsets={0: 1}), version)
    assert response.error_code == 0
    assert values_of(response) == [1, 2]
    assert response.high_watermark == 3
    assert response.last_stable_offset == 3
    assert response.aborted_transactions is None


@scenario(run)
async def test_records_are_returned_as_file_slices(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1")
    reply = bench.send(request_of(bench), 18)
    assert isinstance(reply, EncodedResponse)
    assert [type(part) for part in reply.parts].count(FileSlice) == 1


@scenario(run)
async def test_append_completes_a_waiting_fetch(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    reply = bench.send(request_of(bench, max_wait_ms=30_000), 18)
    assert isinstance(reply, PendingReply)
    assert not reply.allows_pipelining
    poll = asyncio.ensure_future(reply.response)
    await asyncio.sleep(1)
    before_ms = bench.broker.clock.mono_ms()
    fill(bench, partition, b"1")
    result = await poll
    assert result is not None
    assert bench.broker.clock.mono_ms() - before_ms <= 1
    response = bench.read(result, 1, 18, FetchResponse)
    assert values_of(response.responses[0].partitions[0]) == [0]
    assert not partition.fetch_waits


@scenario(run)
async def test_append_before_the_wait_is_not_missed(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    reply = bench.send(request_of(bench, max_wait_ms=10_000), 18)
    assert isinstance(reply, PendingReply)
    fill(bench, partition, b"1")
    start_ms = bench.broker.clock.mono_ms()
    await reply.response
    assert bench.broker.clock.mono_ms() == start_ms


@scenario(run)
async def test_fetch_waits_for_min_bytes_up_to_max_wait_ms(bench: Bench, /) -> None:
    first, second = await bench.create_topic("a", partitions=2)
    request = request_of(bench, offsets={0: 0, 1: 0}, max_wait_ms=500, min_bytes=150)
    start_ms = bench.broker.clock.mono_ms()
    poll = asyncio.ensure_future(fetch(bench, request))
    await asyncio.sleep(0.1)
    fill(bench, first, b"1")
    await asyncio.sleep(0.1)
    assert not poll.done()
    fill(bench, second, b"1" * 80)
    responses = await poll
    assert bench.broker.clock.mono_ms() - start_ms < 300
    assert [values_of(response) for response in responses] == [[0], [0]]
    # Too few bytes: the response has those that exist when the time expires.
    request = request_of(bench, offsets={0: 0, 1: 1}, max_wait_ms=500, min_bytes=1000)
    start_ms = bench.broker.clock.mono_ms()
    responses = await fetch(bench, request)
    assert 500 <= bench.broker.clock.mono_ms() - start_ms <= 510
    assert [values_of(response) for response in responses] == [[0], []]


@scenario(run)
async def test_deletion_of_the_topic_completes_a_waiting_fetch(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    request = request_of(bench, max_wait_ms=30_000, current_leader_epoch=0)
    poll = asyncio.ensure_future(fetch(bench, request))
    await asyncio.sleep(0.1)
    set_leader(partition, 2, epoch=4)
    (response,) = await poll
    assert response.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert bench.broker.clock.mono_ms() < 1000


@scenario(run)
async def test_first_batch_is_whole_and_others_within_limits(bench: Bench, /) -> None:
    first, second = await bench.create_topic("a", partitions=2)
    fill(bench, first, b"x" * 1000, b"y" * 1000)
    fill(bench, second, b"z" * 1000)
    both = {0: 0, 1: 0}
    tiny, other = await fetch(bench, request_of(bench, offsets=both, max_bytes=10))
    assert values_of(tiny) == [0]
    assert other.records == b""
    assert other.error_code == 0
    assert other.high_watermark == 1
    responses = await fetch(bench, request_of(bench, offsets=both, partition_max_bytes=10))
    assert [values_of(response) for response in responses] == [[0], []]
    responses = await fetch(bench, request_of(bench, offsets=both, partition_max_bytes=1500))
    assert [values_of(response) for response in responses] == [[0], [0]]
    assert len(responses[0].records or b"") == 1500, "a truncated last batch is allowed"


@scenario(run)
async def test_fetch_before_the_active_segment_does_not_wait(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a", internal_segment_bytes="200")
    fill(bench, partition, b"1" * 100, b"2" * 100, b"3" * 100)
    reply = bench.send(request_of(bench, max_wait_ms=500, min_bytes=100_000), 18)
    assert isinstance(reply, EncodedResponse), "a response can have only one segment at a time"


@scenario(run)
async def test_offsets_out_of_range_are_rejected(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1", b"2", b"3")
    partition.advance_log_start(Offset(1))
    for offset in (0, 4, -1):
        (response,) = await fetch(bench, request_of(bench, offsets={0: offset}, max_wait_ms=30_000))
        assert response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert response.high_watermark == -1
    (response,) = await fetch(bench, request_of(bench, offsets={0: 3}))
    assert (response.error_code, response.records) == (0, b"")
    assert response.log_start_offset == 1


@scenario(run)
async def test_unknown_topics_partitions_and_epochs_are_rejected(bench: Bench, /) -> None:
    await bench.create_topic("a")

    async def code(request: FetchRequest, version: int = 18) -> int:
        (result,) = await fetch(bench, request, version)
        return result.error_code

    unknown = request_of(bench, "b")
    assert await code(unknown, 12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code(unknown, 13) == ErrorCode.UNKNOWN_TOPIC_ID
    missing = request_of(bench, offsets={7: 0})
    assert await code(missing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    newer = request_of(bench, current_leader_epoch=9)
    assert await code(newer) == ErrorCode.UNKNOWN_LEADER_EPOCH
    set_leader(bench.partition("a"), 1, epoch=5)
    older = request_of(bench, current_leader_epoch=4)
    assert await code(older) == ErrorCode.FENCED_LEADER_EPOCH
    response = await bench.ask(older, 16, FetchResponse)
    assert response.responses[0].partitions[0].current_leader is not None
    assert [node.port for node in response.node_endpoints] == [9092]


@scenario(run)
async def test_diverging_consumer_gets_the_end_of_its_epoch(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1", b"2")
    set_leader(partition, 1, epoch=5)
    fill(bench, partition, b"3")
    request = request_of(bench, offsets={0: 3}, last_fetched_epoch=0, max_wait_ms=1000)
    (response,) = await fetch(bench, request)
    assert response.diverging_epoch is not None
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (0, 2)
    (response,) = await fetch(bench, request_of(bench, offsets={0: 2}, last_fetched_epoch=0))
    assert response.diverging_epoch is None
    assert values_of(response) == [2]


@scenario(run)
async def test_unknown_replica_ids_are_rejected(bench: Bench, /) -> None:
    await bench.create_topic("a")
    request = request_of(bench)
    request.replica_state = ReplicaState(replica_id=3, replica_epoch=1)
    (response,) = await fetch(bench, request)
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def transaction_marker(producer_id: int, commit: bool) -> bytes:
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + (0).to_bytes(4, "big")
    record = Record(0, 1_767_225_600_000, key, value)
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


@scenario(run)
async def test_read_committed_ends_at_open_transactions_and_lists_aborted_ones(
    bench: Bench, /
) -> None:
    (partition,) = await bench.create_topic("a")
    now_ms = bench.broker.clock.wall_ms()

    def append(data: bytes, origin: Origin = Origin.CLIENT) -> None:
        partition.append(
            memoryview(bytearray(data)), now_ms=now_ms, origin=origin, verification=UNVERIFIED
        )

    def transactional(producer_id: int) -> bytes:
        return batch_of(
            b"t", transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )

    append(batch_of(b"plain"))
    append(transactional(7))
    append(transactional(8))
    (response,) = await fetch(bench, request_of(bench, isolation_level=1))
    assert (response.high_watermark, response.last_stable_offset) == (3, 1)
    assert values_of(response) == [0]
    assert response.aborted_transactions == []
    (all_of_it,) = await fetch(bench, request_of(bench, isolation_level=0))
    assert values_of(all_of_it) == [0, 1, 2]
    # An open transaction keeps a read_committed fetch waiting, its end completes it.
    poll = asyncio.ensure_future(
        fetch(bench, request_of(bench, offsets={0: 1}, isolation_level=1, max_wait_ms=9000))
    )
    await asyncio.sleep(0.1)
    append(transaction_marker(7, commit=False), Origin.COORDINATOR)
    append(transaction_marker(8, commit=True), Origin.COORDINATOR)
    (response,) = await poll
    assert values_of(response)[:1] == [1]
    assert response.aborted_transactions is not None
    assert [(a.producer_id, a.first_offset) for a in response.aborted_transactions] == [(7, 1)]


@scenario(run)
async def test_end_of_a_transaction_completes_a_fetch_for_many_bytes(bench: Bench, /) -> None:
    """The marker is small, but it makes many bytes readable."""
    (partition,) = await bench.create_topic("a")
    big = batch_of(
        bytes(5000), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    partition.append(memoryview(bytearray(big)), now_ms=1_767_225_600_000, verification=UNVERIFIED)
    request = request_of(bench, isolation_level=1, max_wait_ms=9000, min_bytes=4000)
    poll = asyncio.ensure_future(fetch(bench, request))
    await asyncio.sleep(0.1)
    assert not poll.done()
    partition.append_marker(TransactionEnd(7, 0, True, 1), now_ms=1_767_225_600_000)
    await asyncio.sleep(0.1)
    assert poll.done()
    assert values_of(poll.result()[0])[:1] == [0]


@pytest.mark.parametrize("version", [7, 12, 13, 18])
@scenario(run)
async def test_session_returns_only_changed_partitions(bench: Bench, /, version: int) -> None:
    first, second = await bench.create_topic("a", partitions=2)
    fill(bench, first, b"1")
    opening = request_of(bench, offsets={0: 0, 1: 0}, session=(0, 0))
    opened = await bench.ask(opening, version, FetchResponse)
    session_id = opened.session_id
    assert session_id != 0
    assert len(opened.responses[0].partitions) == 2
    # The fetch offset of partition 0 has changed; nothing else.
    continuing = request_of(bench, offsets={0: 1}, session=(session_id, 1))
    unchanged = await bench.ask(continuing, version, FetchResponse)
    assert (unchanged.error_code, unchanged.session_id, unchanged.responses) == (0, session_id, [])
    fill(bench, second, b"2")
    changed = await bench.ask(
        request_of(bench, offsets={}, session=(session_id, 2)), version, FetchResponse
    )
    assert [p.partition_index for p in changed.responses[0].partitions] == [1]
    # A changed log start offset is returned without records.
    first.advance_log_start(Offset(1))
    forget = request_of(bench, offsets={}, session=(session_id, 3))
    forget.forgotten_topics_data = [
        ForgottenTopic(topic="a", topic_id=bench.topic_id("a"), partitions=[1])
    ]
    moved = await bench.ask(forget, version, FetchResponse)
    assert [p.partition_index for p in moved.responses[0].partitions] == [0]
    assert moved.responses[0].partitions[0].log_start_offset == 1
    fill(bench, second, b"3")
    silent = await bench.ask(
        request_of(bench, offsets={}, session=(session_id, 4)), version, FetchResponse
    )
    assert silent.responses == []


@scenario(run)
async def test_session_errors(bench: Bench, /) -> None:
    await bench.create_topic("a")
    opened = await bench.ask(request_of(bench, session=(0, 0)), 18, FetchResponse)

    async def code(session: tuple[int, int], version: int = 18) -> int:
        request = request_of(bench, offsets={}, session=session)
        return (await bench.ask(request, version, FetchResponse)).error_code

    assert await code((12345, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert await code((opened.session_id, 5)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert await code((opened.session_id, 1), 12) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert await code((opened.session_id, 1)) == 0
    # A full fetch without a session closes the old one.
    closing = request_of(bench, session=(opened.session_id, -1))
    assert (await bench.ask(closing, 18, FetchResponse)).session_id == 0
    assert await code((opened.session_id, 2)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@scenario(run, max_incremental_fetch_session_cache_slots="0")
async def test_no_session_is_created_beyond_the_limit(bench: Bench, /) -> None:
    await bench.create_topic("a")
    response = await bench.ask(request_of(bench, session=(0, 0)), 18, FetchResponse)
    assert response.session_id == 0
    assert len(response.responses) == 1


@scenario(run)
async def test_fetch_waits_for_a_partition_that_is_opening(bench: Bench, /) -> None:
    (partition,) = bench.begin_topic("a")
    assert partition.log is None
    (response,) = await fetch(bench, request_of(bench, max_wait_ms=100))
    assert response.error_code == 0
    (other,) = bench.begin_topic("b")
    (response,) = await fetch(bench, request_of(bench, "b", max_wait_ms=0))
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert other.log is None


@scenario(run, fetch_max_bytes="1024")
async def test_brokers_fetch_max_bytes_applies(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, *[b"x" * 500] * 10)
    (response,) = await fetch(bench, request_of(bench))
    assert len(response.records or b"") == 1024


@scenario(run)
async def test_append_between_read_and_wait_is_not_missed(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    reply = bench.send(request_of(bench, max_wait_ms=30_000), 18)
    assert isinstance(reply, PendingReply)
    fill(bench, partition, b"1")  # before the wait has started
    result = await reply.response
    assert result is not None
    response = bench.read(result, 1, 18, FetchResponse)
    assert values_of(response.responses[0].partitions[0]) == [0]
    assert bench.broker.clock.mono_ms() < 1000


@scenario(run)
async def test_only_a_leader_with_a_lease_returns_offset_out_of_range_beyond_the_end(
    bench: Bench, /
) -> None:
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1", b"2")
    partition.advance_log_start(Offset(1))
    bench.registration.lease = False
    beyond, below = request_of(bench, offsets={0: 9}), request_of(bench, offsets={0: 0})
    (alone,) = await fetch(bench, beyond)
    assert alone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "no other broker can lead it"
    partition.assignment = partition.assignment._replace(replicas=(NodeId(1), NodeId(2)))
    (doubtful,) = await fetch(bench, beyond)
    assert doubtful.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (deleted,) = await fetch(bench, below)
    assert deleted.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    bench.registration.lease = True
    (surely,) = await fetch(bench, beyond)
    assert surely.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario(run)
async def test_full_response_still_reports_offsets_out_of_range(bench: Bench, /) -> None:
    first, second = await bench.create_topic("a", partitions=2)
    fill(bench, first, b"x" * 1000)
    fill(bench, second, b"y" * 1000)
    request = request_of(bench, offsets={0: 0, 1: 9}, max_bytes=10)
    full, missing = await fetch(bench, request)
    assert values_of(full) == [0]
    assert missing.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@scenario(run)
async def test_session_in_an_older_version_gets_no_diverging_epoch(bench: Bench, /) -> None:
    """Before version 12 responses have no diverging epoch."""
    (partition,) = await bench.create_topic("a")
    fill(bench, partition, b"1", b"2")
    set_leader(partition, 1, epoch=5)
    fill(bench, partition, b"3")
    request = request_of(bench, offsets={0: 3}, last_fetched_epoch=0, session=(0, 0))
    opened = await bench.ask(request, 12, FetchResponse)
    assert opened.responses[0].partitions[0].diverging_epoch is not None
    again = request_of(bench, offsets={}, session=(opened.session_id, 1))
    assert (await bench.ask(again, 7, FetchResponse)).error_code == 0
