"""Lograft's tools and Kafka's have the same output for settings, new folders and log files."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lograft.wire.batches import iterate_headers
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import ANSWER_SECONDS_MAX, create_topic, produce
from tests.compatibility.servers import (
    Kind,
    Server,
    kinds_under_test,
    lograft_command,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
CLUSTER = "8XUwXa9qSyi9tSOquGtauQ"
VOTERS = "2@h2:9093:MvDxzVmcRsaTz33bUuRU6A,1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
ALICE = (
    "SCRAM-SHA-512=[name=alice,iterations=8192,salt=MWx2NHBkbnc0ZndxN25vdGN4bTB5eTFrN3E=,"
    "saltedpassword=Ja7J+oNcZe7NvPPuSWbIUwYS6Q+W9EFVPCkK8oElnOc=]"
)
DYNAMIC = "controller.quorum.bootstrap.servers=localhost:9093"
STATIC = "controller.quorum.voters=1@localhost:9093"
#: Settings that differ because the servers do: folders, addresses, and defaults.
OWN_VALUES = {
    "broker.id", "node.id", "listeners", "advertised.listeners", "log.dirs", "log.dir",
    "controller.quorum.bootstrap.servers", "controller.quorum.voters", "min.insync.replicas",
    "metadata.log.dir", "group.consumer.assignors",
}  # fmt: skip
OWN_SETTINGS = {
    "auto.create.partitions.enable",
    "auto.create.partitions.max",
    "auto.rebalance.check.interval.ms",
    "auto.rebalance.enable",
    "default.replication.mode",
    "internal.topics.replication.mode",
    "lograft.client.telemetry",
    "partition.raft.election.timeout.ms",
    "partition.raft.fetch.timeout.ms",
}
OWN_TOPIC_SETTINGS = {
    "auto.create.partitions.max",
    "replication.mode",
    "replication.mode.partitions",
    "retention.hold.groups",
    "retention.hold.max.bytes",
    "retention.hold.max.ms",
    "subscription.group",
    "subscription.mode",
}


def lograft(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*lograft_command(), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def timeless(path: Path) -> bytes:
    """Zeroes all timestamps in the file, and the checksums over them."""
    data = path.read_bytes()
    result = bytearray(data)
    for position, _ in iterate_headers(data):
        result[position + 17 : position + 21] = bytes(4)
        result[position + 27 : position + 43] = bytes(16)
    result[73:81] = bytes(8)
    return bytes(result)


@pytest.mark.parametrize(
    ("quorum", "options"),
    [
        (DYNAMIC, ["--initial-controllers", VOTERS]),
        (DYNAMIC, ["--no-initial-controllers"]),
        (DYNAMIC, []),
        (STATIC, []),
        (STATIC, ["--standalone"]),
        (DYNAMIC, ["--initial-controllers", VOTERS, "--release-version", "3.9"]),
        (DYNAMIC, ["-N", "--feature", "metadata.version=25", "-f", "group.version=0"]),
        (DYNAMIC, ["-N", "--feature", "group.version=9"]),
        (DYNAMIC, ["-N", "--feature", "kraft.version=0"]),
        (STATIC, ["--add-scram", ALICE]),
        (STATIC, ["--add-scram", ALICE, "--release-version", "3.4"]),
        (STATIC, ["--add-scram", "SCRAM-SHA-256=[name=alice]"]),
    ],
)
def test_new_folders(
    quorum: str, options: list[str], tmp_path: Path, java_tools: JavaTools
) -> None:
    for maker in ("kafka", "lograft"):
        folder = tmp_path / maker
        folder.mkdir()
        (folder / "node.properties").write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
            f"controller.listener.names=CONTROLLER\n{quorum}\nlog.dirs={folder}/a,{folder}/b\n"
        )
    order = ("format", "--cluster-id", CLUSTER, *options, "--config")
    theirs = java_tools.run("StorageTool", *order, str(tmp_path / "kafka" / "node.properties"))
    ours = lograft("storage", *order, str(tmp_path / "lograft" / "node.properties"))
    assert (theirs.code == 0) == (ours.returncode == 0), theirs.text + ours.stderr
    dumps = {
        maker: {
            path.relative_to(tmp_path / maker): path
            for path in (tmp_path / maker).glob("*/**/*")
            if path.is_file()
        }
        for maker in ("kafka", "lograft")
    }
    assert dumps["kafka"].keys() == dumps["lograft"].keys()
    for name, path in dumps["kafka"].items():
        if name.suffix == ".checkpoint":
            assert timeless(path) == timeless(dumps["lograft"][name]), name


def described(java_tools: JavaTools, server: Server, kind: str, name: str) -> dict[str, str]:
    shown = java_tools.check(
        "ConfigCommand",
        *("--bootstrap-server", server.bootstrap, "--entity-type", kind, "--entity-name", name),
        *("--describe", "--all"),
    )
    lines = re.findall(r"^  (\S+?)=(.*)$", shown.text, re.MULTILINE)
    return {name: rest for name, rest in lines if name not in OWN_VALUES}


def test_settings(new_server: Callable[..., Server], java_tools: JavaTools) -> None:
    if len(kinds_under_test()) < 2:
        pytest.skip("compares two servers")
    found: dict[str, list[dict[str, str]]] = {}
    for kind in kinds_under_test():
        server = new_server(kind, settings={"log.retention.hours": "24", "log.roll.ms": "777000"})
        with server.started():
            create_topic(server.bootstrap, "t", configs={"segment.bytes": "2000000"})
            found[kind] = [
                described(java_tools, server, "topics", "t"),
                described(java_tools, server, "brokers", "1"),
            ]
    ours, theirs = found["lograft"], found["kafka"]
    for name in OWN_TOPIC_SETTINGS:
        ours[0].pop(name)
    for name in OWN_SETTINGS:
        ours[1].pop(name)
    assert len(theirs[0]) > 30
    assert len(theirs[1]) > 300
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]


def test_dumps(new_server: Callable[..., Server], java_tools: JavaTools) -> None:
    """Of files that the first kind under test wrote: Lograft, unless it is not tested."""
    server = new_server(kinds_under_test()[0])
    with server.started():
        create_topic(server.bootstrap, "t", configs={"index.interval.bytes": "100"})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            values = [b"%s %d" % (codec.encode(), number) for number in range(100)]
            settings = {"compression.type": codec, "batch.num.messages": 10}
            produce(server.bootstrap, "t", values, settings=settings)
    topic = sorted(str(path) for path in server.data.glob("t-0/0*"))
    metadata = sorted(str(path) for path in server.data.glob("__cluster_metadata-0/0*"))
    for files, options in (
        (topic, ["--print-data-log"]),
        (topic, ["--deep-iteration"]),
        (topic, ["--index-sanity-check"]),
        (metadata, ["--cluster-metadata-decoder"]),
    ):
        order = [*options, "--files", ",".join(files)]
        theirs = java_tools.check("DumpLogSegments", *order)
        ours = lograft("dump-log", *order)
        assert ours.stderr == ""
        assert ours.stdout == theirs.text


@pytest.mark.parametrize("kind", kinds_under_test())
def test_dumps_of_coordinators(
    new_server: Callable[..., Server], java_tools: JavaTools, kind: Kind
) -> None:
    server = new_server(kind)
    address = {"bootstrap.servers": server.bootstrap}
    with server.started():
        create_topic(server.bootstrap, "t", partitions=3)
        for number in range(4):
            producer = Producer({**address, "transactional.id": f"x{number}"})
            producer.init_transactions(ANSWER_SECONDS_MAX)
            group = Consumer({**address, "group.id": f"g{number}"})
            for commits in (True, False):
                producer.begin_transaction()
                producer.produce("t", b"v", partition=number % 3)
                producer.flush(ANSWER_SECONDS_MAX)
                where = [TopicPartition("t", 0, number)]
                producer.send_offsets_to_transaction(
                    where, group.consumer_group_metadata(), ANSWER_SECONDS_MAX
                )
                if commits:
                    producer.commit_transaction(ANSWER_SECONDS_MAX)
                elif number:
                    producer.abort_transaction(ANSWER_SECONDS_MAX)
            group.close()
    for topic, option, expected in (
        ("__transaction_state", "--transaction-log-decoder", "transactionalId"),
        ("__consumer_offsets", "--offsets-decoder", "offset"),
    ):
        logs = sorted(str(path) for path in server.data.glob(f"{topic}-*/*.log"))
        written = [path for path in logs if Path(path).stat().st_size]
        assert written
        order = [option, "--files", ",".join(written)]
        theirs = java_tools.check("DumpLogSegments", *order)
        assert expected in theirs.text
        ours = lograft("dump-log", *order)
        assert ours.stderr == ""
        assert ours.stdout == theirs.text
