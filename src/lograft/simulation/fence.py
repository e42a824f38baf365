"""Prevents simulated code from using the real machine: threads, sockets, processes, signals, sleep.

Any of these would make a run depend on the machine, so they raise during a simulated run. The
patches are removed at the end of the run, because pytest itself needs threads."""

import contextlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from lograft.simulation.errors import FenceBroken

FENCED: Final[tuple[tuple[Any, str], ...]] = (
    (threading.Thread, "start"),
    (socket.socket, "__init__"),
    (subprocess.Popen, "__init__"),
    (signal, "signal"),
    (signal, "set_wakeup_fd"),
    (time, "sleep"),
)


def _make_fenced(name: str, original: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def reject(*args: Any, **keywords: Any) -> Any:
        # Threads that existed before the run are not part of it.
        if threading.get_ident() != thread:
            return original(*args, **keywords)
        raise FenceBroken(f"{name} was called in a simulated run: use the seams")

    return reject


@contextlib.contextmanager
def fence() -> Iterator[None]:
    thread = threading.get_ident()
    originals = [(owner, name, getattr(owner, name)) for owner, name in FENCED]
    for owner, name, original in originals:
        setattr(owner, name, _make_fenced(f"{owner.__name__}.{name}", original, thread))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
