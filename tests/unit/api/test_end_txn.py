"""Whole transactions on one broker: from the first batch to the last marker."""

import asyncio

import pytest

from lograft.metadata.types import TRANSACTION_VERSION
from lograft.model.errors import ErrorCode
from lograft.wire.batches import read_records
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.remove_topic_record import RemoveTopicRecord
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import (
    END_V2,
    OK,
    PRODUCE_V2,
    Producer,
    add,
    begin,
    describe,
    end,
    init,
    play,
    produce,
    stable_offset,
    wait_state,
)
from tests.unit.broker.bench import Bench

OLD = 4


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(5))
@scenario(play)
async def test_protocol_1_keeps_the_epoch(bench: Bench, /, version: int, commit: bool) -> None:
    producer = await begin(bench)
    for number in range(3):
        while (await add(bench, producer, {"t": [0, 1]}))["t", 0]:
            await asyncio.sleep(0.001)
        for index in range(2):
            response = await produce(
                bench, producer, b"v", partition=index, sequence=number, version=11
            )
            assert response == OK
            assert stable_offset(bench, index) == (2 * number, 2 * number + 1)
        assert (await end(bench, producer, commit=commit, version=version)).error_code == OK
        await wait_state(bench, "CompleteCommit" if commit else "CompleteAbort")
        for index in range(2):
            assert stable_offset(bench, index) == (2 * number + 2, 2 * number + 2)
    state = await describe(bench)
    assert (state.producer_id, state.producer_epoch) == producer[:2]
    # The response was lost.
    assert (await end(bench, producer, commit=commit, version=version)).error_code == OK
    wrong = await end(bench, producer, commit=not commit, version=version)
    assert wrong.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
@scenario(play)
async def test_protocol_2_has_an_epoch_for_each_transaction(bench: Bench, /, commit: bool) -> None:
    producer = await begin(bench)
    for number in range(3):
        # The producer does not add the partitions: the broker does.
        for index in range(2):
            assert await produce(bench, producer, b"v", partition=index) == OK
            assert stable_offset(bench, index) == (2 * number, 2 * number + 1)
        reply = await end(bench, producer, commit=commit)
        assert (reply.error_code, reply.producer_id) == (OK, producer.producer_id)
        assert reply.producer_epoch == producer.epoch + 1
        again = await end(bench, producer, commit=commit)
        if again.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert again == reply
        # Late requests have an old epoch.
        await wait_state(bench, "CompleteCommit" if commit else "CompleteAbort")
        late = await produce(bench, producer, b"late", sequence=1)
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH
        producer = Producer(reply.producer_id, reply.producer_epoch)
        assert stable_offset(bench) == (2 * number + 2, 2 * number + 2)


@scenario(play)
async def test_next_transaction_starts_while_markers_are_written(bench: Bench, /) -> None:
    producer = await begin(bench)
    for _ in range(50):
        assert await produce(bench, producer, b"v") == OK
        reply = await end(bench, producer)
        assert reply.error_code == OK
        producer = Producer(reply.producer_id, reply.producer_epoch)
    assert producer.epoch == 50


@scenario(play)
async def test_abort_without_transaction_returns_the_next_epoch(bench: Bench, /) -> None:
    producer = await begin(bench)
    reply = await end(bench, producer, commit=False)
    assert (reply.error_code, reply.producer_epoch) == (OK, 1)
    old = await end(bench, Producer(*producer[:2]), commit=True)
    assert old.error_code == ErrorCode.INVALID_TXN_STATE
    nothing = await end(bench, Producer(producer.producer_id, 1), commit=True)
    assert nothing.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_old_and_unknown_producers_are_rejected(bench: Bench, /, version: int) -> None:
    old = await begin(bench)
    assert await produce(bench, old, b"v") == OK
    await begin(bench)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await end(bench, old, version=version)).error_code == fenced
    unknown = old._replace(transactional_id="")
    reply = await end(bench, unknown, version=version)
    assert reply.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [PRODUCE_V2 - 1, PRODUCE_V2])
