"""What `lograft top` computes and prints, and how it finds the nodes."""

import base64
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from lograft.cli.main import main
from lograft.cli.node_history import (
    Histories,
    HistoryUnavailable,
    authorization_of,
    parse_history,
    read_history,
)
from lograft.cli.top import figures_of, lines_of, number_text, time_text, trend_text
from lograft.client.administering.settings import AdminSettings
from lograft.http import history as http_history
from lograft.testing import Cluster

LOGRAFT = str(Path(sys.executable).with_name("lograft"))


def page(node_id: int, **series: list[float | None]) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "cluster_id": "c",
        "step_ms": 5000,
        "end_ms": 1_790_000_000_000,
        "points": 3,
        "series": [{"name": name, "unit": "1", "values": values} for name, values in series.items()]
        + [
            {"name": "topic_in_bytes", "unit": "1", "topic": "a", "values": [1, 2, node_id]},
            {"name": "topic_out_bytes", "unit": "1", "topic": "b", "values": [None, 7]},
            {"name": "group_lag", "unit": "1", "group": f"g{node_id}\x1b[2J", "values": [node_id]},
        ],
    }


def histories(*pages: dict[str, Any], **missing: str) -> Histories:
    return Histories(tuple(parse_history("http://x", each) for each in pages), missing)


def test_figures_are_sums_over_the_nodes() -> None:
    figures = figures_of(
        histories(
            page(1, in_bytes=[0, 100], lag=[3], leaderless=[2], active_controller=[0]),
            page(2, in_bytes=[5, 50, 200], lag=[None], leaderless=[2], active_controller=[1]),
        )
    )
    totals = [figures.in_bytes, figures.out_bytes, figures.lag, figures.leaderless]
    assert totals == [300, None, 3, 2]
    assert [node.is_active_controller for node in figures.nodes] == [False, True]
    assert [[topic.topic, topic.in_bytes, topic.out_bytes] for topic in figures.topics] == [
        ["b", None, 14],
        ["a", 3, None],
    ]
    # The last points are of the same time, however many there are.
    assert list(figures.topics[1].trend) == [2, 4, 3]
    assert [group.lag for group in figures.groups] == [2, 1]


def test_lines_show_no_control_characters_and_name_missing_nodes() -> None:
    lines = lines_of(figures_of(histories(page(1, cpu=[0.5]), broker_2="it is down")))
    assert all(line.isprintable() for line in lines)
    assert any("g1\\x1b[2J" in line for line in lines)
    assert any(line.startswith("1 ") and "50 %" in line for line in lines)
    assert lines[-1] == "broker_2 is not included: it is down"


def test_trends() -> None:
    assert trend_text((None, 0, 4, 8, None)) == " ▁▅█"
    assert trend_text((0, 0)) == "▁▁"
    assert trend_text(()) == ""


def test_figures_as_text() -> None:
    assert [number_text(each) for each in (None, 0, 2.25, 3.0, 1234567.8)] == [
        *("-", "0", "2.2", "3", "1,234,568")
    ]
    assert [time_text(each) for each in (None, 0.0005, 2)] == ["-", "0.5 ms", "2.0 s"]


class Server(BaseHTTPRequestHandler):
    """Serves the class's body, with its status."""

    body = b""
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", "HTTP status 404"),
        (200, b"<html>", "does not return a history"),
        (200, b"[]", "does not return a history"),
        (200, b'{"series": [{"name": "a", "values": ["x"]}]}', "does not return a history"),
    ],
)
def test_another_server_is_reported(
    url: str, status: int, body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "status", status)
    monkeypatch.setattr(Server, "body", body)
    with pytest.raises(HistoryUnavailable, match=reason):
        read_history(url, 5)


def test_a_closed_port_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HistoryUnavailable, match="Connection refused"):
        read_history(f"http://127.0.0.1:{port}", 5)


# ── with nodes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def quick_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_history, "STEP_MS", 200)


def run_top(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["lograft", "top", *arguments])
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def wait_for_points(url: str) -> None:
    while len(read_history(url, 5).series["requests"]) < 3:
        time.sleep(0.05)


