import pytest

from lograft.model.errors import ErrorCode
from lograft.storage.types import TransactionEnd
from lograft.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import commit, fetch_all, find_coordinator, play, run_coordinator
from tests.unit.broker.bench import Bench


async def commit_in_transaction(
    bench: Bench,
    version: int,
    positions: dict[int, int],
    *,
    topic: str = "t",
    epoch: int = 0,
    group: str = "g",
) -> dict[int, int]:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=77,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset
                    )
                    for partition, offset in positions.items()
                ],
            )
        ],
    )
    (response,) = (await bench.ask(request, version, TxnOffsetCommitResponse)).topics
    return {partition.partition_index: partition.error_code for partition in response.partitions}


async def end(bench: Bench, *, committed: bool, epoch: int = 0) -> None:
    groups = bench.broker.groups
    end = TransactionEnd(77, epoch, committed, coordinator_epoch=0)
    offset = groups.append_marker(groups.partition_of("g"), end)
    await groups.led_for("g").wait_committed(offset, timeout_ms=1000)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("version", range(5))
@scenario(run_coordinator, transaction_partition_verification_enable="false")
async def test_offsets_take_effect_when_the_transaction_is_committed(
    bench: Bench, /, version: int, committed: bool
) -> None:
    await bench.create_topic("t", partitions=2)
    await find_coordinator(bench)
    await commit(bench, 9, "t", {0: 1})
    assert await commit_in_transaction(bench, version, {0: 5, 1: 6}) == {0: 0, 1: 0}
    assert (await fetch_all(bench, 9))["t"].keys() == {0}
    await end(bench, committed=committed)
    found = {index: each[0] for index, each in (await fetch_all(bench, 9))["t"].items()}
    assert found == ({0: 5, 1: 6} if committed else {0: 1})


@scenario(play)
async def test_empty_group_id_is_rejected(bench: Bench, /) -> None:
    nameless = ErrorCode.INVALID_GROUP_ID
    assert await commit_in_transaction(bench, 5, {0: 5}, group="") == {0: nameless}


@scenario(run_coordinator, transaction_partition_verification_enable="false")
async def test_older_producer_instance_is_fenced(bench: Bench, /) -> None:
    await bench.create_topic("t", partitions=2)
    await find_coordinator(bench)
    await end(bench, committed=False, epoch=4)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await commit_in_transaction(bench, 4, {0: 5}, epoch=3) == {0: fenced}
    assert await fetch_all(bench, 9) == {}


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_unknown_transaction_is_rejected(bench: Bench, /, version: int) -> None:
    codes = await commit_in_transaction(bench, version, {0: 5, 2: 1})
    assert codes == dict.fromkeys((0, 2), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit_in_transaction(bench, version, {0: 5}, topic="u") == {0: unknown}
