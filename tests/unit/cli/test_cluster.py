"""Output of `lograft cluster`."""

import pytest

from lograft.cli.cluster import describe_lines, disk_lines, format_size
from lograft.client.admin import (
    BrokerDescription,
    ClusterDescription,
    DirectoryReplica,
    FeatureLevels,
    Features,
    LogDirectory,
    TopicPartition,
)
from lograft.client.errors import broker_error
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address


def test_describe_shows_brokers_and_feature_levels() -> None:
    brokers = (
        BrokerDescription(1, Address("h", 9092), "r1", False),
        BrokerDescription(2, Address("h", 9093), None, True),
    )
    features = Features(
        {"group.version": FeatureLevels(0, 1)}, 7, {"group.version": FeatureLevels(0, 2)}
    )
    assert list(describe_lines(ClusterDescription("c", 1, brokers), features)) == [
        "cluster c",
        "",
        "BROKER  ADDRESS  RACK  STATE",
        "1       h:9092   r1    online",
        "2       h:9093   -     offline",
        "",
        "FEATURE        LEVEL  SUPPORTED",
        "group.version  1      0 to 2",
    ]


def test_disks_shows_used_and_free_space_and_errors() -> None:
    replicas = {TopicPartition("t", 0): DirectoryReplica(1500, 0, False)}
    broken = broker_error(ErrorCode.KAFKA_STORAGE_ERROR, "/b")
    directories = [LogDirectory("/a", None, 9, 5, replicas), LogDirectory("/b", broken, -1, -1, {})]
    assert disk_lines({1: directories}) == [
        "BROKER  DIRECTORY  REPLICAS  USED    FREE  ERROR",
        "1       /a         1         1.5 kB  5 B",
        "1       /b         0         0 B     -     /b: KAFKA_STORAGE_ERROR",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (5 * 10**9, "5.0 GB"), (10**13, "10.0 TB")],
)
def test_sizes_have_one_to_three_digits_before_the_point(number: int, text: str) -> None:
    assert format_size(number) == text