@scenario(play)
async def test_new_producer_instance_aborts_the_open_transaction(
    bench: Bench, /, version: int
) -> None:
    old = await begin(bench)
    if version < PRODUCE_V2:
        await add(bench, old, {"t": [0]})
    assert await produce(bench, old, b"v", version=version) == OK
    assert (await init(bench)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    new = await begin(bench)
    # One epoch fences the old producer and is never given out; the new producer gets the next.
    assert new == Producer(old.producer_id, old.epoch + 2)
    assert stable_offset(bench) == (2, 2)
    zombie = await produce(bench, old, b"zombie", sequence=1, version=version)
    assert zombie == ErrorCode.INVALID_PRODUCER_EPOCH


@scenario(play, transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
async def test_transaction_beyond_its_timeout_is_aborted(bench: Bench, /) -> None:
    producer = await begin(bench, timeout_ms=500)
    assert await produce(bench, producer, b"v") == OK
    await wait_state(bench, "CompleteAbort")
    assert stable_offset(bench) == (2, 2)
    late = await end(bench, producer)
    assert late.error_code == ErrorCode.INVALID_TXN_STATE
    zombie = await produce(bench, producer, b"w", sequence=1)
    assert zombie == ErrorCode.INVALID_PRODUCER_EPOCH
    # The producer sends its epoch, and continues with the one that fenced its transaction
    # (KIP-360).
    continued = await init(bench, had=producer)
    assert (continued.error_code, continued.producer_epoch) == (OK, producer.epoch + 1)


@scenario(play)
async def test_deleted_topic_is_removed_from_the_transaction(bench: Bench, /) -> None:
    producer = await begin(bench)
    assert await produce(bench, producer, b"v") == OK
    bench.controller.append((RemoveTopicRecord(topic_id=bench.topic_id("t")),))
    assert (await end(bench, producer, version=END_V2)).error_code == OK
    await wait_state(bench, "CompleteCommit")


@pytest.mark.parametrize("level", [0, 1])
@scenario(play, transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
async def test_lower_feature_levels_support_protocol_1_only(bench: Bench, /, level: int) -> None:
    """Clients see the level and use protocol 1; the log has the record format of that level."""
    bench.controller.append((FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=level),))
    old = await begin(bench, timeout_ms=500)
    await add(bench, old, {"t": [0]})
    assert await produce(bench, old, b"v", version=11) == OK
    assert (await end(bench, old, version=OLD)).error_code == OK
    await wait_state(bench, "CompleteCommit")
    await add(bench, old, {"t": [0]})
    assert await produce(bench, old, b"v", sequence=1, version=11) == OK
    # Aborted by the coordinator: the epoch is incremented too, or no producer would be fenced.
    await wait_state(bench, "CompleteAbort")
    assert stable_offset(bench) == (4, 4)
    assert (await describe(bench)).producer_epoch == old.epoch + 1
    late = await end(bench, old, version=OLD)
    assert late.error_code == ErrorCode.PRODUCER_FENCED
    log = bench.broker.transactions.led_for("x").leader_log()
    piece = log.read(0, bytes_max=1 << 20, bound=log.end_offset, at_least_one=True)
    assert piece is not None
    written = read_records(piece.file.pread(piece.size, piece.position), bytes_max=1 << 20)
    assert {record.value[:2] for record in written if record.value} == {bytes([0, min(level, 1)])}


@scenario(
    play,
    transactional_id_expiration_ms="1000",
    transaction_remove_expired_transaction_cleanup_interval_ms="500",
)
async def test_idle_transactional_ids_expire(bench: Bench, /) -> None:
    idle = await begin(bench)
    busy = await begin(bench, "busy")
    assert await produce(bench, busy, b"v") == OK
    await asyncio.sleep(3)
    assert (await describe(bench)).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await describe(bench, "busy")).transaction_state == "Ongoing"
    gone = await add(bench, idle, {"t": [0]})
    assert gone["t", 0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = await begin(bench)
    assert again.producer_id != idle.producer_id


@scenario(
    play,
    transaction_abort_timed_out_transaction_cleanup_interval_ms="5000",
    transactional_id_expiration_ms="10000",
    transaction_remove_expired_transaction_cleanup_interval_ms="500",
)
async def test_more_expirations_than_fit_into_one_batch(bench: Bench, /) -> None:
    """They are aborted, completed and removed: long names do not block the others."""
    names = [f"{index:02}".ljust(30_000, "x") for index in range(90)]

    for name in names:
        producer = await begin(bench, name, timeout_ms=100)
        assert set((await add(bench, producer, {"t": [0]})).values()) == {OK}
    async with asyncio.timeout(20):
        for name in names:
            await wait_state(bench, "CompleteAbort", name)
    await asyncio.sleep(20)
    for name in names:
        gone = await describe(bench, name)
        assert gone.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
