"""Runs the `lograft` command and counts the function calls of its process.

    python -m bench.micro.counted_node SOCKET lograft server server.properties

Each connection to the Unix socket SOCKET gets the calls since the start as a JSON object: those of
Python functions by name (`calls`; resuming a coroutine counts as a call), and the number of those
of C functions (`c_calls`). The thread that reports is not counted.
"""

import json
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import lograft
from lograft.cli.main import main as run_command

SOURCE: Final = f"{Path(lograft.__file__).parent}/"


class CallCounter:
    def __init__(self) -> None:
        self._calls: Counter[CodeType] = Counter()
        self._c_calls = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._calls[frame.f_code] += 1
        elif event == "c_call":
            self._c_calls += 1

    def report(self) -> str:
        calls: Counter[str] = Counter()
        for code, count in self._calls.copy().items():
            calls[f"{code.co_filename.removeprefix(SOURCE)}: {code.co_qualname}"] += count
        return json.dumps({"calls": calls, "c_calls": self._c_calls})


def serve(counter: CallCounter, listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(counter.report().encode())


def main() -> None:
    _, path, *sys.argv = sys.argv
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    counter = CallCounter()
    threading.Thread(target=serve, args=(counter, listener), daemon=True).start()
    threading.setprofile(counter)
    sys.setprofile(counter)
    run_command()


if __name__ == "__main__":
    main()
