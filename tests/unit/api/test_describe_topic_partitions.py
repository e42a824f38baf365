from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@scenario(run)
async def test_pages_cover_all_topics(bench: Bench, /) -> None:
    for name, count in (("c", 2), ("a", 3), ("b", 1)):
        await bench.create_topic(name, partitions=count)
    pages = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        response = await bench.ask(request, 0, DescribeTopicPartitionsResponse)
        pages.append([(t.name, p.partition_index) for t in response.topics for p in t.partitions])
        if response.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
    assert pages == [[("a", 0), ("a", 1)], [("a", 2), ("b", 0)], [("c", 0), ("c", 1)]]


@scenario(run)
async def test_requested_topics_are_described(bench: Bench, /) -> None:
    await bench.create_topic("a")
    names = ("zzz", "a", "not legal!")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    response = await bench.ask(request, 0, DescribeTopicPartitionsResponse)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {
        "a": 0,
        "zzz": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not legal!": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    (known,) = [topic for topic in response.topics if topic.name == "a"]
    assert known.topic_id == bench.topic_id("a")
    assert (known.partitions[0].leader_id, known.partitions[0].isr_nodes) == (1, [1])
    assert known.partitions[0].eligible_leader_replicas == []


@scenario(run, max_request_partition_size_limit="3")
async def test_brokers_limit_applies(bench: Bench, /) -> None:
    await bench.create_topic("a", partitions=5)
    request = DescribeTopicPartitionsRequest(response_partition_limit=1000)
    response = await bench.ask(request, 0, DescribeTopicPartitionsResponse)
    assert len(response.topics[0].partitions) == 3
    assert response.next_cursor is not None
    assert response.next_cursor.partition_index == 3
