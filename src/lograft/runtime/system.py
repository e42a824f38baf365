"""Builds the six seams of a node that runs on this machine."""

import asyncio

from lograft.model.seams import Runtime, Transport, Workers
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.runtime.tasks import GroupSpawn


def system_runtime(
    *, transport: Transport, workers: Workers, task_group: asyncio.TaskGroup
) -> Runtime:
    """`transport` is created by `net/`, which this room does not import; the caller owns the
    workers and closes them after the task group has ended."""
    return Runtime(
        clock=SystemClock(),
        randomness=SystemRandomness(),
        disk=RealDisk(),
        workers=workers,
        transport=transport,
        spawn=GroupSpawn(task_group),
    )
