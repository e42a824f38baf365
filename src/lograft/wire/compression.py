"""Kafka's codecs: none, gzip, snappy, lz4 and zstd, each with a limit for the decompressed size.

A few bytes of a hostile batch can decompress to gigabytes. This module never allocates more than
`bytes_max` of output (plus an eighth of it while the output grows): gzip stops at the limit, snappy
has the size at its start, lz4 and zstd decompress into a buffer that never exceeds the limit.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from lograft.model.seams import Buffer
from lograft.wire.errors import MalformedMessage


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def text(self) -> str:
        """The value of `compression.type`, of topics and producers."""
        return self.name.lower()


class DecompressionFailed(MalformedMessage):
    """The bytes are not a valid stream of the codec."""


class DecompressedTooLarge(DecompressionFailed):
    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"compressed data exceeds {bytes_max} bytes when decompressed")


#: Header of snappy streams of the Java clients: this mark, two version numbers, then blocks with
#: their size.
SNAPPY_FRAME_MARK: Final = b"\x82SNAPPY\x00"
SNAPPY_FRAME_HEADER: Final = SNAPPY_FRAME_MARK + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK_BYTES: Final = 32 * 1024
FIRST_OUTPUT_BYTES: Final = 64 * 1024
GZIP_STEP_BYTES: Final = 16 * 1024


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """`level` is in the codec's own scale; None means the codec's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _snappy_compress(memoryview(data))
    if codec == Codec.LZ4:
        # Kafka's decoder rejects blocks that refer to earlier ones, so block_linked=False.
        lz4 = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise DecompressionFailed(f"codec {codec} does not exist")


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Raises DecompressedTooLarge instead of allocating more than `bytes_max` bytes of output."""
    if codec == Codec.NONE:
        if len(data) > bytes_max:
            raise DecompressedTooLarge(bytes_max)
        return data
    if codec == Codec.GZIP:
        return _gzip_decompress(data, bytes_max)
    if codec == Codec.SNAPPY:
        return _snappy_decompress(memoryview(data), bytes_max)
    if codec == Codec.LZ4 or codec == Codec.ZSTD:
        return _decompress_into(codec, data, bytes_max)
    raise DecompressionFailed(f"codec {codec} does not exist")


def _gzip_decompress(data: Buffer, bytes_max: int) -> bytearray:
    output = bytearray()
    rest = memoryview(data)
    while len(rest):  # a stream may consist of several members
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            # Small steps: the unused rest of the input is copied for each member, and there may be
            # very many members.
            step = rest[:GZIP_STEP_BYTES]
            if not len(step):
                raise DecompressionFailed("gzip: the stream is truncated")
            try:
                output += unpacker.decompress(step, bytes_max + 1 - len(output))
            except zlib.error as error:
                raise DecompressionFailed(f"gzip: {error}") from None
            if len(output) > bytes_max:
                raise DecompressedTooLarge(bytes_max)
            rest = rest[len(step) - len(unpacker.unused_data) :]
    return output


def _snappy_compress(data: memoryview) -> bytes:
    parts = [SNAPPY_FRAME_HEADER]
    for start in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + SNAPPY_BLOCK_BYTES]))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(SNAPPY_FRAME_MARK)]) != SNAPPY_FRAME_MARK:
        return _snappy_block(data, bytes_max)
    position, total = len(SNAPPY_FRAME_HEADER), 0
    parts = []
    while position < len(data):
        if position + 4 > len(data):
            raise DecompressionFailed("snappy: the size of a block is truncated")
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionFailed("snappy: a block is truncated")
        parts.append(_snappy_block(data[position : position + size], bytes_max - total))
        total += len(parts[-1])
        position += size
    return b"".join(parts)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > bytes_max:
            raise DecompressedTooLarge(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionFailed(f"snappy: {error}") from None


def _decompress_into(codec: int, data: Buffer, bytes_max: int) -> memoryview:
    """Tries buffers of increasing size: neither codec reliably has the decompressed size."""
    into = cramjam.lz4.decompress_into if codec == Codec.LZ4 else cramjam.zstd.decompress_into
    size = min(bytes_max, max(FIRST_OUTPUT_BYTES, 8 * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = into(data, output)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecompressionFailed(f"{Codec(codec).text}: {error}") from None
            if size >= bytes_max:
                raise DecompressedTooLarge(bytes_max) from None
            size = min(bytes_max, size * 8)
            continue
        return memoryview(output)[:written]
