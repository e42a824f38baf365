"""Raft partitions of a Lograft cluster with Kafka's own tools and librdkafka."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.compatibility import conftest
from tests.compatibility.clusters import Cluster
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import produce, read, values_of

pytestmark = pytest.mark.interop
PATIENCE_SECONDS = 40.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.of("lograft", tmp_path_factory.mktemp("modes"))
    conftest.running.extend(cluster.servers)
    with cluster.started():
        yield cluster
    for server in cluster.servers:
        conftest.running.remove(server)


def lograft(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lograft.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_mode(cluster: Cluster, topic: str, mode: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = f"{topic}-0  {mode}  leader"
    while wanted not in (described := lograft("topics", "describe", "-b", cluster.bootstrap)):
        assert time.monotonic() < deadline, described


def test_kafkas_tools_read_what_raft_writes(cluster: Cluster, java_tools: JavaTools) -> None:
    to = ("--bootstrap-server", cluster.bootstrap)
    java_tools.check(
        "TopicCommand",
        *to,
        *("--create", "--topic", "t", "--partitions", "1", "--replication-factor", "3"),
    )
    # (TopicCommand accepts only the names of Kafka's settings.)
    lograft("topics", "alter", "-b", cluster.bootstrap, "--topic", "t", "--mode", "raft")
    wait_mode(cluster, "t", "raft")
    sent = [b"%d" % number for number in range(50)]
    produce(cluster.bootstrap, "t", sent)
    described = java_tools.check("TopicCommand", *to, "--describe", "--topic", "t").text
    assert "replication.mode=raft" in described
    console = java_tools.check(
        "ConsoleConsumer",
        *to,
        *("--topic", "t", "--partition", "0", "--offset", "earliest", "--max-messages", "50"),
    )
    assert "49" in console.text
    folder = cluster.servers[0].data
    log = folder / "t-0" / f"{0:020}.log"
    dumped = java_tools.check("DumpLogSegments", "--files", str(log), "--print-data-log").text
    assert "LeaderChange" in dumped
    assert "KRaftVoters" in dumped
    metadata = folder / "__cluster_metadata-0" / f"{0:020}.log"
    decoded = java_tools.check(
        "DumpLogSegments", "--files", str(metadata), "--cluster-metadata-decoder"
    ).text
    assert decoded.count('"type":"PARTITION_RECORD"') >= 3
    lograft("topics", "alter", "-b", cluster.bootstrap, "--topic", "t", "--mode", "isr")
    wait_mode(cluster, "t", "isr")
    produce(cluster.bootstrap, "t", sent)
    assert values_of(read(cluster.bootstrap, "t")) == sent + sent
