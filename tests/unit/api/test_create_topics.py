import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(2, 8))
@scenario(run)
async def test_every_version_creates_topics(bench: Bench, /, version: int) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="a",
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
            ),
            CreatableTopic(
                name="b",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
            ),
            CreatableTopic(name="bad/name", num_partitions=1, replication_factor=1),
        ]
    )
    response = await bench.ask(request, version, CreateTopicsResponse)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"a": 0, "b": 0, "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    first = response.topics[0]
    assert bench.partition("a", 1).config.retention_ms == 1000
    if version >= 5:
        assert (first.num_partitions, first.replication_factor) == (2, 1)
        values = {config.name: config.value for config in first.configs or ()}
        assert values["retention.ms"] == "1000"
    if version >= 7:
        assert first.topic_id == bench.topic_id("a")


@scenario(run)
async def test_validate_only_creates_nothing(bench: Bench, /) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)],
        validate_only=True,
    )
    response = await bench.ask(request, 7, CreateTopicsResponse)
    assert response.topics[0].error_code == 0
    assert bench.broker.image.topic_ids == {}


@scenario(run)
async def test_request_error_is_returned_for_each_topic(bench: Bench, /) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=6000, replication_factor=1)
            for name in ("a", "b")
        ]
    )
    response = await bench.ask(request, 7, CreateTopicsResponse)
    codes = [topic.error_code for topic in response.topics]
    assert codes == [ErrorCode.POLICY_VIOLATION] * 2
    bench.controller.down = True
    response = await bench.ask(request, 7, CreateTopicsResponse)
    codes = [topic.error_code for topic in response.topics]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2


@scenario(run)
async def test_slow_commit_times_out(bench: Bench, /) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)], timeout_ms=0
    )
    response = await bench.ask(request, 7, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
