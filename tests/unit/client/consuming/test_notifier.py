"""The notifier wakes its waiter in the next iteration of the loop, or at once if no task runs."""

import asyncio

from lograft.client.consuming.notifier import Notifier
from lograft.runtime.clock import SystemClock
from tests.support.scenarios import scenario


@scenario()
async def test_notify_wakes_the_waiter_in_the_next_iteration() -> None:
    notifier = Notifier(SystemClock())
    waits = asyncio.ensure_future(notifier.wait(None))
    await asyncio.sleep(0)
    notifier.notify()
    assert not waits.done()
    assert await waits
    assert await notifier.wait(None), "not cleared since the notification"


@scenario()
async def test_notify_now_resumes_the_waiter_inside_the_call_unless_a_task_runs() -> None:
    notifier = Notifier(SystemClock())
    events: list[str] = []

    async def wait_twice() -> None:
        assert await notifier.wait(None)
        events.append("woken")
        notifier.clear()
        assert await notifier.wait(None)
        events.append("woken again")

    def notify() -> None:
        notifier.notify_now()
        events.append("notified")

    waiter = asyncio.ensure_future(wait_twice())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(notify)
    await asyncio.sleep(0)
    assert events == ["woken", "notified"]
    notifier.notify_now()
    assert events == ["woken", "notified"], "this task is running"
    await waiter
    assert events == ["woken", "notified", "woken again"]


@scenario()
async def test_wait_ends_at_the_deadline_and_can_be_cancelled() -> None:
    clock = SystemClock()
    notifier = Notifier(clock)
    assert not await notifier.wait(clock.mono_ms())
    assert not await notifier.wait(clock.mono_ms() + 5)
    waits = asyncio.ensure_future(notifier.wait(None))
    await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    assert waits.cancelled()
    notifier.notify_now()
    assert await notifier.wait(None)
