import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(4))
@scenario(run)
async def test_number_of_partitions_only_increases(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a", partitions=2)

    async def grow(name: str, count: int, validate_only: bool = False) -> int:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=1000,
            validate_only=validate_only,
        )
        response = await bench.ask(request, version, CreatePartitionsResponse)
        return response.results[0].error_code

    assert await grow("a", 4, validate_only=True) == 0
    assert bench.broker.partitions.get("a", 3) is None
    assert await grow("a", 4) == 0
    await bench.partition("a", 3).wait_open(timeout_ms=1000)
    assert bench.partition("a", 3).log is not None
    assert await grow("a", 3) == ErrorCode.INVALID_PARTITIONS
    assert await grow("b", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await bench.create_topic(OFFSETS_TOPIC)
    assert await grow(OFFSETS_TOPIC, 3) == ErrorCode.INVALID_PARTITIONS
    bench.controller.down = True
    assert await grow("a", 9) == ErrorCode.REQUEST_TIMED_OUT
