from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(1, 7))
@scenario(run)
async def test_every_version_deletes_topics(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a")
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [DeleteTopicState(name=name) for name in ("a", "b")]
    else:
        request.topic_names = ["a", "b"]
    response = await bench.ask(request, version, DeleteTopicsResponse)
    codes = {topic.name: topic.error_code for topic in response.responses}
    assert codes == {"a": 0, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert bench.broker.partitions.get("a", 0) is None


@scenario(run)
async def test_topics_are_deleted_by_id(bench: Bench, /) -> None:
    await bench.create_topic("a")
    ids = [bench.topic_id("a"), UUID(int=404)]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=id) for id in ids], timeout_ms=1000
    )
    response = await bench.ask(request, 6, DeleteTopicsResponse)
    codes = [(topic.name, topic.error_code) for topic in response.responses]
    assert codes == [("a", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


@scenario(run, delete_topic_enable="false")
async def test_deletion_can_be_disabled(bench: Bench, /) -> None:
    await bench.create_topic("a")
    request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
    response = await bench.ask(request, 5, DeleteTopicsResponse)
    assert response.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert bench.partition("a").leads
