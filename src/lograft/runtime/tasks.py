"""The Spawn seam: tasks that belong to the node's task group or to a client."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from lograft.model.seams import Task


class GroupSpawn:
    """A task that fails cancels the other tasks and ends the group, and with it the node; a task
    that is cancelled has no effect on the others."""

    __slots__ = ("_group",)

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        return self._group.create_task(work, name=name)


class OwnedSpawn:
    """The tasks of an object that is opened and closed, such as a client. A task that fails is
    reported to `on_failure`; closing cancels the others and waits until they have ended."""

    __slots__ = ("_on_failure", "_tasks")

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)
        return task

    async def close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
