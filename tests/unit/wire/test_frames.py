"""Any split of the stream gives the same frames; announced sizes allocate no memory."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.wire.errors import FrameTooLarge
from lograft.wire.frames import (
    BASE_BYTES,
    SMALL_FRAMES_TO_SHRINK,
    START_BYTES,
    FrameBuffer,
)

LIMIT = 4 * 1024 * 1024


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def feed(buffer: FrameBuffer, stream: bytes, chunks: list[int]) -> list[bytes]:
    """Delivers the stream as a socket would: each read returns at most the next chunk."""
    frames: list[bytes] = []
    position, turn = 0, 0
    while position < len(stream):
        room = buffer.get_buffer()
        assert len(room) > 0
        count = min(len(room), chunks[turn % len(chunks)], len(stream) - position)
        room[:count] = stream[position : position + count]
        position += count
        turn += 1
        frames += [bytes(frame) for frame in buffer.add_received(count)]
    return frames


@given(
    st.lists(st.integers(0, 3 * START_BYTES), max_size=12),
    st.lists(st.integers(1, 2 * START_BYTES), min_size=1, max_size=5),
)
def test_any_split_gives_the_same_frames(sizes: list[int], chunks: list[int]) -> None:
    frames = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    assert feed(FrameBuffer(LIMIT), framed(frames), chunks) == frames


@pytest.mark.parametrize("chunk", [1000, BASE_BYTES - 1, BASE_BYTES, LIMIT])
def test_large_frames_between_small_ones(chunk: int) -> None:
    chance = random.Random(7)
    sizes = [0, 10, 1_000_000, 3, BASE_BYTES - 4, BASE_BYTES - 3, BASE_BYTES, 2_500_000, 1, 70_000]
    frames = [chance.randbytes(size) for size in sizes]
    assert feed(FrameBuffer(LIMIT), framed(frames), [chunk]) == frames


def test_every_split_of_a_short_stream_gives_the_same_frames() -> None:
    stream = framed([b"", b"ab", b"cde"])
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            chunks = [first, second - first, len(stream)]
            whole = feed(FrameBuffer(LIMIT), stream, [c for c in chunks if c] or [1])
            assert whole == [b"", b"ab", b"cde"]


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_invalid_size_raises_after_the_frames_before_it(size: int) -> None:
    buffer = FrameBuffer(LIMIT)
    stream = framed([b"good"]) + size.to_bytes(4, "big", signed=True)
    buffer.get_buffer()[: len(stream)] = stream
    frames = buffer.add_received(len(stream))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameTooLarge) as raised:
        next(frames)
    assert raised.value.size == size


def test_the_limit_itself_is_allowed() -> None:
    frame = b"x" * 5000
    assert feed(FrameBuffer(5000), framed([frame]), [4096]) == [frame]


def test_announced_sizes_allocate_nothing() -> None:
    tracemalloc.start()
    buffers = []
    for _ in range(200):
        buffer = FrameBuffer(2**31 - 1)
        buffer.get_buffer()[:4] = (2**31 - 1).to_bytes(4, "big")
        assert list(buffer.add_received(4)) == []
        buffer.get_buffer()
        buffers.append(buffer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * (BASE_BYTES + START_BYTES) * 1.1
    assert all(buffer.capacity <= BASE_BYTES for buffer in buffers)


def test_memory_grows_with_the_bytes_received() -> None:
    buffer = FrameBuffer(1 << 30)
    buffer.get_buffer()[:4] = (1 << 30).to_bytes(4, "big")
    assert list(buffer.add_received(4)) == []
    received = 4
    while received < 3_000_000:
        room = buffer.get_buffer()
        assert buffer.capacity <= max(BASE_BYTES, 4 * received)
        count = min(len(room), 50_000)
        assert list(buffer.add_received(count)) == []
        received += count


def test_stream_of_large_frames_is_received_in_place() -> None:
    frame = b"y" * 1_000_000
    buffer = FrameBuffer(LIMIT)
    feed(buffer, framed([frame]), [LIMIT])
    feed(buffer, framed([frame]), [START_BYTES])
    capacity = buffer.capacity
    assert len(frame) + 4 <= capacity
    # The size was received alone; the rest of the frame then gets a buffer of exactly its size.
    buffer.get_buffer()[:4] = len(frame).to_bytes(4, "big")
    assert list(buffer.add_received(4)) == []
    assert len(buffer.get_buffer()) == len(frame)
    assert buffer.capacity == capacity


def test_large_buffer_is_released_after_small_frames() -> None:
    buffer = FrameBuffer(LIMIT)
    feed(buffer, framed([b"z" * 1_000_000]), [LIMIT])
    assert buffer.capacity > BASE_BYTES
    feed(buffer, framed([b"small"] * SMALL_FRAMES_TO_SHRINK), [9])
    buffer.get_buffer()
    assert buffer.capacity == BASE_BYTES
    buffer.shrink()
    assert buffer.capacity == START_BYTES


def test_shrink_keeps_pending_bytes() -> None:
    buffer = FrameBuffer(LIMIT)
    stream = framed([b"q" * 30_000])
    first = feed(buffer, stream[:20_000], [LIMIT])
    assert first == []
    buffer.shrink()
    assert feed(buffer, stream[20_000:], [LIMIT]) == [b"q" * 30_000]


def test_frames_may_be_consumed_one_at_a_time() -> None:
    buffer = FrameBuffer(LIMIT)
    stream = framed([b"one", b"two"])
    buffer.get_buffer()[: len(stream)] = stream
    assert bytes(next(buffer.add_received(len(stream)))) == b"one"
    assert bytes(next(buffer.frames())) == b"two"
    assert buffer.pending_bytes == 0


def test_released_buffer_is_empty() -> None:
    buffer = FrameBuffer(1 << 20)
    view = buffer.get_buffer()
    view[:4] = (1 << 20).to_bytes(4, "big")
    assert list(buffer.add_received(4)) == []
    buffer.release()
    assert (buffer.capacity, buffer.pending_bytes) == (0, 0)
