"""Runs every step of docs/tutorial/index.md in order, on free ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tools.tutorial import NOTEBOOK, Commands, File, Output, Stop, notebook_text, steps

#: First port on the page: three ports for clients, followed by three for the controllers.
PAGE_PORT = 9092
PORTS = 6
END_OF_STEP = "the step exited with code"


@contextmanager
def free_ports() -> Iterator[int]:
    """Yields the first of `PORTS` consecutive free ports."""
    for first in range(21_000, 32_000, PORTS):
        with ExitStack() as sockets:
            try:
                for port in range(first, first + PORTS):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        yield first
        return
    raise AssertionError("no free ports")


class Terminals:
    """The reader's two terminals: a shell and the server."""

    def __init__(self, directory: Path, first_port: int) -> None:
        self._directory = directory
        self._first_port = first_port
        self._server: subprocess.Popen[str] | None = None
        bin_directory = Path(sys.executable).parent
        self._environment = {
            **os.environ,
            "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            "LOGRAFT_BOOTSTRAP_SERVERS": "",
            "LOGRAFT_CONFIG_DIR": str(directory / "settings"),
            "LOGRAFT_CONTEXT": "",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._shell = subprocess.Popen(
            ["bash", "-e"],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> str:
        """Runs the commands and returns their output; fails unless all of them exit with 0."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{self.with_ports(commands)}\necho {END_OF_STEP} $?\n")
        self._shell.stdin.flush()
        output = ""
        for line in self._shell.stdout:
            if line == f"{END_OF_STEP} 0\n":
                return output
            output += line
        raise AssertionError(f"{commands} failed: {output}")

    def save(self, file: File) -> None:
        (self._directory / file.name).write_text(self.with_ports(file.text))

    def start_server(self, command: str) -> None:
        assert self._server is None, (
            "the page starts a server before it has stopped the previous one"
        )
        self._server = subprocess.Popen(
            [*command.split(), "--port", str(self._first_port)],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._server.stdout is not None
        output = ""
        for line in self._server.stdout:
            output += line
            if "Ctrl-C" in line:
                return
        raise AssertionError(f"{command} exited: {output}")

    def stop_server(self) -> None:
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.communicate(timeout=60)
        self._server = None

    def close(self) -> None:
        if self._server is not None:
            self.stop_server()
        self._shell.kill()
        self._shell.communicate()

    def with_ports(self, text: str) -> str:
        for number in range(PORTS // 2):
            text = text.replace(
                f"localhost:{PAGE_PORT + number}", f"localhost:{self._first_port + number}"
            )
        return text


@pytest.mark.timeout(600)
def test_every_step_of_the_tutorial_runs(tmp_path: Path) -> None:
    with free_ports() as first_port:
        terminals = Terminals(tmp_path, first_port)
    # The commands on the page use the default port.
    terminals.run(f"lograft context add default -b localhost:{PAGE_PORT}")
    output = ""
    try:
        for step in steps():
            match step:
                case Commands(text) if step.is_server:
                    terminals.start_server(text)
                case Commands(text):
                    output = terminals.run(text)
                case Output():
                    assert step.is_in(output), f"{step.text} is not in {output}"
                case File():
                    terminals.save(step)
                case Stop():
                    terminals.stop_server()
    finally:
        terminals.close()


def test_notebook_matches_the_tutorial() -> None:
    assert NOTEBOOK.read_text() == notebook_text()
