"""Those who wait for room in the buffer, in the order in which they came.

Who came first is served first, however little the others need: a small record that took the room
that a large one waits for would overtake it, and might be meant for the same partition. All whom
the room suffices for are served in one go: if each had to wake up first, and stood in line again
with its next record, the line would never end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from lograft.client.errors import BufferFull, TimedOut
from lograft.client.producing.settings import ProducerSettings

T = TypeVar("T")


class _Turn:
    __slots__ = ("bytes_needed", "error", "is_over", "put", "result")

    def __init__(self, put: Callable[[], Any], bytes_needed: int) -> None:
        self.put = put
        self.bytes_needed = bytes_needed
        self.is_over = asyncio.Event()
        self.result: Any = None
        self.error: Exception | None = None


class Line:
    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._turns: deque[_Turn] = deque()
        #: The first in line puts its record in: to others the buffer is full.
        self.is_serving = False

    def __len__(self) -> int:
        return len(self._turns)

    async def wait(self, put: Callable[[], T], refused: BufferFull, *, rest_ms: int) -> T:
        """What `put` returns, which has been refused, when it is served. Raises TimedOut."""
        turn = _Turn(put, refused.bytes_needed)
        self._turns.append(turn)
        try:
            async with asyncio.timeout(max(rest_ms, 0) / 1000):
                await turn.is_over.wait()
        except TimeoutError:
            if not turn.is_over.is_set():
                raise TimedOut(
                    f"no room in buffer.memory ({self._settings.buffer_memory} bytes) within"
                    f" max.block.ms ({self._settings.max_block_ms}): the brokers are slower than"
                    " this producer, or not there"
                ) from None
        finally:
            if not turn.is_over.is_set():
                self._turns.remove(turn)
        if turn.error is not None:
            raise turn.error
        result: T = turn.result
        return result

    def serve(self, free_bytes: Callable[[], int]) -> None:
        """One after the other, as long as there is room for the first."""
        turns = self._turns
        while turns and turns[0].bytes_needed <= free_bytes():
            turn = turns[0]
            self.is_serving = True
            try:
                turn.result = turn.put()
            except Exception as error:
                if isinstance(error, BufferFull) and error.bytes_needed > free_bytes():
                    # Its serializer has made more of it than before.
                    turn.bytes_needed = error.bytes_needed
                    return
                turn.error = error
            finally:
                self.is_serving = False
            turns.popleft()
            turn.is_over.set()
