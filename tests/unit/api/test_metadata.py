from uuid import UUID

import pytest

from lograft.metadata.brokers import fence_broker
from lograft.model.errors import ErrorCode
from lograft.model.exchange import PendingReply
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run

VERSIONS = range(14)


async def send_request(
    bench: Bench, *names: str, version: int = 13, create: bool = False
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = create
    return await bench.ask(request, version, MetadataResponse)


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_every_version_returns_topics(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a", partitions=2)
    response = await send_request(bench, "a", version=version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert response.controller_id == (1 if version >= 1 else -1)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "a")
    assert topic.topic_id == (bench.topic_id("a") if version >= 10 else ZERO_UUID)
    for index, partition in enumerate(topic.partitions):
        assert (partition.partition_index, partition.error_code) == (index, 0)
        assert (partition.leader_id, partition.replica_nodes) == (1, [1])
        assert partition.isr_nodes == [1]
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert partition.offline_replicas == []


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_all_topics_and_no_topics(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a")
    await bench.create_topic("b")
    everything = MetadataRequest(topics=[] if version == 0 else None)
    response = await bench.ask(everything, version, MetadataResponse)
    assert sorted(topic.name or "" for topic in response.topics) == ["a", "b"]
    if version >= 1:
        response = await bench.ask(MetadataRequest(topics=[]), version, MetadataResponse)
        assert response.topics == []


@scenario(run)
async def test_topics_by_id(bench: Bench, /) -> None:
    await bench.create_topic("a")
    topics = [
        MetadataRequestTopic(name=None, topic_id=bench.topic_id("a")),
        MetadataRequestTopic(name=None, topic_id=UUID(int=404)),
    ]
    response = await bench.ask(MetadataRequest(topics=topics), 12, MetadataResponse)
    known, unknown = response.topics
    assert (known.error_code, known.name) == (0, "a")
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    response = await bench.ask(MetadataRequest(topics=topics[:1]), 10, MetadataResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run, num_partitions="3")
async def test_topics_are_created_on_demand(bench: Bench, /, version: int) -> None:
    response = await send_request(bench, "fresh", version=version, create=True)
    (topic,) = response.topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert "fresh" in bench.broker.image.topic_ids
    # The second request needs no decision.
    reply = bench.send(MetadataRequest(topics=[MetadataRequestTopic(name="fresh")]), version)
    assert not isinstance(reply, PendingReply)


def test_topics_are_created_only_if_client_and_broker_allow_it() -> None:
    async def unwanted(bench: Bench) -> None:
        (topic,) = (await send_request(bench, "fresh", create=False)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def disabled(bench: Bench) -> None:
        (topic,) = (await send_request(bench, "fresh", create=True)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bench.broker.image.topic_ids == {}

    run(unwanted)
    run(disabled, auto_create_topics_enable="false")


@scenario(run)
async def test_topic_that_cannot_be_created_has_an_error(bench: Bench, /) -> None:
    await bench.create_topic("a.b")
    response = await send_request(bench, "bad name", "..", "a_b", "fine", create=True)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "fine": 0,
    }
    bench.controller.down = True
    response = await send_request(bench, "later", create=True)
    assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


@scenario(run)
async def test_authorized_operations_on_request(bench: Bench, /) -> None:
    await bench.create_topic("a")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="a")],
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = await bench.ask(request, 8, MetadataResponse)
    assert response.cluster_authorized_operations == 8096
    assert response.topics[0].topic_authorized_operations == 3576
    request.include_topic_authorized_operations = False
    request.include_cluster_authorized_operations = False
    response = await bench.ask(request, 8, MetadataResponse)
    assert response.topics[0].topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", VERSIONS)
@scenario(run)
async def test_fenced_leader_is_not_returned(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a")
    await bench.controller.submit(lambda image: fence_broker(image, 1, config=bench.config))
    response = await send_request(bench, "a", version=version)
    assert response.brokers == []
    (partition,) = response.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leader_id == -1
    assert partition.offline_replicas == ([1] if version >= 5 else [])


@scenario(run)
async def test_internal_topics_are_marked(bench: Bench, /) -> None:
    await bench.create_topic("__consumer_offsets")
    assert (await send_request(bench, "__consumer_offsets")).topics[0].is_internal


@scenario(run)
async def test_internal_topics_are_not_created_on_demand(bench: Bench, /) -> None:
    response = await send_request(bench, "__consumer_offsets", create=True)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.broker.image.topic_ids == {}


@scenario(run)
async def test_duplicate_topic_is_returned_once(bench: Bench, /) -> None:
    await bench.create_topic("a")
    response = await send_request(bench, "a", "b", "a", "b")
    assert [topic.name for topic in response.topics] == ["a", "b"]
