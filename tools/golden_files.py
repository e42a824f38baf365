"""Records data directories of Apache Kafka, and the output of its tools for them.

Writes three archives to tests/golden/files: a directory after a clean shutdown, one after a kill,
and the internal logs of a Kafka with every type of group and with all state that Lograft only
stores. The first two contain, beside `data/`, also `dumps/`: the output of DumpLogSegments for
every file, which the tests compare with.
"""

import io
import shutil
import tarfile
from pathlib import Path
from typing import Final

from confluent_kafka import Producer, TopicPartition

from tests.compatibility import kept_state
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import admin_of, create_topic, outcome, produce
from tests.compatibility.servers import Server
from tools.kafka_jars import KAFKA_VERSION, REPOSITORY

FOLDER: Final = REPOSITORY / "tests" / "golden" / "files"
SETTINGS: Final = {
    # Small files: indexes are preallocated. A snapshot is taken after a few records.
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "200",
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FIRST_MS: Final = 1_700_000_000_000


def fill(bootstrap: str) -> None:
    admin = admin_of(bootstrap)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        create_topic(bootstrap, codec)
        values = [f"{codec} {number} ".encode() * 5 for number in range(60)]
        settings = {
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 10,
        }
        stamps = [FIRST_MS + number for number in range(60)]
        headers: list[tuple[str, bytes | None]] = [("codec", codec.encode())]
        produce(bootstrap, codec, values, timestamps_ms=stamps, headers=headers, settings=settings)
    # A segment rolls when a record is more than segment.ms younger than the segment's first.
    create_topic(bootstrap, "rolled", configs={"segment.ms": "1000"})
    for number in range(5):
        produce(bootstrap, "rolled", [b"x" * 300] * 3, timestamps_ms=[FIRST_MS + 5000 * number] * 3)
    create_topic(bootstrap, "transactions")
    for name, ends in (("one", "ca"), ("two", "ac")):
        write_transactions(bootstrap, name, ends)
    create_topic(bootstrap, "cut", configs={"cleanup.policy": "compact,delete"})
    produce(bootstrap, "cut", [b"v"] * 20, keys=[b"k%d" % (number % 4) for number in range(20)])
    outcome(admin.delete_records([TopicPartition("cut", 0, 7)]))
    create_topic(bootstrap, "gone", partitions=2)
    outcome(admin.delete_topics(["gone"]))


def write_transactions(bootstrap: str, name: str, ends: str) -> None:
    """One transaction per letter: c commits, a aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    for end in ends:
        producer.begin_transaction()
        for number in range(4):
            producer.produce("transactions", f"{name} {end} {number}".encode(), partition=0)
        producer.flush(20)
        if end == "c":
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)


def record_files(scratch: Path) -> None:
    tools = JavaTools(scratch)
    for how in ("stopped", "killed"):
        server = Server.of("kafka", scratch / how, settings=SETTINGS)
        server.start()
        fill(server.bootstrap)
        if how == "stopped":
            server.stop()
        else:
            server.kill()
        path = FOLDER / f"kafka-{KAFKA_VERSION}-{how}.tar.gz"
        archive(path, server.data, dumps_of(tools, server.data))
        print(f"{path.name}: {path.stat().st_size} bytes")
    record_kept_state(scratch, tools)
    tools.close()


def record_kept_state(scratch: Path, tools: JavaTools) -> None:
    server = Server.of("kafka", scratch / "kept", settings=kept_state.kafka_settings())
    sasl_port = kept_state.add_sasl_listener(server)
    with server.started():
        kept_state.fill(server, tools, scratch, sasl_port=sasl_port)
    logs = scratch / "kept-logs"
    for name in ("__consumer_offsets-0", "__cluster_metadata-0"):
        (logs / name).mkdir(parents=True)
        shutil.copy(server.data / name / "00000000000000000000.log", logs / name)
    path = FOLDER / f"kafka-{KAFKA_VERSION}-kept-state.tar.gz"
    archive(path, logs, {})
    print(f"{path.name}: {path.stat().st_size} bytes")


def dumps_of(tools: JavaTools, data: Path) -> dict[str, str]:
    """The tool's output for each file that it can read, by the file's path in the directory."""
    dumps = {}
    for file in sorted(data.rglob("*")):
        if file.suffix not in {
            ".log",
            ".index",
            ".timeindex",
            ".txnindex",
            ".snapshot",
            ".checkpoint",
        }:
            continue
        options = ["--files", str(file)]
        if file.parent.name.startswith("__cluster_metadata") or file.suffix == ".checkpoint":
            options.append("--cluster-metadata-decoder")
        elif file.parent.name.startswith("__consumer_offsets"):
            options.append("--offsets-decoder")
        elif file.parent.name.startswith("__transaction_state"):
            options.append("--transaction-log-decoder")
        elif file.suffix == ".log":
            options.append("--print-data-log")
        shown = tools.run("DumpLogSegments", *options)
        if shown.code == 0:
            name = str(file.relative_to(data))
            dumps[name] = shown.text.replace(str(file), name)
    return dumps


def archive(path: Path, data: Path, dumps: dict[str, str]) -> None:
    """Archives without owners and modification times, which have no meaning in a test."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(path, "w:gz", compresslevel=9) as tar:
        tar.add(data, "data", filter=anonymous)
        for name, text in sorted(dumps.items()):
            encoded = text.encode()
            member = anonymous(tarfile.TarInfo(f"dumps/{name}.txt"))
            member.size = len(encoded)
            tar.addfile(member, io.BytesIO(encoded))
