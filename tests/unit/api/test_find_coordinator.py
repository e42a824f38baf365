import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from lograft.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

GROUP, TRANSACTION, SHARE = range(3)


async def find(bench: Bench, version: int, key_type: int) -> list[Coordinator]:
    request = FindCoordinatorRequest()
    if version >= 1:
        request.key_type = key_type
    if version >= 4:
        request.coordinator_keys = ["a", "b"]
    else:
        request.key = "a"
    response = await bench.ask(request, version, FindCoordinatorResponse)
    if version >= 4:
        return response.coordinators
    return [
        Coordinator(
            key="a",
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
        )
    ]


@pytest.mark.parametrize("version", range(7))
@scenario(run, offsets_topic_num_partitions="3", offsets_topic_replication_factor="1")
async def test_first_request_creates_the_topic(bench: Bench, /, version: int) -> None:
    assert OFFSETS_TOPIC not in bench.broker.image.topic_ids
    coordinators = await find(bench, version, GROUP)
    assert [coordinator.key for coordinator in coordinators] == ["a", "b"][: len(coordinators)]
    for coordinator in coordinators:
        assert (coordinator.error_code, coordinator.node_id, coordinator.port) == (0, 1, 9092)
    topic = bench.broker.image.topic(OFFSETS_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == 3
    assert bench.broker.topic_config(OFFSETS_TOPIC).cleanup_compact


@scenario(run)
async def test_coordinator_is_unavailable_with_too_few_brokers(bench: Bench, /) -> None:
    (coordinator, _) = await find(bench, 6, GROUP)
    assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.node_id == -1
    assert OFFSETS_TOPIC in (coordinator.error_message or "")


@pytest.mark.parametrize("version", range(1, 7))
@scenario(
    run,
    transaction_state_log_num_partitions="4",
    transaction_state_log_replication_factor="1",
    transaction_state_log_min_isr="1",
)
async def test_transactions_have_a_separate_topic(bench: Bench, /, version: int) -> None:
    for coordinator in await find(bench, version, TRANSACTION):
        assert (coordinator.error_code, coordinator.node_id) == (0, 1)
    topic = bench.broker.image.topic(TRANSACTIONS_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == 4
    config = bench.broker.topic_config(TRANSACTIONS_TOPIC)
    assert config.cleanup_compact
    assert not config.unclean_leader_election_enable


@pytest.mark.parametrize("version", range(1, 7))
@scenario(run)
async def test_unsupported_coordinator_types_are_rejected(bench: Bench, /, version: int) -> None:
    async def codes(key_type: int) -> set[int]:
        return {coordinator.error_code for coordinator in await find(bench, version, key_type)}

    expected = ErrorCode.COORDINATOR_NOT_AVAILABLE if version >= 6 else ErrorCode.INVALID_REQUEST
    assert await codes(SHARE) == {expected}
    assert await codes(9) == {ErrorCode.INVALID_REQUEST}
