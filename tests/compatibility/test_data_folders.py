"""Data directories: Kafka's tools read what a node wrote, and the other server starts on its
folder.

The pairs are (lograft, kafka) and (kafka, lograft) if both are under test; with a single kind the
node restarts on its own folder, which is how these tests were validated with Kafka itself.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.compatibility.conftest import serving
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.librdkafka import admin_of, create_topic, outcome, produce, read, values_of
from tests.compatibility.servers import Kind, Server, is_full_run, kinds_under_test

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
NewServer = Callable[..., Server]
VALUES = {
    codec: [b"%s %d " % (codec.encode(), n) * 40 for n in range(300)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd")
}
#: The number of times that the other server takes over the folder; even, so that its writer has it
#: last.
HOPS = 6 if is_full_run() else 2
ROLLED = [b"%07d" % number + b"." * 9_993 for number in range(400)]
#: Output of the tools for an invalid file.
COMPLAINTS = (
    "isvalid: false",
    "mismatch",
    "Mismatch",
    "Exception",
    "Could not",
    "out of order",
    "corrupt",
)


def writers_and_readers() -> list[tuple[Kind, Kind]]:
    kinds = kinds_under_test()
    return [
        (kind, kinds[1 - index] if len(kinds) == 2 else kind) for index, kind in enumerate(kinds)
    ]


def fill(server: Server) -> None:
    """Every codec, rolled segments, idempotent batches, deleted records, settings, a deleted
    topic."""
    address = server.bootstrap
    admin = admin_of(address)
    for codec, values in VALUES.items():
        create_topic(address, codec)
        settings = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 50}
        produce(address, codec, values, settings=settings)
    create_topic(address, "rolled", configs={"segment.bytes": "1048576"})
    stamps = [1_700_000_000_000 + 10 * number for number in range(len(ROLLED))]
    produce(address, "rolled", ROLLED, timestamps_ms=stamps, settings={"batch.num.messages": 10})
    create_topic(address, "compacted", partitions=2, configs={"cleanup.policy": "compact"})
    keys = [b"key%d" % (number % 10) for number in range(200)]
    produce(address, "compacted", [b"v"] * 200, keys=keys)
    create_topic(address, "cut")
    produce(address, "cut", [b"%d" % number for number in range(100)])
    outcome(admin.delete_records([TopicPartition("cut", 0, 60)]))
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    outcome(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "rolled", incremental_configs=[entry])]
        )
    )
    create_topic(address, "gone")
    outcome(admin.delete_topics(["gone"]))


def check_contents(server: Server) -> None:
    address = server.bootstrap
    for codec, values in VALUES.items():
        assert values_of(read(address, codec))[: len(values)] == values, codec
    rolled = read(address, "rolled")
    assert values_of(rolled) == ROLLED
    assert rolled[7].timestamp() == (1, 1_700_000_000_070)
    assert [message.offset() for message in read(address, "cut", offset=60)] == [*range(60, 100)]
    admin = admin_of(address)
    topics = set(admin.list_topics(timeout=10).topics)
    assert {*VALUES, "rolled", "compacted", "cut"} <= topics
    assert "gone" not in topics
    asked = [ConfigResource(ResourceType.TOPIC, "rolled")]
    (configs,) = outcome(admin.describe_configs(asked)).values()
    assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("-1", "1048576")


@pytest.fixture(scope="module", params=kinds_under_test())
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server that wrote records and was stopped cleanly."""
    server = Server.of(request.param, tmp_path_factory.mktemp("written"))
    with serving(server):
        fill(server)
    return server


def dump(tools: JavaTools, files: list[Path], *options: str) -> str:
    assert files
    names = ",".join(str(file) for file in files)
    shown = tools.check("DumpLogSegments", *options, "--files", names).text
    for complaint in COMPLAINTS:
        assert complaint not in shown, shown[-3000:]
    return shown


def test_dump_log_segments_reads_the_logs(written: Server, java_tools: JavaTools) -> None:
    logs = sorted(written.data.glob("*-[0-9]/*.log"))
    logs = [log for log in logs if not log.parent.name.startswith("__")]
    shown = dump(java_tools, logs, "--deep-iteration", "--print-data-log")
    for codec in VALUES:
        assert f"compresscodec: {codec}" in shown
        assert f"payload: {codec} 299 " in shown
    assert "producerEpoch: 0" in shown


