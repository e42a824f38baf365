import gzip
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.wire.compression import (
    SNAPPY_FRAME_MARK,
    Codec,
    DecompressedTooLarge,
    DecompressionFailed,
    compress,
    decompress,
)

CODECS = list(Codec)
PACKERS = [codec for codec in Codec if codec != Codec.NONE]


@given(st.sampled_from(CODECS), st.binary(max_size=500), st.integers(1, 300))
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    packed = compress(codec, data * times)
    assert bytes(decompress(codec, packed, len(data) * times)) == data * times


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_above_the_limit_is_rejected(codec: Codec) -> None:
    data = b"0123456789" * 20_000
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, len(data))) == data
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", PACKERS)
def test_bombs_allocate_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKERS)
def test_truncated_streams_are_rejected(codec: Codec) -> None:
    packed = compress(codec, b"some text that does not repeat much 1234567890" * 20)
    with pytest.raises(DecompressionFailed):
        decompress(codec, packed[:-5], 10_000)


@given(st.sampled_from(PACKERS), st.binary(min_size=1, max_size=200))
def test_garbage_is_rejected_or_read(codec: Codec, garbage: bytes) -> None:
    try:
        assert len(decompress(codec, garbage, 1000)) <= 1000
    except DecompressionFailed:
        pass


def test_snappy_with_and_without_java_framing() -> None:
    data = b"abc" * 50_000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(SNAPPY_FRAME_MARK)
    assert decompress(Codec.SNAPPY, framed, len(data)) == data
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Codec.SNAPPY, raw, len(data)) == data


def test_lz4_blocks_do_not_refer_to_each_other() -> None:
    """Kafka's decoder rejects frames without this flag."""
    assert compress(Codec.LZ4, b"x" * 100)[4] & 0x20


def test_gzip_of_several_members() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed, 6) == b"onetwo"
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, packed, 5)


def test_unknown_codecs_are_rejected() -> None:
    with pytest.raises(DecompressionFailed, match="codec 5 does not exist"):
        decompress(5, b"", 10)
    with pytest.raises(DecompressionFailed, match="codec 7 does not exist"):
        compress(7, b"")
