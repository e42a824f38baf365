"""Splits the bytes of a connection into frames: an int32 size, then that many bytes.

Bytes are received in place: `get_buffer` returns the buffer for the next ones, `add_received`
returns the complete frames as views, without a copy. A size that a peer announces allocates
nothing: memory grows only with the bytes received.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from lograft.wire.errors import FrameTooLarge

_SIZE: Final = Struct(">i")
#: Most connections only ever send small requests, and there may be thousands of them.
START_BYTES: Final = 4 * 1024
BASE_BYTES: Final = 64 * 1024
#: A buffer grows to this multiple of the received part of a frame.
GROWTH: Final = 4
#: After this many frames in a row that would fit into BASE_BYTES, a larger buffer is released.
SMALL_FRAMES_TO_SHRINK: Final = 64


class FrameBuffer:
    """The receive buffer of one connection.

    Invariant: 0 <= start <= end <= capacity; [start, end) has been received but not returned.
    """

    __slots__ = ("_data", "_end", "_filled_up", "_small_frames", "_start", "_view", "limit")

    def __init__(self, limit: int) -> None:
        #: Largest accepted frame; may be raised once the peer has been identified.
        self.limit = limit
        self._start = 0
        self._end = 0
        self._small_frames = 0
        #: The last read filled the buffer, so more bytes are probably waiting.
        self._filled_up = False
        self._allocate(START_BYTES)

    @property
    def capacity(self) -> int:
        return len(self._data)

    @property
    def pending_bytes(self) -> int:
        """Bytes received that are not part of a complete frame yet."""
        return self._end - self._start

    @property
    def incomplete_frame_bytes(self) -> int:
        """The size of the partly received frame; 0 if there is none, if its size is not known yet,
        or if complete frames precede it."""
        pending = self._end - self._start
        if pending < 4:
            return 0
        size: int = 4 + _SIZE.unpack_from(self._data, self._start)[0]
        return size if size > pending else 0

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty. Earlier frames become invalid.

        While a large frame is received, the buffer ends with that frame, so that the next frame
        starts at the start of the buffer and never has to be moved.
        """
        start, end, capacity = self._start, self._end, len(self._data)
        pending = end - start
        if pending == 0:
            self._start = self._end = end = start = 0
            if capacity > BASE_BYTES and self._small_frames >= SMALL_FRAMES_TO_SHRINK:
                self._allocate(BASE_BYTES)
                capacity = BASE_BYTES
        size = 4 if pending < 4 else 4 + _SIZE.unpack_from(self._data, start)[0]
        if capacity < BASE_BYTES and (self._filled_up or size > capacity):
            self._move_to(BASE_BYTES)
        elif pending == capacity:
            self._move_to(min(size, GROWTH * pending))
        elif start > 0 and (start + size > capacity or end == capacity):
            self._move_to(capacity)
        start, end, capacity = self._start, self._end, len(self._data)
        if size > BASE_BYTES:
            return self._view[end : min(start + size, capacity)]
        return self._view[end:]

    def add_received(self, count: int) -> Iterator[memoryview]:
        """Adds `count` bytes at the start of the last buffer; see `frames`."""
        self._filled_up = self._end + count == len(self._data)
        self._end += count
        assert self._end <= len(self._data), (self._end, len(self._data))
        return self.frames()

    def frames(self) -> Iterator[memoryview]:
        """Yields the complete frames, without their sizes. They may be consumed at different times,
        but all before the next call of get_buffer. Raises FrameTooLarge at an invalid size: the
        frames before it are valid."""
        data, view = self._data, self._view
        while self._end - self._start >= 4:
            (size,) = _SIZE.unpack_from(data, self._start)
            if not 0 <= size <= self.limit:
                raise FrameTooLarge(size, self.limit)
            begin = self._start + 4
            stop = begin + size
            if stop > self._end:
                return
            self._small_frames = self._small_frames + 1 if size + 4 <= BASE_BYTES else 0
            self._start = stop
            yield view[begin:stop]

    def shrink(self) -> None:
        """Releases memory that an idle connection does not need."""
        if self._start == self._end and len(self._data) > START_BYTES:
            self._start = self._end = 0
            self._filled_up = False
            self._allocate(START_BYTES)

    def release(self) -> None:
        """The last call: releases everything immediately, even if the object is still
        referenced."""
        self._start = self._end = 0
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        # Never resized in place, because views of it may still be in use.
        self._data = bytearray(capacity)
        self._view = memoryview(self._data)

    def _move_to(self, capacity: int) -> None:
        """Moves the pending bytes to the start of a new buffer of that capacity."""
        pending = self._view[self._start : self._end]
        if capacity != len(self._data):
            self._allocate(capacity)
        self._view[: len(pending)] = pending
        self._start, self._end = 0, len(pending)
