"""Keeps simulated code away from the machine: threads, sockets, processes, signals, sleeping.

What passes a fence silently makes a run depend on the machine, so each of these raises while a
simulated run is on. The patches are undone at the end: pytest itself needs threads.
"""

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


def _fenced(name: str, original: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def refuse(*args: Any, **keywords: Any) -> Any:
        # Threads that were there before have nothing to do with the run.
        if threading.get_ident() != thread:
            return original(*args, **keywords)
        raise FenceBroken(f"{name} in a simulated run: go through the seams")

    return refuse


@contextlib.contextmanager
def fence() -> Iterator[None]:
    thread = threading.get_ident()
    originals = [(owner, name, getattr(owner, name)) for owner, name in FENCED]
    for owner, name, original in originals:
        setattr(owner, name, _fenced(f"{owner.__name__}.{name}", original, thread))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
