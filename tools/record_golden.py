"""Records frames of Apache Kafka: `python -m tools.record_golden [--files]`.

A proxy runs between Kafka and its clients: Python's, kcat, franz-go, kafkajs, the Java tools of two
releases, and a sweep over every API and version. The frames are written to tests/golden/frames.
"""

import argparse
import socket
import struct
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import Producer, TopicPartition

from lograft.wire.apis import API_VERSIONS, request_class, response_class, spec_of
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.compatibility import foreign_programs, librdkafka
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import HOST, Server, free_port
from tests.golden.frames_file import FOLDER, Frame, write_frames
from tools.golden_files import record_files
from tools.golden_proxy import Proxy, Recorder
from tools.golden_requests import BUILDERS, Subject
from tools.kafka_jars import KAFKA_VERSION, OLD_KAFKA_VERSION

TOPIC = "golden"
ANSWER_SECONDS = 10.0
#: These would change the cluster during the recording, or do not respond to clients.
NOT_SWEPT = frozenset({17, 36, 58, 64, 81, 82})


class Sweep:
    """Sends requests of every API and version over raw connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None

    def run(self) -> None:
        about = Subject(TOPIC, self.topic_id())
        keys = [*BUILDERS, *(key for key in API_VERSIONS if key not in BUILDERS)]
        for key in keys:
            spec = spec_of(key)
            if key in NOT_SWEPT or "broker" not in spec.listeners:
                continue
            for version in range(spec.min_version, spec.max_version + 1):
                for request in self.requests(key, version, about):
                    with suppress(OSError):
                        self.ask(request, version)

    def requests(self, key: int, version: int, about: Subject) -> list[Message]:
        if key in BUILDERS:
            return list(BUILDERS[key](about, version))
        return [request_class(key)()]

    def ask(self, request: Message, version: int) -> bytes:
        """After a rejected request Kafka closes the connection; the next request uses a new one."""
        frame = frame_request(request, version, correlation_id=7, client_id="sweep")
        if self._connection is None:
            self._connection = socket.create_connection((HOST, self._port), ANSWER_SECONDS)
        try:
            self._connection.sendall(frame)
            (size,) = struct.unpack(">i", receive_exactly(self._connection, 4))
            return receive_exactly(self._connection, size)
        except OSError:
            self._connection.close()
            self._connection = None
            raise

    def topic_id(self) -> UUID:
        answer = self.ask(MetadataRequest(topics=None), 12)
        _correlation_id, position = read_response_header(answer, 1)
        response = read_all(response_class(3), 12, answer, position)
        assert isinstance(response, MetadataResponse)
        return next(topic.topic_id for topic in response.topics if topic.name == TOPIC)


def talk(recorder: Recorder, bootstrap: str, port: int, folder: Path) -> None:
    """Runs every client once."""
    recorder.source = "librdkafka"
    librdkafka.create_topic(bootstrap, TOPIC, partitions=2)
    with_librdkafka(bootstrap)
    recorder.source = "sweep"
    Sweep(port).run()
    recorder.source = "kcat"
    foreign_programs.run([foreign_programs.kcat(), "-b", bootstrap, "-L"])
    foreign_programs.run(
        [foreign_programs.kcat(), "-b", bootstrap, "-t", TOPIC, "-P"], stdin=b"x\n"
    )
    recorder.source = "franz-go"
    foreign_programs.run_json([str(foreign_programs.go_scenario()), "basics", bootstrap, "by-go"])
    recorder.source = "kafkajs"
    foreign_programs.run_json(
        ["node", str(foreign_programs.js_scripts() / "scenario.mjs"), bootstrap, "by-js"]
    )
    for version in (KAFKA_VERSION, OLD_KAFKA_VERSION):
        recorder.source = f"java {version}"
        with_java(bootstrap, folder, version)


def with_librdkafka(bootstrap: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"compression.type": codec, "enable.idempotence": True}
        librdkafka.produce(bootstrap, TOPIC, [b"v" * 50] * 5, settings=settings)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"in a transaction", partition=0)
        producer.flush(20)
        end(20)
    committed: dict[str, Any] = {"isolation.level": "read_committed"}
    librdkafka.read(bootstrap, TOPIC, **committed)
    for protocol in ("classic", "consumer"):
        group = {"group.id": f"golden-{protocol}", "group.protocol": protocol}
        with librdkafka.consumer_of(
            bootstrap, **group, **{"auto.offset.reset": "earliest"}
        ) as consumer:
            consumer.subscribe([TOPIC])
            assert consumer.poll(30) is not None
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)


def with_java(bootstrap: str, folder: Path, version: str) -> None:
    tools = JavaTools(folder, version)
    to = ("--bootstrap-server", bootstrap)
    tools.check("ConsoleProducer", *to, "--topic", TOPIC, stdin="a\nb\n")
    limits = ("--max-messages", "3", "--timeout-ms", "20000")
    start = ("--partition", "0", "--offset", "earliest")
    tools.check("ConsoleConsumer", *to, "--topic", TOPIC, *start, *limits)
    beginning = ("--group", "golden-console", "--from-beginning")
    tools.check("ConsoleConsumer", *to, "--topic", TOPIC, *beginning, *limits)
    if version == KAFKA_VERSION:
        tools.check("TopicCommand", *to, "--create", "--topic", "by-java", "--partitions", "2")
        tools.check("TopicCommand", *to, "--describe")
        entity = ("--entity-type", "topics", "--entity-name", "by-java")
        tools.check("ConfigCommand", *to, *entity, "--alter", "--add-config", "retention.ms=99999")
        tools.check("ConfigCommand", *to, *entity, "--describe", "--all")
        tools.check("GetOffsetShell", *to, "--topic", TOPIC)
        tools.check("LogDirsCommand", *to, "--describe", "--topic-list", TOPIC)
        tools.check("MetadataQuorumCommand", *to, "describe", "--replication")
        tools.check("FeatureCommand", *to, "describe")
        tools.check("TopicCommand", *to, "--delete", "--topic", "by-java")
    tools.close()


def record_frames(folder: Path) -> list[Frame]:
    recorder = Recorder()
    seen_port, seen_controller_port = free_port(), free_port()
    server = Server.of("kafka", folder / "kafka")
    server.settings["advertised.listeners"] = (
        f"PLAINTEXT://{HOST}:{seen_port},CONTROLLER://{HOST}:{seen_controller_port}"
    )
    recorder.source = "node"
    proxies = [
        Proxy(server.port, seen_port, recorder),
        Proxy(server.controller_port, seen_controller_port, recorder),
    ]
    with server.started():
        talk(recorder, f"{HOST}:{seen_port}", seen_port, folder)
        recorder.source = "node"
    for proxy in proxies:
        proxy.close()
    return recorder.frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="record the data folders instead")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if wanted.files:
            record_files(Path(name))
            return
        by_key: dict[int, list[Frame]] = defaultdict(list)
        for frame in record_frames(Path(name)):
            by_key[frame.api_key].append(frame)
    for old in FOLDER.glob("*.gz"):
        old.unlink()
    for key, frames in sorted(by_key.items()):
        frames.sort(key=lambda frame: (frame.version, frame.direction))
        path = write_frames(key, spec_of(key).module, frames)
        print(f"{path.name}: {len(frames)} frames, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
