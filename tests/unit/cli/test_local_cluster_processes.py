"""`lograft start --nodes 3` as a process: addresses, a killed node, Ctrl-C, and restarts."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest

from lograft.cli.local_cluster import start_cluster
from lograft.cli.node_runner import start_embedded
from lograft.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from lograft.model.errors import InvalidInput

LOGRAFT = str(Path(sys.executable).with_name("lograft"))


class Running(NamedTuple):
    process: "subprocess.Popen[str]"
    #: Process ids of the nodes 1, 2 and 3.
    pids: list[int]
    addresses: list[str]
    metrics: list[str]

    def next_error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()


@contextmanager
def cluster(folder: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [LOGRAFT, "start", "--nodes", "3", "--data", str(folder), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        rows = []
        while "is listening on" not in (line := process.stdout.readline()):
            assert line, process.communicate()[1]
            rows.append(line.split())
        nodes = [row for row in rows if row[0].isdigit()]
        assert [row[0] for row in nodes] == ["1", "2", "3"]
        pids = [int(row[2]) for row in nodes]
        yield Running(process, pids, [row[1] for row in nodes], [row[3] for row in nodes])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def produce(servers: str) -> int:
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic("t", 1)])
        described = await admin.describe_topics(["t"])
        assert len(described["t"].partitions[0].replicas) == 3
    async with Producer(bootstrap_servers=servers) as producer:
        return (await producer.send("t", b"kept", partition=0)).offset


async def read_first(servers: str) -> bytes | None:
    async with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 0)
        async for record in consumer:
            value: bytes | None = record.value
            return value
    return None


def test_a_cluster_survives_a_node_and_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with cluster(folder) as first:
        assert asyncio.run(produce(",".join(first.addresses))) == 0
        os.kill(first.pids[1], signal.SIGKILL)
        error = first.next_error()
        assert error.startswith(
            f"lograft: node 2 ({first.addresses[1]}) was killed by SIGKILL; 2 of"
        )
        assert str(folder / "node-2" / "server.properties") in error
        assert asyncio.run(read_first(first.addresses[0])) == b"kept"
        with urlopen(first.metrics[2], timeout=30) as response:
            assert b'\nlograft_broker_stage{stage="unfenced"} 1\n' in response.read()
    assert not any(map(is_alive, first.pids))
    with cluster(folder) as second:
        assert asyncio.run(read_first(",".join(second.addresses))) == b"kept"
    assert not any(map(is_alive, second.pids))


def test_a_port_in_use_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is not available .Address already"):
            start_cluster(str(tmp_path / "new"), port, 3)
    assert not (tmp_path / "new").exists()


def test_a_data_directory_keeps_its_number_of_nodes(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        data = tmp_path / "cluster" / f"node-{number}" / "data"
        data.mkdir(parents=True)
        (data / "meta.properties").touch()
        (data.parent / "server.properties").touch()
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "meta.properties").touch()
    with pytest.raises(InvalidInput, match="a cluster of 3 nodes: start it with --nodes 3"):
        start_cluster(str(tmp_path / "cluster"), 0, 5)
    with pytest.raises(InvalidInput, match="a cluster of 3 nodes: start it with --nodes 3"):
        start_embedded(str(tmp_path / "cluster"), 0)
    with pytest.raises(InvalidInput, match="a single node: start it without --nodes"):
        start_cluster(str(tmp_path / "single"), 0, 3)


@pytest.mark.parametrize(
    ("data", "port", "reason"),
    [("a,b", 0, "cannot contain a comma"), ("new", 65533, "exceeds the maximum 65535")],
)
def test_invalid_data_directories_and_ports_are_rejected(
    tmp_path: Path, data: str, port: int, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        start_cluster(str(tmp_path / data), port, 3)


def test_a_cluster_stops_if_a_node_does_not_start(tmp_path: Path) -> None:
    with cluster(tmp_path):
        pass
    meta = tmp_path / "node-2" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=2", "node.id=7"))
    done = subprocess.run(
        [LOGRAFT, "start", "--nodes", "3", "--data", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    [error] = [line for line in done.stderr.splitlines() if line]
    assert "node 2 (localhost:" in error
    assert "exited with code 1: " in error
    assert str(tmp_path / "node-2" / "node.log") in error
