"""Clock, randomness, tasks and event loop of a real node."""

import asyncio
from typing import cast

import pytest

from lograft.model.seams import Runtime, Transport
from lograft.model.uuids import uuid_from_text, uuid_to_text
from lograft.runtime.clock import SystemClock
from lograft.runtime.event_loop import fastest_loop_factory, run
from lograft.runtime.randomness import SystemRandomness
from lograft.runtime.system import system_runtime
from lograft.runtime.workers import ThreadWorkers


def test_clocks_agree_with_each_other() -> None:
    clock = SystemClock()
    first = clock.mono_ns()
    assert first // 1_000_000 <= clock.mono_ms() <= clock.mono_ns() // 1_000_000
    assert clock.wall_ms() > 1_700_000_000_000


def test_uuids_are_random_and_do_not_start_with_a_dash() -> None:
    randomness = SystemRandomness()
    uuids = {randomness.uuid() for _ in range(2000)}
    assert len(uuids) == 2000
    assert not any(uuid_to_text(value).startswith("-") for value in uuids)
    assert all(uuid_from_text(uuid_to_text(value)) == value for value in uuids)
    assert {value.version for value in uuids} == {4}


def test_numbers_stay_in_their_range() -> None:
    randomness = SystemRandomness()
    assert {randomness.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(1.0 <= randomness.uniform(1.0, 2.0) <= 2.0 for _ in range(100))
    assert len(randomness.bytes(7)) == 7


def build(group: asyncio.TaskGroup) -> Runtime:
    return system_runtime(
        transport=cast(Transport, None), workers=ThreadWorkers(), task_group=group
    )


def test_failing_task_ends_the_node() -> None:
    cancelled: list[str] = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("sibling")
            raise

    async def fail() -> None:
        raise RuntimeError("broken")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            runtime = build(group)
            runtime.spawn(wait_forever(), name="sibling")
            runtime.spawn(fail(), name="broken")

    with pytest.raises(ExceptionGroup) as caught:
        run(main())
    assert [str(error) for error in caught.value.exceptions] == ["broken"]
    assert cancelled == ["sibling"]


def test_cancelled_task_does_not_affect_others() -> None:
    async def main() -> str:
        async with asyncio.TaskGroup() as group:
            task = build(group).spawn(asyncio.sleep(3600), name="parked")
            task.cancel()
        return "the node goes on"

    assert run(main()) == "the node goes on"


def test_uvloop_is_used_if_it_is_installed() -> None:
    uvloop = pytest.importorskip("uvloop")
    assert fastest_loop_factory() is uvloop.new_event_loop
