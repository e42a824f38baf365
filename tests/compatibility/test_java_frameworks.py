"""Kafka Streams, Kafka Connect and MirrorMaker 2 of Kafka 4.3.1, on Lograft and on Apache Kafka.

Each framework runs in a separate JVM, is killed if its guarantee must survive that, and its result
is compared record by record. They take minutes, so the short form omits them.
"""

import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compatibility.librdkafka import create_topic
from tests.compatibility.servers import (
    HOST,
    SMALL_JVM,
    Kind,
    Server,
    free_port,
    full_run_only,
    kinds_under_test,
)
from tools.kafka_jars import REPOSITORY, framework_jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), full_run_only()]
NewName = Callable[[], str]
NewServer = Callable[..., Server]
T = TypeVar("T")

RESULT_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 60.0
LINES: Final = [f"tea milk tea-{number % 7} sugar" for number in range(3_000)]
CONVERTERS: Final = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
}


class Framework:
    """A JVM that runs one of the frameworks; its output goes to a file for the report."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        logging = REPOSITORY / "tools" / "kafka" / "log4j2-server.properties"
        java = ["java", *SMALL_JVM, f"-Dlog4j2.configurationFile={logging}"]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*java, "-cp", f"{framework_jars()}/*", *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
            )

    def end(self, how: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the framework did not stop\n{self.log_tail()}") from None

    def check_running(self) -> None:
        assert self._process.poll() is None, f"the framework ended by itself\n{self.log_tail()}"

    def log_tail(self) -> str:
        return self._log.read_bytes()[-4000:].decode(errors="replace")


@contextmanager
def running(log: Path, *command: str) -> Iterator[Framework]:
    framework = Framework(log, *command)
    try:
        yield framework
    finally:
        framework.end(signal.SIGTERM)


def wait_for(ask: Callable[[], T], is_right: Callable[[T], bool], framework: Framework) -> T:
    """Returns the first expected response; if there is none, fails with the framework's output."""
    deadline = time.monotonic() + RESULT_SECONDS_MAX
    while True:
        answer = ask()
        if is_right(answer):
            return answer
        framework.check_running()
        assert time.monotonic() < deadline, f"{answer!r}\n{framework.log_tail()}"


