"""Keys go where Java's clients send them."""

import pytest

from lograft.client.producing.partitioner import StickyChoice, murmur2
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
