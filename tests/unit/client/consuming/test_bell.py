"""The bell: who waits hears it in the next turn, or at once where no task runs; it may give up."""

import asyncio

from lograft.client.consuming.bell import Bell
from lograft.runtime.clock import SystemClock
from tests.support.scenarios import scenario


@scenario()
async def test_who_waits_hears_it_in_the_next_turn() -> None:
    bell = Bell(SystemClock())
    waits = asyncio.ensure_future(bell.wait(None))
    await asyncio.sleep(0)
    bell.ring()
    assert not waits.done()
    assert await waits
    assert await bell.wait(None), "it has rung since the last look"


@scenario()
async def test_who_waits_goes_on_inside_the_call_where_no_task_runs() -> None:
    bell = Bell(SystemClock())
    seen: list[str] = []

    async def listen() -> None:
        assert await bell.wait(None)
        seen.append("heard")
        bell.look()
        assert await bell.wait(None)
        seen.append("heard again")

    def ring() -> None:
        bell.ring_now()
        seen.append("rung")

    listener = asyncio.ensure_future(listen())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(ring)
    await asyncio.sleep(0)
    assert seen == ["heard", "rung"]
    bell.ring_now()
    assert seen == ["heard", "rung"], "this task runs"
    await listener
    assert seen == ["heard", "rung", "heard again"]


@scenario()
async def test_waiting_ends_at_the_deadline_and_can_be_given_up() -> None:
    clock = SystemClock()
    bell = Bell(clock)
    assert not await bell.wait(clock.mono_ms())
    assert not await bell.wait(clock.mono_ms() + 5)
    waits = asyncio.ensure_future(bell.wait(None))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    assert waits.cancelled()
    bell.ring_now()
    assert await bell.wait(None)
