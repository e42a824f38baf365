import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC
from tests.support.scenarios import scenario
from tests.unit.api.transactions_bench import (
    OK,
    add_offsets,
    begin,
    describe,
    end,
    play,
    wait_state,
)
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(5))
@scenario(play)
async def test_adds_the_partition_of_the_group(bench: Bench, /, version: int) -> None:
    producer = await begin(bench)
    assert await add_offsets(bench, producer, "g", version) == OK
    (topic,) = (await describe(bench)).topics
    assert topic.topic == OFFSETS_TOPIC
    assert topic.partitions == [bench.broker.groups.partition_of("g")]
    assert (await end(bench, producer, version=4)).error_code == OK
    await wait_state(bench, "CompleteCommit")
    led = bench.broker.groups.led_for("g")
    assert led.leader_log().end_offset == 1, "the marker"


@pytest.mark.parametrize("version", range(5))
@scenario(play)
async def test_old_and_unknown_producers_are_rejected(bench: Bench, /, version: int) -> None:
    old = await begin(bench)
    await begin(bench)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add_offsets(bench, old, "g", version) == fenced
    unknown = old._replace(transactional_id="")
    assert await add_offsets(bench, unknown, "g", version) == ErrorCode.INVALID_REQUEST
