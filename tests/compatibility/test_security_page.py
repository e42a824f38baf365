"""Runs the commands of docs/security-in-ten-minutes.md in order, on free ports."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.servers import free_port
from tests.support.repository import ROOT

pytestmark = pytest.mark.clients
PAGE = ROOT / "docs" / "security-in-ten-minutes.md"
PORTS = ("9092", "9093", "9094")
SERVER = "lograft server"
STOP_SECONDS_MAX = 60


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for port in PORTS:
        assert f":{port}" in page
        page = page.replace(f"localhost:{port}", f"localhost:{free_port()}")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LOGRAFT_BOOTSTRAP_SERVERS": "",
        "LOGRAFT_CONFIG_DIR": str(tmp_path / "settings"),
        "LOGRAFT_CONTEXT": "",
    }
    server = None
    output = ""
    try:
        for kind, block in re.findall(r"^```(sh|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            if kind == "text":
                assert block == output
            elif block.startswith(SERVER):
                assert server is None
                server = start_server(block, tmp_path, environment)
            else:
                output = run(block, tmp_path, environment)
        assert output.startswith("User:alice may not perform Read on TOPIC orders")
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            log, _ = server.communicate(timeout=STOP_SECONDS_MAX)
    assert server is not None
    assert server.returncode == 0, log
    for name in ("admin", "node", "alice"):
        assert (tmp_path / f"{name}.password").read_text().strip() not in log


def run(commands: str, folder: Path, environment: dict[str, str]) -> str:
    """Returns what the commands print on standard output; all of them must succeed."""
    done = subprocess.run(
        ["bash", "-eu"],
        input=commands,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    denied = re.findall(r"^! ", commands, re.MULTILINE)
    assert done.stderr.count("AUTHORIZATION_FAILED") == len(denied), done.stderr
    return done.stdout


def start_server(
    command: str, folder: Path, environment: dict[str, str]
) -> "subprocess.Popen[str]":
    server = subprocess.Popen(
        command.split(),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    printed = ""
    for line in server.stdout:
        printed += line
        if "Ctrl-C" in line:
            return server
    raise AssertionError(printed)
