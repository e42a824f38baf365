"""The key-value example as processes: ports, signals, exit codes."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "raft_kv"


class Processes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[int, subprocess.Popen[str]] = {}
        free = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        self.names = [f"127.0.0.1:{s.getsockname()[1]}:{n}" for n, s in enumerate(free, 1)]
        for each in free:
            each.close()
        self.founders = ",".join(self.names[:3])

    def start(self, number: int) -> None:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "examples.raft_kv.server"),
                *(self._folder / str(number), self.founders, self.names[number - 1]),
                *("--segment-bytes", "4096", "--snapshot-bytes", "6000"),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._running[number] = process
        assert process.stdout is not None
        assert "is listening" in process.stdout.readline()

    def end(self, number: int, how: signal.Signals) -> int:
        process = self._running.pop(number)
        process.send_signal(how)
        code = process.wait(20)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def close(self) -> None:
        for number in list(self._running):
            self.end(number, signal.SIGKILL)

    def client(self, *words: str, servers: str = "") -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, EXAMPLE / "client.py", servers or self.founders, *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, (done.stdout + done.stderr).strip()

    def leader(self) -> int:
        _, output = self.client("--status")
        return next(
            int(line.split()[1].rstrip(":"))
            for line in output.splitlines()
            if "role leader" in line
        )


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.close()


def test_a_cluster_survives_its_leader(processes: Processes) -> None:
    for number in (1, 2, 3):
        processes.start(number)
    assert processes.client("color", "blue") == (0, "")
    first = processes.leader()
    processes.end(first, signal.SIGKILL)
    assert processes.client("color", "green") == (0, "")
    for name in processes.names[:3]:
        if not name.endswith(f":{first}"):
            assert processes.client("color", servers=name) == (0, "green"), "any server will do"
    processes.start(first)
    processes.start(4)
    assert processes.client("--add-peer", processes.names[3]) == (0, "")
    assert processes.client("--remove-peer", str(first)) == (0, "")
    assert processes.client("--delete", "color") == (0, "")
    assert processes.client("color") == (1, ""), "there is no such key"
    _, output = processes.client("--status", servers=processes.names[3])
    assert f"{processes.names[3]}" in output.rpartition("voters")[2]
    assert processes.names[first - 1] not in output.rpartition("voters")[2]
    assert processes.end(4, signal.SIGTERM) == 0


def test_wrong_calls_get_a_sentence(processes: Processes, tmp_path: Path) -> None:
    assert processes.client("--timeout-seconds", "0.3", "k")[0] == 3
    code, output = processes.client("k", servers="nonsense")
    assert (code, "is not host:port:id" in output) == (2, True)
    assert processes.client("k", "v", "--status")[0] == 2
    for words in (
        ["data", "a:1:1", "nonsense"],
        ["data", "a:1:1", "b:1:1"],
        ["data", "a:1:1", "a:1:1", "--segment-bytes", "3"],
        ["/dev/null/x", "a:1:1", "a:1:1"],
        [str(tmp_path), "192.0.2.1:1:1", "192.0.2.1:1:1"],
    ):
        done = subprocess.run(
            [sys.executable, EXAMPLE / "server.py", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, words
        assert done.stderr.startswith("raft_kv: "), done.stderr
        assert len(done.stderr.splitlines()) == 1
