"""Logs that a real Apache Kafka wrote: Lograft reads in them what Kafka's own tool reads."""

from pathlib import Path

import pytest

from lograft.model.types import Offset, TopicPartition
from lograft.runtime.disk import RealDisk
from lograft.storage.index import OffsetIndex, TimeIndex
from lograft.storage.log import Log
from lograft.storage.log_dirs import (
    consume_clean_shutdown,
    read_checkpoint,
    read_epochs,
    read_meta_properties,
    read_partition_metadata,
)
from lograft.storage.markers import build_marker, read_marker
from lograft.storage.producer_snapshots import decode_snapshot
from lograft.storage.types import FixedLogConfig, RecoveryPlan, TransactionEnd
from lograft.wire.batches import check_crc, iterate_headers, patch, read_records
from lograft.wire.compression import Codec
from tests.golden.kafka_folders import Folder, unpack

RECORDS_BYTES_MAX = 1_000_000
TOPICS = ["none", "gzip", "snappy", "lz4", "zstd", "rolled", "transactions", "cut"]
#: The settings of the recording broker, so that rebuilt indexes can be equal.
CONFIG = FixedLogConfig(index_interval_bytes=200, segment_index_bytes=4096)


@pytest.fixture(scope="module", params=["stopped", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return unpack(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def stopped(tmp_path: Path) -> Folder:
    return unpack("stopped", tmp_path)


def open_log(folder: Folder, topic: str, recovery: RecoveryPlan) -> Log:
    disk = RealDisk()
    directory = str(folder.data / f"{topic}-0")
    topic_id = read_partition_metadata(disk, directory)
    assert topic_id is not None
    return Log.open(
        disk,
        directory,
        topic_partition=TopicPartition(topic, 0),
        topic_id=topic_id,
        config=CONFIG,
        now_ms=0,
        recovery=recovery,
    )


def test_batches_match_kafkas_tool(folder: Folder) -> None:
    names = list(folder.files("*/*.log"))
    assert len(names) > 10
    for name in names:
        data = (folder.data / name).read_bytes()
        found = [
            {
                "baseOffset": header.base_offset,
                "lastOffset": header.last_offset,
                "count": header.record_count,
                "baseSequence": header.base_sequence,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "partitionLeaderEpoch": header.leader_epoch,
                "isTransactional": str(header.is_transactional).lower(),
                "isControl": str(header.is_control).lower(),
                "position": position,
                "CreateTime": header.max_timestamp,
                "size": header.size_bytes,
                "compresscodec": Codec(header.compression).text,
                "crc": header.crc,
            }
            for position, header in iterate_headers(data)
            if check_crc(data, position, header.size_bytes)
        ]
        reported = [{field: batch[field] for field in found[0]} for batch in folder.batches(name)]
        assert [
            {field: str(value) for field, value in each.items()} for each in found
        ] == reported, name


def test_records_match_kafkas_tool(folder: Folder) -> None:
    for topic in TOPICS:
        for name in folder.files(f"{topic}-0/*.log"):
            data = memoryview((folder.data / name).read_bytes())
            found = []
            for position, header in iterate_headers(data):
                batch = data[position : position + header.size_bytes]
                for record in read_records(batch, bytes_max=RECORDS_BYTES_MAX):
                    key = -1 if record.key is None else len(record.key)
                    value = -1 if record.value is None else len(record.value)
                    line = f"| offset: {record.offset} CreateTime: {record.timestamp} "
                    found.append(f"{line}keySize: {key} valueSize: {value} ")
            reported = [line.partition("sequence: ")[0] for line in folder.records(name)]
            assert found == reported, name


def test_indexes_match_kafkas_tool(stopped: Folder) -> None:
    disk = RealDisk()
    for name in stopped.files("*/*.index"):
        index = OffsetIndex(disk, str(stopped.data / name), base_of(name), fresh=False)
        index.load()
        entries = [entry for entry in stopped.entries(name) if entry]  # or "… is empty."
        for entry in entries:
            assert index.lookup(int(entry["offset"])) == (
                int(entry["offset"]),
                int(entry["position"]),
            ), name
        assert len(index) == len(entries)
    for name in stopped.files("*-0/*.timeindex"):
        times = TimeIndex(disk, str(stopped.data / name), base_of(name), fresh=False)
        times.load()
        entries = stopped.entries(name)
        for entry in entries:
            assert times.lookup(int(entry["timestamp"]) + 1) == int(entry["offset"]), name


def base_of(name: str) -> int:
    return int(Path(name).name[:20])


def test_producer_snapshots_match_kafkas_tool(folder: Folder) -> None:
    names = list(folder.files("*/*.snapshot"))
    for name in names:
        found = [
            (
                producer.producer_id,
                producer.epoch,
                producer.coordinator_epoch,
                producer.batches[-1].first_sequence,
                producer.last_sequence,
                producer.batches[-1].last_offset,
                producer.last_timestamp,
            )
            for producer in decode_snapshot((folder.data / name).read_bytes())
        ]
        fields = (
            "producerId",
            "producerEpoch",
            "coordinatorEpoch",
            "firstSequence",
            "lastSequence",
            "lastOffset",
            "lastTimestamp",
        )
        reported = [tuple(int(entry[field]) for field in fields) for entry in folder.entries(name)]
        assert sorted(found) == sorted(reported), name


def test_checkpoints_and_meta_properties_are_read(stopped: Folder) -> None:
    disk, data = RealDisk(), str(stopped.data)
    ends = {
        (tp.topic, tp.partition): offset
        for tp, offset in read_checkpoint(disk, f"{data}/recovery-point-offset-checkpoint").items()
    }
    assert ends[("none", 0)] == 60
    assert ends[("transactions", 0)] == 20
    marks = read_checkpoint(disk, f"{data}/replication-offset-checkpoint")
    assert marks[TopicPartition("rolled", 0)] == 15
    starts = read_checkpoint(disk, f"{data}/log-start-offset-checkpoint")
    assert starts == {TopicPartition("cut", 0): 7}
    meta = read_meta_properties(disk, data)
    assert meta is not None
    assert (meta.node_id, meta.version) == (1, 1)
    assert meta.directory_id is not None
    assert [(entry.epoch, entry.start_offset) for entry in read_epochs(disk, f"{data}/none-0")] == [
        (0, 0)
    ]
    assert consume_clean_shutdown(disk, data) is not None


@pytest.mark.parametrize("topic", TOPICS)
def test_log_opens_after_a_clean_stop_of_kafka(stopped: Folder, topic: str) -> None:
    end = last_offset(stopped, topic) + 1
    plan = RecoveryPlan(clean=True, recovery_point=Offset(end))
    log = open_log(stopped, topic, plan)
    assert log.end_offset == end
    assert read_offsets(log) == list(range(end))
    log.close(clean=True)


@pytest.mark.parametrize("topic", TOPICS)
def test_recovery_rebuilds_kafkas_files(stopped: Folder, topic: str) -> None:
    """Everything but the log itself is deleted; the rebuilt files equal Kafka's."""
    directory = stopped.data / f"{topic}-0"
    kafkas = {file.name: file.read_bytes() for file in directory.glob("*index")}
    snapshots = {file.name: file.read_bytes() for file in directory.glob("*.snapshot")}
    for file in (*directory.glob("*index"), *directory.glob("*.snapshot")):
        file.unlink()
    log = open_log(stopped, topic, RecoveryPlan(clean=False))
    log.close(clean=True)
    ours = {file.name: file.read_bytes() for file in directory.glob("*index")}
    assert ours == kafkas
    newest = max(snapshots)
    ours_decoded = decode_snapshot((directory / newest).read_bytes())
    assert {each.producer_id: each.last_sequence for each in ours_decoded} == {
        each.producer_id: each.last_sequence for each in decode_snapshot(snapshots[newest])
    }


@pytest.mark.parametrize("topic", TOPICS)
def test_log_opens_after_kafka_was_killed(tmp_path: Path, topic: str) -> None:
    killed = unpack("killed", tmp_path)
    end = last_offset(killed, topic) + 1
    log = open_log(killed, topic, RecoveryPlan(clean=False))
    assert log.end_offset == end
    assert read_offsets(log) == list(range(end))
    log.close(clean=True)


def test_aborted_transactions_match_kafkas_tool(stopped: Folder) -> None:
    log = open_log(stopped, "transactions", RecoveryPlan(clean=True, recovery_point=Offset(20)))
    (name,) = stopped.files("transactions-0/*.txnindex")
    reported = [
        (int(entry["producerId"]), int(entry["firstOffset"]), int(entry["lastOffset"]))
        for entry in stopped.entries(name)
    ]
    found = [
        (aborted.producer_id, aborted.first_offset, aborted.last_offset)
        for aborted in log.aborted_transactions(0, 20)
    ]
    assert found == reported
    assert log.first_unstable_offset is None
    log.close(clean=True)


def test_markers_equal_kafkas(folder: Folder) -> None:
    """Byte for byte, for commits and aborts."""
    seen = set()
    for name in folder.files("transactions-0/*.log"):
        data = (folder.data / name).read_bytes()
        for position, header in iterate_headers(data):
            kafkas = data[position : position + header.size_bytes]
            marker = read_marker(kafkas) if header.is_control else None
            if marker is None:
                continue
            seen.add(marker.commit)
            end = TransactionEnd(header.producer_id, header.producer_epoch, *marker)
            ours = build_marker(end, header.max_timestamp)
            patch(ours, 0, header.base_offset, header.leader_epoch)
            assert bytes(ours) == kafkas
    assert seen == {True, False}


def last_offset(folder: Folder, topic: str) -> int:
    name = list(folder.files(f"{topic}-0/*.log"))[-1]
    return int(folder.batches(name)[-1]["lastOffset"])


def read_offsets(log: Log) -> list[int]:
    """Returns every record's offset, read as a consumer would."""
    offsets: list[int] = []
    position = log.log_start_offset
    while position < log.end_offset:
        part = log.read(position, bytes_max=10_000, bound=log.end_offset)
        assert part is not None
        data = memoryview(part.file.pread(part.size, part.position))
        for start, header in iterate_headers(data):
            batch = data[start : start + header.size_bytes]
            offsets += [
                record.offset for record in read_records(batch, bytes_max=RECORDS_BYTES_MAX)
            ]
        position = Offset(offsets[-1] + 1)
    return offsets