def test_dump_log_segments_accepts_the_indexes(written: Server, java_tools: JavaTools) -> None:
    indexes = sorted(written.data.glob("rolled-0/*index"))
    assert len(indexes) >= 8, "several segments, two indexes each"
    shown = dump(java_tools, indexes, "--index-sanity-check")
    assert shown.count("passed sanity check.") == len(indexes)
    shown = dump(java_tools, indexes, "--verify-index-only")
    shown = dump(java_tools, indexes)
    assert shown.count("offset: ") > 50


def test_dump_log_segments_reads_the_producer_snapshots(
    written: Server, java_tools: JavaTools
) -> None:
    shown = dump(java_tools, sorted(written.data.glob("none-0/*.snapshot")))
    assert "producerId: " in shown
    assert "lastSequence: 299" in shown or "lastSequence:299" in shown, shown


def test_dump_log_segments_decodes_the_metadata(written: Server, java_tools: JavaTools) -> None:
    folder = written.data / "__cluster_metadata-0"
    files = sorted(folder.glob("*.log")) + sorted(folder.glob("*.checkpoint"))
    shown = dump(java_tools, files, "--cluster-metadata-decoder")
    for wanted in ("TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "REMOVE_TOPIC_RECORD"):
        assert f'"type":"{wanted}"' in shown
    assert "LeaderChange" in shown
    assert "REGISTER_BROKER_RECORD" in shown
    bootstrap = written.data / "bootstrap.checkpoint"
    assert "metadata.version" in dump(java_tools, [bootstrap], "--cluster-metadata-decoder")


def test_metadata_shell(written: Server, java_tools: JavaTools) -> None:
    log = str(written.data / "__cluster_metadata-0" / f"{0:020}.log")
    listed = shell(java_tools, log, "ls", "/image/topics/byName", wanted="cut").split()
    assert {*VALUES, "rolled", "compacted", "cut"} <= set(listed)
    assert "gone" not in listed
    path = "/image/topics/byName/compacted"
    assert "1:" in shell(java_tools, log, "tree", path, wanted="1:")
    assert "rolled" in shell(java_tools, log, "find", "/image/configs", wanted="rolled")


def shell(java_tools: JavaTools, log: str, *command: str, wanted: str) -> str:
    """The shell uses what it has loaded so far, so it may need a second attempt."""
    for _attempt in range(5):
        shown = java_tools.check("MetadataShell", "--snapshot", log, *command).text
        if wanted in shown:
            break
    return shown


@pytest.mark.parametrize(("writer", "reader"), writers_and_readers(), ids=lambda kind: str(kind))
def test_the_other_server_starts_on_the_folder(
    new_server: NewServer, writer: Kind, reader: Kind
) -> None:
    first = new_server(writer)
    with first.started():
        fill(first)
    for hop in range(HOPS - 2):
        between = new_server(reader if hop % 2 == 0 else writer).using_data_of(first)
        with between.started():
            check_contents(between)
        first = between
    second = new_server(reader).using_data_of(first)
    with second.started():
        check_contents(second)
        settings = {"compression.type": "gzip", "enable.idempotence": True}
        produce(second.bootstrap, "gzip", [b"from the second"], settings=settings)
        create_topic(second.bootstrap, "by-the-second", partitions=3)
        produce(second.bootstrap, "by-the-second", [b"x"], partition=2)
    third = new_server(writer).using_data_of(second)
    with third.started():
        check_contents(third)
        assert values_of(read(third.bootstrap, "gzip", offset=300)) == [b"from the second"]
        assert values_of(read(third.bootstrap, "by-the-second", partition=2)) == [b"x"]


@pytest.mark.parametrize(("writer", "reader"), writers_and_readers(), ids=lambda kind: str(kind))
def test_the_other_server_recovers_what_a_killed_one_left(
    new_server: NewServer, writer: Kind, reader: Kind
) -> None:
    first = new_server(writer)
    first.start()
    fill(first)
    first.kill()
    second = new_server(reader).using_data_of(first)
    with second.started():
        check_contents(second)
