"""Fails a test file that leaves clients running: they would continue to connect to servers that
have been stopped, and print errors during later tests."""

import gc
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

#: The name of the first thread of every librdkafka client.
LIBRDKAFKA_THREAD: Final = "rdk:main"
#: Threads of kafka-python, and of lograft.client.blocking.
PYTHON_THREADS: Final = (
    "kafka-",
    "lograft producer",
    "lograft consumer",
    "lograft administrator",
)
CLOSING_SECONDS_MAX: Final = 10.0

# A background job of a shell ignores SIGINT, and one of nohup SIGHUP. Child processes inherit that,
# and tests send these signals to commands that they start. A handler, unlike an ignored signal, is
# reset in a child process.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


def client_threads() -> dict[int, str]:
    """Names of the clients' threads in this process, by thread id."""
    found = {
        thread.native_id: thread.name
        for thread in threading.enumerate()
        if thread.native_id is not None and thread.name.startswith(PYTHON_THREADS)
    }
    for task in Path("/proc/self/task").glob("*/comm"):
        try:
            name = task.read_text().strip()
        except OSError:
            continue  # The thread has just ended.
        if name == LIBRDKAFKA_THREAD:
            found[int(task.parent.name)] = name
    return found


@pytest.fixture(scope="session", autouse=True)
def _no_clients_are_left_at_the_end() -> Iterator[None]:
    """The clients of fixtures that all test files share."""
    yield
    _check_closed(set())


@pytest.fixture(scope="module", autouse=True)
def _no_clients_are_left() -> Iterator[None]:
    # Clients of fixtures that all test files share are older than this one.
    before = set(client_threads())
    yield
    _check_closed(before)


def _check_closed(expected: set[int]) -> None:
    deadline = time.monotonic() + CLOSING_SECONDS_MAX
    while left := client_threads().keys() - expected:
        # A client whose call failed is in a cycle with the traceback of its exception.
        gc.collect()
        if time.monotonic() > deadline:
            pytest.fail(
                f"the tests leave {len(left)} clients running: close them, or let a context"
                " manager do it",
                pytrace=False,
            )
        time.sleep(0.01)
