"""gzip streams with several members, which are valid, and with very many, which are hostile."""

import gzip
import tracemalloc

import pytest

from lograft.wire.compression import Codec, DecompressedTooLarge, DecompressionFailed, decompress


def test_several_members_are_decompressed() -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two" * 10_000)
    assert decompress(Codec.GZIP, data, 100_000) == b"one " + b"two" * 10_000


def test_many_members_are_not_copied_for_each() -> None:
    """The rest of the input was once copied for every member: quadratic in time."""
    data = gzip.compress(b"") * 3_000
    tracemalloc.start()
    try:
        assert decompress(Codec.GZIP, data, 1_000) == b""
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data)


def test_members_share_one_limit() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, gzip.compress(bytes(600)) * 2, 1_000)


@pytest.mark.parametrize("cut", [1, 7, 15])
def test_truncated_stream_is_rejected(cut: int) -> None:
    data = gzip.compress(b"one") * 2
    with pytest.raises(DecompressionFailed):
        decompress(Codec.GZIP, data[:-cut], 1_000)