def test_top_finds_the_nodes_that_serve_http(
    quick_points: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"http://localhost:{port}"
    with Cluster(properties={"lograft.http.listeners": url}) as cluster:
        wait_for_points(url)
        assert run_top(monkeypatch, "-b", cluster.bootstrap_servers, "--json") == 0
        found = json.loads(capsys.readouterr().out)
    assert [node["node"] for node in found["nodes"]] == [1]
    assert found["nodes"][0]["requests"] >= 0
    assert found["missing"] == {}


def test_top_says_why_nodes_are_missing(
    quick_points: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Cluster(properties={"lograft.http.listeners": "http://localhost:0"}) as other,
        Cluster(2, properties={"lograft.http.listeners": ""}) as cluster,
    ):
        (url,) = other.call(1, lambda node: list(node.http_urls))
        assert run_top(monkeypatch, "-b", cluster.bootstrap_servers, "--once") == 1
        lines = capsys.readouterr().out.splitlines()
        assert "broker 2 is not included: lograft.http.listeners is not set" in lines
        assert run_top(monkeypatch, "-b", other.bootstrap_servers, "--once") == 1
        assert "name the URL with --http" in capsys.readouterr().out
        wait_for_points(url)
        assert run_top(monkeypatch, "--http", f"{url}/", "--once") == 0
        assert "1 node" in capsys.readouterr().out
        assert run_top(monkeypatch, "--http", "localhost:1", "--once") == 1
        assert "specify URLs such as http://localhost:9094" in capsys.readouterr().err


def test_another_node_at_the_url_of_a_broker_is_not_used(
    quick_points: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(2, properties={"lograft.http.listeners": "http://localhost:0"}) as other:
        (url,) = other.call(2, lambda node: list(node.http_urls))
        occupied = {"lograft.http.listeners": url.replace("localhost", "127.0.0.2")}
        with Cluster(properties=occupied) as cluster:
            # Here the URL of the broker leads to a node of another cluster.
            monkeypatch.setattr(
                "lograft.cli.node_history.read_history",
                lambda _, points, *others: read_history(url, points, *others),
            )
            assert run_top(monkeypatch, "-b", cluster.bootstrap_servers, "--once") == 1
    assert (
        f"broker 1 is not included: node 2 of cluster lograft-test-cluster-1 responds at {url}"
        in capsys.readouterr().out
    )


def test_ctrl_c_quits_the_live_view_and_restores_the_screen(quick_points: None) -> None:
    with Cluster(properties={"lograft.http.listeners": "http://localhost:0"}) as cluster:
        (url,) = cluster.call(1, lambda node: list(node.http_urls))
        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        top = subprocess.Popen(
            [LOGRAFT, "top", "-b", cluster.bootstrap_servers, "--http", url],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        shown = read_until(ours, b"Ctrl-C quits")
        top.send_signal(signal.SIGINT)
        shown += read_until(ours, b"\x1b[?1049l")
        assert top.wait(timeout=30) == 0
        os.close(ours)
    assert b"\x1b[?1049h" in shown
    assert b"FSYNC P99" in shown
    assert b"Traceback" not in shown


def read_until(descriptor: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        assert select.select([descriptor], [], [], 30)[0], shown
        shown += os.read(descriptor, 1 << 16)
    return shown


@pytest.mark.parametrize(
    ("url", "is_sent"),
    [
        ("https://node1:9094", True),
        ("http://localhost:9094", True),
        ("http://127.0.0.1:9094", True),
        ("http://node1:9094", False),
    ],
)
def test_passwords_are_not_sent_without_encryption(url: str, is_sent: bool) -> None:
    settings = AdminSettings.read(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "pencil",
        }
    )
    expected = "Basic " + base64.b64encode(b"alice:pencil").decode() if is_sent else None
    assert authorization_of(settings, url) == expected


def test_a_client_without_a_user_sends_none() -> None:
    settings = AdminSettings.read({"bootstrap.servers": "h:1"})
    assert authorization_of(settings, "https://node1:9094") is None
