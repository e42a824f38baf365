"""Nodes as processes: their output when they start, fail to start, and stop."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

LOGRAFT = str(Path(sys.executable).with_name("lograft"))
CONTROLLER = """\
process.roles=controller
node.id=7
controller.quorum.bootstrap.servers=localhost:{port}
listeners=CONTROLLER://localhost:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}
"""


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [LOGRAFT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run("start", "--data", str(tmp_path / "data"), "--port", str(port))
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("lograft:")]
    assert errors == [f"lograft: 127.0.0.1:{port}: Address already in use"]
    assert "Traceback" not in done.stderr


def test_a_started_node_reports_its_health(tmp_path: Path) -> None:
    node = subprocess.Popen(
        [LOGRAFT, "start", "--data", str(tmp_path / "data"), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert node.stdout is not None
        lines = iter(node.stdout.readline, "")
        line = next(line for line in lines if line.startswith("Metrics and health: "))
        metrics, ready = line.removeprefix("Metrics and health: ").split(", ")
        with urlopen(ready, timeout=30) as response:
            assert json.load(response) == {"status": "ready", "reasons": []}
        with urlopen(metrics, timeout=30) as response:
            assert b'\nlograft_requests_total{listener="PLAINTEXT"' in response.read()
    finally:
        node.send_signal(signal.SIGINT)
        _, log = node.communicate(timeout=30)
    assert node.returncode == 0, log


def test_every_line_of_a_json_log_is_json(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    arguments = ("start", "--data", data, "--log-format", "json", "--port")
    node = subprocess.Popen(
        [LOGRAFT, *arguments, "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    try:
        assert node.stdout is not None
        for line in iter(node.stdout.readline, ""):
            lines.append(line)
            if "is listening on" in line:
                break
        port = json.loads(lines[-1])["message"].partition(" (")[0].rpartition(":")[2]
        second = run(*arguments, port)
        assert second.returncode == 1
        assert "is in use by another process" in json.loads(second.stderr)["message"]
        assert json.loads(second.stderr)["level"] == "CRITICAL"
    finally:
        node.send_signal(signal.SIGINT)
        rest, _ = node.communicate(timeout=30)
    assert node.returncode == 0, rest
    records = [json.loads(line) for line in (*lines, *rest.splitlines())]
    assert all(record["node_id"] == 1 and record["time"].endswith("Z") for record in records)
    messages = [record["message"] for record in records]
    assert messages[0] == f"Formatted {data}."
    assert messages[-1] == "shut down completed"


def test_a_controller_without_a_broker_starts_and_stops(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    file = tmp_path / "controller.properties"
    file.write_text(CONTROLLER.format(port=port, folder=tmp_path / "data"))
    formatted = run("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(file), "-s")
    assert formatted.returncode == 0, formatted.stderr
    node = subprocess.Popen(
        [LOGRAFT, "server", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert node.stdout is not None
        assert node.stdout.readline() == (
            f"Lograft is listening on 127.0.0.1:{port} (Ctrl-C stops it)\n"
        )
        second = run("server", str(file))
        assert second.returncode == 1
        assert "is in use by another process" in second.stderr
    finally:
        node.send_signal(signal.SIGINT)
        _, log = node.communicate(timeout=30)
    assert node.returncode == 0, log
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists(), (
        "a controller has no partition logs to close"
    )
