"""The KRaft exercise of a Kafka course with `lograft kafka-…`, on three nodes."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.command_line import done, lograft
from tests.compatibility.readiness import broker_ids
from tests.compatibility.servers import HOST, free_port

pytestmark = pytest.mark.clients
NODES = (1, 2, 3)
PATIENCE_SECONDS = 60
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/kraft-{node}
min.insync.replicas=1
"""


class Course:
    """Three folders, three files, three processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {node: free_port() for node in NODES}
        controllers = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in controllers.items())
        for node in NODES:
            self.file(node).write_text(
                PROPERTIES.format(
                    node=node,
                    voters=voters,
                    host=HOST,
                    port=self.ports[node],
                    controller_port=controllers[node],
                    folder=folder,
                )
            )
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def file(self, node: int) -> Path:
        return self.folder / f"server{node}.properties"

    def start(self, node: int) -> None:
        with (self.folder / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [sys.executable, "-m", "lograft.cli.main", "kafka-server-start.sh"]
                + [str(self.file(node)), "--override", "num.partitions=1"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, *nodes: int) -> None:
        """Waits until each node knows all nodes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for node in nodes:
            while sorted(broker_ids(HOST, self.ports[node])) != list(nodes):
                assert time.monotonic() < deadline, (self.folder / f"{node}.log").read_text()
                assert self.processes[node].poll() is None

    def stop(self, node: int) -> int:
        process = self.processes.pop(node)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_SECONDS)

    @property
    def servers(self) -> tuple[str, str]:
        return "--bootstrap-server", ",".join(f"{HOST}:{port}" for port in self.ports.values())


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Course]:
    monkeypatch.delenv("LOGRAFT_TRACE", raising=False)
    course = Course(tmp_path)
    yield course
    for process in course.processes.values():
        process.kill()
        process.wait()


def test_the_exercise(course: Course) -> None:
    (cluster_id,) = done("kafka-storage", "random-uuid").lines
    assert len(cluster_id) == 22
    for node in NODES:
        config = str(course.file(node))
        formatted = done("kafka-storage", "format", "-t", cluster_id, "-c", config)
        assert formatted.out.startswith("Formatting ")
        assert f"cluster.id={cluster_id}" in done("kafka-storage", "info", "-c", config).out
    for node in NODES:
        course.start(node)
    course.wait_for(*NODES)

    to, topic = course.servers, ("--topic", "first_topic")
    create = ("--create", *topic, "--partitions", "3", "--replication-factor", "2")
    # (A warning comes first, because the name has an underscore.)
    assert done("kafka-topics", *to, *create).lines[-1] == "Created topic first_topic."
    assert done("kafka-topics", *to, "--list").lines == ["first_topic"]
    head, *lines = done("kafka-topics", *to, "--describe", *topic).lines
    assert "PartitionCount: 3\tReplicationFactor: 2" in head
    assert [line.split("\t")[2] for line in lines] == [f"Partition: {index}" for index in range(3)]

    done("kafka-console-producer", *to, *topic, text="hello\nfrom\nthe course\n")
    read = ("kafka-console-consumer", *to, *topic, "--from-beginning", "--timeout-ms", "10000")
    first = done(*read, "--max-messages", "3")
    assert sorted(first.lines) == ["from", "hello", "the course"]
    assert "Processed a total of 3 messages" in first.err

    log = course.folder / "kraft-1" / "__cluster_metadata-0" / f"{0:020}.log"
    dumped = done("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(log)).out
    assert '"name":"first_topic"' in dumped
    walk = ("kafka-metadata-shell", "--snapshot", str(log))
    assert "topics" in done(*walk, "ls", "/image").out
    assert "first_topic" in done(*walk, "ls", "/image/topics/byName").out
    status = done("kafka-metadata-quorum", *to, "describe", "--status").out
    assert status.count('"id": ') == 3

    assert course.stop(3) == 0
    course.wait_for(1, 2)
    done("kafka-console-producer", *to, *topic, text="and on it goes\n")
    assert len(done(*read, "--max-messages", "4").lines) == 4
    described = done("kafka-topics", *to, "--describe", *topic).out
    assert "Leader: 3" not in described
    gone = lograft("kafka-topics", *to, "--describe", "--topic", "second_topic")
    assert (gone.code, "Topic 'second_topic' does not exist as expected" in gone.err) == (1, True)
