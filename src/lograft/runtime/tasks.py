"""Tasks bound to the node's task group."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from lograft.model.seams import Task


class GroupSpawn:
    """A task that fails cancels its siblings and ends the group, hence the node; a task that is
    cancelled just ends."""

    __slots__ = ("_group",)

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> Task:
        return self._group.create_task(work, name=name)
