from typing import cast
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.partitions.partition import Partition, PartitionHost
from lograft.broker.partitions.replication_throttle import (
    LEADER_RATE,
    ReplicationThrottle,
    is_throttled,
)
from lograft.model.settings.broker import with_dynamic
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import NodeId
from tests.unit.broker.bench import make_config


def throttle(**rates: str) -> ReplicationThrottle:
    """`default` for all brokers, `broker` for this one."""
    config = with_dynamic(
        make_config(),
        default={LEADER_RATE: rates["default"]} if "default" in rates else {},
        broker={LEADER_RATE: rates["broker"]} if "broker" in rates else {},
    )
    return ReplicationThrottle(LEADER_RATE, ClusterMetadata(config))


def test_without_a_rate_nothing_is_held_back() -> None:
    limited = throttle()
    limited.record(10**12, now_ms=0)
    assert limited.rate is None
    assert not limited.is_exceeded(now_ms=0)


def test_a_brokers_own_rate_goes_before_the_one_of_all() -> None:
    assert throttle(default="5").rate == 5
    assert throttle(default="5", broker="7").rate == 7


def test_a_burst_is_paid_for_before_the_next() -> None:
    limited = throttle(default="1000")
    assert not limited.is_exceeded(now_ms=0)
    limited.record(3_000, now_ms=0)
    assert limited.is_exceeded(now_ms=500)
    assert limited.is_exceeded(now_ms=2_900)
    assert not limited.is_exceeded(now_ms=3_100)


def test_what_is_long_ago_does_not_count() -> None:
    limited = throttle(default="1000")
    limited.record(10**9, now_ms=0)
    limited.record(10, now_ms=9_000)
    assert limited.is_exceeded(now_ms=10_000)
    assert not limited.is_exceeded(now_ms=12_000)


def test_the_settings_of_the_window_say_how_long_bytes_count() -> None:
    config = with_dynamic(
        make_config(replication_quota_window_num="2", replication_quota_window_size_seconds="2"),
        default={LEADER_RATE: "1000"},
        broker={},
    )
    short = ReplicationThrottle(LEADER_RATE, ClusterMetadata(config))
    short.record(10**9, now_ms=0)
    assert short.is_exceeded(now_ms=4_000)
    assert not short.is_exceeded(now_ms=4_001)


def test_a_rate_of_zero_lets_nothing_through() -> None:
    assert throttle(default="0").is_exceeded(now_ms=0)


def test_replicas_are_named_one_by_one_or_all_at_once() -> None:
    partition = Partition(
        "a",
        3,
        topic_id=UUID(int=1),
        me=NodeId(1),
        config=TopicConfig(),
        host=cast(PartitionHost, object()),
    )
    assert not is_throttled((), partition, NodeId(1))
    assert is_throttled(("*",), partition, NodeId(1))
    assert is_throttled(("0:1", "3:1"), partition, NodeId(1))
    assert not is_throttled(("3:2", "1:1"), partition, NodeId(1))
