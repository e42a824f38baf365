"""Requests of clients until their responses.

A command waits until it is appended and then until its offset is applied. A query waits until a
record is appended after it, and then until that record is applied.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from examples.raft_kv.entries import BARRIER
from lograft.model.errors import LograftError
from lograft.model.types import Offset

#: Maximum number of commands and queries that wait to be appended; more are rejected.
REQUESTS_MAX: Final = 10_000
BATCH_COMMANDS_MAX: Final = 1_000


class NotLeader(LograftError):
    """Not applied: send it to the leader."""


class Uncertain(LograftError):
    """This server stopped being the leader: the command may or may not be applied. Retry with the
    same number."""


class Busy(LograftError):
    """Not applied: too many requests are waiting."""


class Waiting(NamedTuple):
    content: bytes
    answer: asyncio.Future[bytes]


class Requests:
    def __init__(self) -> None:
        self._commands: deque[Waiting] = deque()
        self._questions: deque[Waiting] = deque()
        #: Requests whose records are appended, but not applied, by offset.
        self._commands_at: dict[Offset, asyncio.Future[bytes]] = {}
        self._questions_at: dict[Offset, list[Waiting]] = {}

    def __bool__(self) -> bool:
        """Returns whether a request waits to be appended."""
        return bool(self._commands or self._questions)

    def add_command(self, command: bytes) -> asyncio.Future[bytes]:
        assert command != BARRIER
        return self._add(self._commands, command)

    def add_question(self, question: bytes) -> asyncio.Future[bytes]:
        return self._add(self._questions, question)

    def _add(self, queue: deque[Waiting], content: bytes) -> asyncio.Future[bytes]:
        if len(self._commands) + len(self._questions) >= REQUESTS_MAX:
            raise Busy("too many requests are waiting: retry later")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        queue.append(Waiting(content, answer))
        return answer

    def take(self, base: Offset, bytes_max: int) -> list[bytes]:
        """Returns the commands of the next batch, which is appended at `base`. All queries wait for
        the last record of the last batch; without a command, that is a barrier."""
        commands: list[bytes] = []
        size = 0
        while self._commands and len(commands) < BATCH_COMMANDS_MAX:
            size += len(self._commands[0].content)
            if commands and size > bytes_max:
                break
            taken = self._commands.popleft()
            self._commands_at[Offset(base + len(commands))] = taken.answer
            commands.append(taken.content)
        if not commands:
            commands.append(BARRIER)
        if not self._commands and self._questions:
            self._questions_at[Offset(base + len(commands) - 1)] = list(self._questions)
            self._questions.clear()
        return commands

    def on_applied(self, offset: Offset, answer: bytes) -> None:
        future = self._commands_at.pop(offset, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def ready_questions(self, offset: Offset) -> Iterator[Waiting]:
        """Returns the requests that wait for this record, which is now applied."""
        for waiting in self._questions_at.pop(offset, ()):
            if not waiting.answer.done():
                yield waiting

    def on_unlead(self) -> None:
        """Commands in the log may still be committed; all others were not applied."""
        unseen = [*self._commands, *self._questions]
        for questions in self._questions_at.values():
            unseen += questions
        for waiting in unseen:
            _fail(waiting.answer, NotLeader("this server leads no more"))
        for future in self._commands_at.values():
            _fail(future, Uncertain("this server leads no more"))
        self._commands.clear()
        self._questions.clear()
        self._commands_at, self._questions_at = {}, {}


def _fail(future: asyncio.Future[bytes], error: LograftError) -> None:
    if not future.done():
        future.set_exception(error)