def write_properties(path: Path, values: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return str(path)


class CommittedReader:
    """Reads the committed records of a topic from its beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader of the result",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        self.records: list[tuple[str | None, str]] = []

    def read_more(self) -> list[tuple[str | None, str]]:
        for message in self._consumer.consume(10_000, timeout=0.5):
            error = message.error()
            assert error is None or error.retriable(), error
            if error is None:
                key, value = message.key(), message.value()
                assert value is not None, "none of these frameworks writes tombstones here"
                self.records.append((key.decode() if key else None, value.decode()))
        return self.records

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(bootstrap: str, topic: str, partitions: int = 1) -> Iterator[CommittedReader]:
    reader = CommittedReader(bootstrap, topic, partitions)
    try:
        yield reader
    finally:
        reader.close()


def write_lines(bootstrap: str, topic: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in lines:
        producer.produce(topic, line)
        producer.poll(0)
    assert producer.flush(RESULT_SECONDS_MAX) == 0


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_streams_count_words(
    server: Server, new_topic: NewName, tmp_path: Path, guarantee: str
) -> None:
    """With exactly_once_v2 the application is killed during the run and still counts each word
    once; with at_least_once it runs undisturbed."""
    source, sink = new_topic(), new_topic()
    for topic in (source, sink):
        create_topic(server.bootstrap, topic, partitions=2)
    program = str(REPOSITORY / "tools" / "kafka" / "CountWords.java")
    application = (program, server.bootstrap, f"count-{source}", guarantee, source, sink)
    command = (*application, str(tmp_path / "state"))
    expected = dict(Counter(word for line in LINES for word in line.split(" ")))
    half = len(LINES) // 2
    with reading(server.bootstrap, sink, partitions=2) as reader:

        def counts() -> dict[str | None, int]:
            return {word: int(count) for word, count in reader.read_more()}

        write_lines(server.bootstrap, source, LINES[:half])
        if guarantee == "exactly_once_v2":
            killed = Framework(tmp_path / "streams.log", *command)
            wait_for(counts, lambda seen: seen.get("tea", 0) > 0, killed)
            killed.end(signal.SIGKILL)
        with running(tmp_path / "streams.log", *command) as streams:
            write_lines(server.bootstrap, source, LINES[half:])
            wait_for(counts, lambda seen: seen == expected, streams)
        # Counts of a word never decrease and never repeat: no record was counted twice.
        of_tea = [int(count) for word, count in reader.read_more() if word == "tea"]
        assert of_tea == sorted(set(of_tea))


def test_connect_standalone_copies_a_file(
    server: Server, new_topic: NewName, tmp_path: Path
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    source, copy = tmp_path / "source.txt", tmp_path / "copy.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    worker = write_properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": server.bootstrap,
            "listeners": f"http://{HOST}:{free_port()}",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            **CONVERTERS,
        },
    )
    reader = write_properties(
        tmp_path / "reader.properties",
        {
            "name": "reader",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source),
            "topic": topic,
        },
    )
    writer = write_properties(
        tmp_path / "writer.properties",
        {
            "name": "writer",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(copy),
            "topics": topic,
        },
    )
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with running(tmp_path / "connect.log", main, worker, reader, writer) as connect:
        wait_for(
            lambda: copy.read_text() if copy.exists() else "",
            lambda text: text == source.read_text(),
            connect,
        )


def ask_connect(address: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """A call of Connect's REST interface; None while it does not respond yet."""
    request = urllib.request.Request(
        f"{address}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="GET" if body is None else "PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def test_connect_distributed_with_exactly_once_source(
    server: Server, new_topic: NewName, tmp_path: Path
) -> None:
    """The worker is killed while it copies a file; the topic has each line once, in order."""
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    source = tmp_path / "source.txt"
    half = len(LINES) // 2
    numbered = [f"{number} {line}" for number, line in enumerate(LINES)]
    source.write_text("".join(f"{line}\n" for line in numbered[:half]))
    address = f"http://{HOST}:{free_port()}"
    worker = write_properties(
        tmp_path / "worker.properties",
        {
            "bootstrap.servers": server.bootstrap,
            "listeners": address,
            "group.id": f"connect-{topic}",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            **{
                f"{storage}.storage.{setting}": value
                for storage in ("config", "offset", "status")
                for setting, value in (
                    ("topic", f"connect-{storage}-{topic}"),
                    ("replication.factor", "1"),
                )
            },
            **CONVERTERS,
        },
    )
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": topic,
        "exactly.once.support": "required",
        "batch.size": "50",
    }
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    log = tmp_path / "connect.log"
    with reading(server.bootstrap, topic) as reader:
        killed = Framework(log, main, worker)
        put = ("/connectors/reader/config", connector)
        wait_for(lambda: ask_connect(address, *put), lambda answer: answer is not None, killed)
        wait_for(reader.read_more, lambda records: len(records) > 0, killed)
        killed.end(signal.SIGKILL)
        with running(log, main, worker) as connect:
            with source.open("a") as more:
                more.write("".join(f"{line}\n" for line in numbered[half:]))
            wait_for(reader.read_more, lambda records: len(records) >= len(numbered), connect)
        assert [line for _key, line in reader.read_more()] == numbered


@pytest.mark.parametrize("kind", kinds_under_test())
def test_mirror_maker_copies_topics_and_group_offsets(
    new_server: NewServer, tmp_path: Path, kind: Kind
) -> None:
    """Two clusters of one kind: the whole topic is mirrored, and a group that continues in the
    second cluster finds its translated offset."""
    first, second = (new_server(kind).start() for _each in range(2))
    create_topic(first.bootstrap, "orders")
    write_lines(first.bootstrap, "orders", LINES)
    group = Consumer(
        {
            "bootstrap.servers": first.bootstrap,
            "group.id": "billing",
            "enable.auto.commit": False,
        }
    )
    group.commit(offsets=[TopicPartition("orders", 0, len(LINES))], asynchronous=False)
    group.close()
    settings = write_properties(
        tmp_path / "mirror.properties",
        {
            "clusters": "first, second",
            "first.bootstrap.servers": first.bootstrap,
            "second.bootstrap.servers": second.bootstrap,
            "first->second.enabled": "true",
            "second->first.enabled": "false",
            "topics": "orders",
            "groups": "billing",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.topics.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "dedicated.mode.enable.internal.rest": "false",
        },
    )
    mirrored = TopicPartition("first.orders", 0)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    with running(tmp_path / "mirror.log", main, settings) as mirror:
        with reading(second.bootstrap, "first.orders") as reader:
            wait_for(reader.read_more, lambda records: len(records) >= len(LINES), mirror)
            assert [line for _key, line in reader.records] == LINES
        translated = Consumer({"bootstrap.servers": second.bootstrap, "group.id": "billing"})

        def position() -> int:
            return translated.committed([mirrored], timeout=30)[0].offset

        wait_for(position, lambda offset: offset == len(LINES), mirror)
        translated.close()
