"""Partitions by key, as in the Java client, sticky partitions, and custom partitioners."""

from typing import Any

import numpy as np
import pytest

from lograft.client.cluster_view import ClusterView
from lograft.client.errors import WrongUse
from lograft.client.metadata import MetadataCache
from lograft.client.producing.partitioner import (
    Chooser,
    PartitionFunction,
    StickyPartition,
    UnassignedRecord,
    murmur2,
)
from lograft.runtime.randomness import SystemRandomness


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # Results of org.apache.kafka.common.utils.Utils.murmur2, with the sign bit.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0x7FFF_FFFF


def test_partition_is_kept_for_a_batch_and_short_queues_are_preferred() -> None:
    sticky = StickyPartition(SystemRandomness())
    first = sticky.draw([0, 1, 2], None)
    sticky.add(99, 100)
    assert sticky.partition == first
    sticky.add(1, 100)
    assert sticky.partition == -1
    drawn = [sticky.draw([4, 5], [9, 0]) for _ in range(1_000)]
    assert 30 < drawn.count(4) < 200


def always(chosen: Any) -> PartitionFunction:
    def partitioner(topic: str, key: bytes | None, partition_count: int) -> int:
        number: int = chosen
        return number

    return partitioner


def test_invalid_choice_of_partitioner_is_rejected() -> None:
    record = UnassignedRecord("t", "k", b"k", "v", b"v")
    cluster = ClusterView(MetadataCache())
    for valid in (0, 2, np.int64(1)):
        assert Chooser(always(valid), cluster).choose(record, 3) == valid
    for invalid in (3, -1, "0", None, 1.0):
        with pytest.raises(WrongUse, match=r"partitioner_class chose partition .* which has 3"):
            Chooser(always(invalid), cluster).choose(record, 3)
