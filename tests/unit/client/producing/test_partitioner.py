"""Keys go where Java's clients send them."""

from typing import Any

import numpy as np
import pytest

from lograft.client.cluster_view import ClusterView
from lograft.client.errors import WrongUse
from lograft.client.metadata import MetadataCache
from lograft.client.producing.partitioner import (
    Chooser,
    PartitionFunction,
    StickyChoice,
    Unplaced,
    murmur2,
)
from lograft.runtime.randomness import SystemRandomness


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # What org.apache.kafka.common.utils.Utils.murmur2 says of them, made positive.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0x7FFF_FFFF


def test_a_partition_is_kept_for_a_batch_and_longer_queues_come_up_less() -> None:
    choice = StickyChoice(SystemRandomness())
    first = choice.draw([0, 1, 2], None)
    choice.add(99, 100)
    assert choice.partition == first
    choice.add(1, 100)
    assert choice.partition == -1
    drawn = [choice.draw([4, 5], [9, 0]) for _ in range(1_000)]
    assert 30 < drawn.count(4) < 200


def always(chosen: Any) -> PartitionFunction:
    def rule(topic: str, key: bytes | None, partition_count: int) -> int:
        number: int = chosen
        return number

    return rule


def test_a_rule_has_to_choose_what_there_is() -> None:
    record = Unplaced("t", "k", b"k", "v", b"v")
    cluster = ClusterView(MetadataCache())
    for right in (0, 2, np.int64(1)):
        assert Chooser(always(right), cluster).choose(record, 3) == right
    for wrong in (3, -1, "0", None, 1.0):
        with pytest.raises(WrongUse, match=r"partitioner_class chose partition .* which has 3"):
            Chooser(always(wrong), cluster).choose(record, 3)
