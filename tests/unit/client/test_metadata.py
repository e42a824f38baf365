"""Metadata only goes forward."""

from uuid import UUID

from lograft.client.metadata import MetadataCache
from lograft.model.errors import ErrorCode
from lograft.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, OTHER = UUID(int=1), UUID(int=2)
BROKERS = [MetadataResponseBroker(node_id=1, host="n1", port=9092)]


def described(
    name: str = "t", *, leader: int = 1, epoch: int = 0, topic_id: UUID = ONE, partitions: int = 1
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
            for i in reversed(range(partitions))
        ],
    )


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, topics=list(topics), cluster_id="c")


def knowing(*topics: MetadataResponseTopic) -> MetadataCache:
    cache = MetadataCache()
    assert cache.update(answer(*topics), covers_all=False)
    return cache


def leader(cache: MetadataCache) -> tuple[int, int]:
    partition = cache.partition("t", 0)
    assert partition is not None
    return partition.leader, partition.leader_epoch


def test_an_older_epoch_is_ignored_and_a_newer_one_taken() -> None:
    cache = knowing(described(leader=1, epoch=5))
    cache.update(answer(described(leader=2, epoch=4)), covers_all=False)
    assert leader(cache) == (1, 5)
    cache.update(answer(described(leader=2, epoch=6)), covers_all=False)
    assert leader(cache) == (2, 6)


def test_the_same_epoch_is_taken_because_its_leader_may_have_gone() -> None:
    cache = knowing(described(leader=1, epoch=5))
    cache.update(answer(described(leader=-1, epoch=5)), covers_all=False)
    assert leader(cache) == (-1, 5)


def test_another_topic_of_that_name_begins_with_its_own_epochs() -> None:
    cache = knowing(described(leader=1, epoch=5))
    cache.update(answer(described(leader=2, epoch=0, topic_id=OTHER)), covers_all=False)
    assert leader(cache) == (2, 0)
    assert cache.topic_by_id(ONE) is None
    found = cache.topic_by_id(OTHER)
    assert found is not None
    assert found.name == "t"


def test_an_answer_without_brokers_is_of_no_use() -> None:
    cache = knowing(described())
    assert not cache.update(MetadataResponse(), covers_all=True)
    assert leader(cache) == (1, 0)


def test_a_partial_answer_keeps_the_others_a_full_one_does_not() -> None:
    cache = knowing(described("t"), described("u", topic_id=OTHER))
    cache.update(answer(described("u", topic_id=OTHER)), covers_all=False)
    assert set(cache.topics) == {"t", "u"}
    cache.update(answer(described("u", topic_id=OTHER)), covers_all=True)
    assert set(cache.topics) == {"u"}
    assert cache.topic_by_id(ONE) is None


def test_a_topic_that_is_gone_is_forgotten_one_without_leaders_is_not() -> None:
    cache = knowing(described())
    electing = MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    cache.update(answer(electing), covers_all=False)
    assert cache.topic("t") is not None
    gone = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(answer(gone), covers_all=False)
    assert cache.topic("t") is None
    assert cache.error_of("t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_named_in_passing_counts_if_it_is_newer() -> None:
    cache = knowing(described(leader=1, epoch=5, partitions=2))
    assert not cache.update_leader("t", 0, 2, 5)
    assert cache.update_leader("t", 0, 2, 6)
    assert not cache.update_leader("t", 9, 2, 6)
    assert leader(cache) == (2, 6)
    assert [one.index for one in cache.topics["t"].partitions] == [0, 1]
