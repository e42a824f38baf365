"""The metadata cache: newer leader epochs win, and topics are added and removed."""

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


def response_of(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, topics=list(topics), cluster_id="c")


def cache_of(*topics: MetadataResponseTopic) -> MetadataCache:
    cache = MetadataCache()
    assert cache.update(response_of(*topics), covers_all=False)
    return cache


def leader(cache: MetadataCache) -> tuple[int, int]:
    partition = cache.partition("t", 0)
    assert partition is not None
    return partition.leader, partition.leader_epoch


def test_older_epoch_is_ignored_and_newer_one_applied() -> None:
    cache = cache_of(described(leader=1, epoch=5))
    cache.update(response_of(described(leader=2, epoch=4)), covers_all=False)
    assert leader(cache) == (1, 5)
    cache.update(response_of(described(leader=2, epoch=6)), covers_all=False)
    assert leader(cache) == (2, 6)


def test_same_epoch_is_applied_because_the_leader_may_have_failed() -> None:
    cache = cache_of(described(leader=1, epoch=5))
    cache.update(response_of(described(leader=-1, epoch=5)), covers_all=False)
    assert leader(cache) == (-1, 5)


def test_recreated_topic_has_its_own_epochs() -> None:
    cache = cache_of(described(leader=1, epoch=5))
    cache.update(response_of(described(leader=2, epoch=0, topic_id=OTHER)), covers_all=False)
    assert leader(cache) == (2, 0)
    assert cache.topic_by_id(ONE) is None
    found = cache.topic_by_id(OTHER)
    assert found is not None
    assert found.name == "t"


def test_response_without_brokers_is_ignored() -> None:
    cache = cache_of(described())
    assert not cache.update(MetadataResponse(), covers_all=True)
    assert leader(cache) == (1, 0)


def test_partial_response_keeps_other_topics() -> None:
    cache = cache_of(described("t"), described("u", topic_id=OTHER))
    cache.update(response_of(described("u", topic_id=OTHER)), covers_all=False)
    assert set(cache.topics) == {"t", "u"}
    cache.update(response_of(described("u", topic_id=OTHER)), covers_all=True)
    assert set(cache.topics) == {"u"}
    assert cache.topic_by_id(ONE) is None


def test_deleted_topic_is_removed_and_topic_without_leader_is_kept() -> None:
    cache = cache_of(described())
    electing = MetadataResponseTopic(name="t", error_code=ErrorCode.LEADER_NOT_AVAILABLE)
    cache.update(response_of(electing), covers_all=False)
    assert cache.topic("t") is not None
    deleted = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cache.update(response_of(deleted), covers_all=False)
    assert cache.topic("t") is None
    assert cache.error_of("t") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_update_leader_applies_newer_epochs_only() -> None:
    cache = cache_of(described(leader=1, epoch=5, partitions=2))
    assert not cache.update_leader("t", 0, 2, 5)
    assert cache.update_leader("t", 0, 2, 6)
    assert not cache.update_leader("t", 9, 2, 6)
    assert leader(cache) == (2, 6)
    assert [partition.index for partition in cache.topics["t"].partitions] == [0, 1]
