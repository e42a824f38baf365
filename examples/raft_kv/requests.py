"""What clients wait for, from their question to the answer.

A command waits to be appended, then, at its offset, to be applied. A question waits for a record to
be appended behind it, then for that record to be applied.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from examples.raft_kv.entries import BARRIER
from lograft.model.errors import LograftError
from lograft.model.types import Offset

#: Commands and questions that wait to be appended; more are refused.
REQUESTS_MAX: Final = 10_000
BATCH_COMMANDS_MAX: Final = 1_000


class NotLeader(LograftError):
    """Certainly not done: ask the leader."""


class Uncertain(LograftError):
    """This server stopped leading: the command may or may not take effect. Ask again, with the
    same number."""


class Busy(LograftError):
    """Certainly not done: too much is waiting."""


class Waiting(NamedTuple):
    content: bytes
    answer: asyncio.Future[bytes]


class Requests:
    def __init__(self) -> None:
        self._commands: deque[Waiting] = deque()
        self._questions: deque[Waiting] = deque()
        #: Appended, not applied yet, by the offset that must be.
        self._commands_at: dict[Offset, asyncio.Future[bytes]] = {}
        self._questions_at: dict[Offset, list[Waiting]] = {}

    def __bool__(self) -> bool:
        """Whether something waits to be appended."""
        return bool(self._commands or self._questions)

    def add_command(self, command: bytes) -> asyncio.Future[bytes]:
        assert command != BARRIER
        return self._add(self._commands, command)

    def add_question(self, question: bytes) -> asyncio.Future[bytes]:
        return self._add(self._questions, question)

    def _add(self, queue: deque[Waiting], content: bytes) -> asyncio.Future[bytes]:
        if len(self._commands) + len(self._questions) >= REQUESTS_MAX:
            raise Busy("too much is waiting: try again in a moment")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        queue.append(Waiting(content, answer))
        return answer

    def take(self, base: Offset, bytes_max: int) -> list[bytes]:
        """The commands of a batch that is appended at `base` now. All questions hang on the last
        record of the last batch; without any command that is a barrier."""
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
        """Those that hang on this record, which is applied."""
        for waiting in self._questions_at.pop(offset, ()):
            if not waiting.answer.done():
                yield waiting

    def on_unlead(self) -> None:
        """Commands that are in the log may still be committed; all else certainly was not done."""
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
