"""An event loop in a thread: results, errors, callers that must not wait."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from lograft.runtime.background_loop import BackgroundLoop


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    background_loop = BackgroundLoop("under test")
    background_loop.start()
    yield background_loop
    background_loop.close()


async def _where() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def _fail() -> None:
    raise ValueError("on purpose")


def test_work_runs_in_the_thread_and_returns_its_result(loop: BackgroundLoop) -> None:
    assert loop.run(_where()) == "under test"
    assert loop.call(lambda: threading.current_thread().name) == "under test"
    with pytest.raises(ValueError, match="on purpose"):
        loop.run(_fail())


def test_own_thread_cannot_wait_for_itself(loop: BackgroundLoop) -> None:
    def wait_here() -> str:
        with pytest.raises(RuntimeError, match="would wait for its own thread"):
            loop.run(_where())
        return loop.call(lambda: "at once")

    assert loop.call(wait_here) == "at once"


def test_closing_cancels_running_tasks(loop: BackgroundLoop) -> None:
    began = threading.Event()
    ended: list[BaseException] = []

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            loop.run(forever())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert began.wait(60)
    loop.close()
    thread.join(60)
    assert isinstance(ended[0], CancelledError)
    assert not loop.is_running
    with pytest.raises(RuntimeError, match="closed"):
        loop.run(_where())
