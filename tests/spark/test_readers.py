"""Tests of the readers on a real node, called as Spark would call them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lograft.model.errors import LograftError
from lograft.spark.batch_reader import BatchReader
from lograft.spark.offsets import OffsetJson
from lograft.spark.options import read_options
from lograft.spark.spark_versions import ReadAllAvailable
from lograft.spark.stream_reader import StreamReader
from tests.compatibility.servers import Server, free_port
from tests.spark.topics import Topics
from tests.unit.net.certificates import make_certificate

NewTopic = Callable[..., str]


class Readers:
    """Readers of a topic; every call of `stream` starts the query anew."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.topics = topics
        self.topic = topic
        self._streams: list[StreamReader] = []

    def values(self, **options: str | int) -> list[str]:
        reader = BatchReader(self._options(options, is_streaming=False))
        return self._read(reader, reader.partitions())

    def stream(self, **options: str | int) -> "Stream":
        given = {"startingOffsets": "earliest"} | options
        reader = StreamReader(self._options(given, is_streaming=True))
        self._streams.append(reader)
        return Stream(self, reader)

    def close(self) -> None:
        for stream in self._streams:
            stream.stop()

    def _options(self, given: dict[str, Any], *, is_streaming: bool) -> Any:
        base = {"kafka.bootstrap.servers": self.topics.bootstrap, "subscribe": self.topic}
        texts = {name: str(value) for name, value in given.items()}
        return read_options(base | texts, is_streaming=is_streaming)

    def _read(self, reader: BatchReader | StreamReader, partitions: Any) -> list[str]:
        return sorted(
            bytes(value).decode()
            for partition in partitions
            for batch in reader.read(partition)
            for value in batch.column("value").to_pylist()
        )


class Stream:
    def __init__(self, readers: Readers, reader: StreamReader) -> None:
        self._readers = readers
        self.reader = reader

    def batch(self, start: OffsetJson, *, is_limited: bool = True) -> tuple[list[str], OffsetJson]:
        """Returns the values of the micro-batch after `start`, and its end offsets. Offsets are
        encoded and decoded, as in a checkpoint."""
        limit = self.reader.getDefaultReadLimit() if is_limited else ReadAllAvailable()
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return self._readers._read(self.reader, self.reader.partitions(start, end)), end

    def batches(self, start: OffsetJson) -> Iterator[list[str]]:
        while True:
            values, end = self.batch(start)
            if end == start:
                return
            yield values
            start = end


@pytest.fixture
def readers(topics: Topics, new_topic: NewTopic) -> Iterator[Readers]:
    topic_readers = Readers(topics, new_topic(2))
    yield topic_readers
    topic_readers.close()


def numbered(count: int, since: int = 0) -> list[str]:
    return [f"{number:06}" for number in range(since, since + count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_codec_is_read(readers: Readers, codec: str) -> None:
    values = numbered(3_000)
    readers.topics.fill(readers.topic, values, codec=codec)
    assert readers.values() == values


def test_start_and_end_positions(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0, timestamp_ms=1_000)
    readers.topics.fill(readers.topic, numbered(100, 100), partition=0, timestamp_ms=2_000)
    readers.topics.fill(readers.topic, numbered(10, 200), partition=1, timestamp_ms=3_000)
    start = json.dumps({readers.topic: {"0": 90, "1": -2}})
    end = json.dumps({readers.topic: {"0": 110, "1": 3}})
    assert readers.values(startingOffsets=start, endingOffsets=end) == [
        *numbered(20, 90),
        *numbered(3, 200),
    ]
    assert readers.values(startingTimestamp=2_000) == numbered(110, 100)
    assert readers.values(endingTimestamp=2_000) == numbered(100)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert readers.values(startingTimestamp=2_500, **late) == numbered(10, 200)
    with pytest.raises(LograftError, match="no record with timestamp 2500 or later"):
        readers.values(startingTimestamp=2_500)
    with pytest.raises(LograftError, match=f"is missing {readers.topic}-1"):
        readers.values(startingOffsets=json.dumps({readers.topic: {"0": 0}}))
    with pytest.raises(LograftError, match="'nowhere' does not exist"):
        readers.values(subscribe="nowhere")


def test_subscribe_pattern_and_assign(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10), partition=0)
    readers.topics.fill(readers.topic, numbered(10, 10), partition=1)
    base = {"kafka.bootstrap.servers": readers.topics.bootstrap}
    for given, values in (
        ({"assign": json.dumps({readers.topic: [1]})}, numbered(10, 10)),
        ({"subscribePattern": f"{readers.topic[:-1]}[{readers.topic[-1]}]"}, numbered(20)),
    ):
        reader = BatchReader(read_options(base | given, is_streaming=False))
        assert readers._read(reader, reader.partitions()) == values


def test_tasks_are_split_for_min_partitions_and_max_records(readers: Readers) -> None:
    values = numbered(1_000)
    readers.topics.fill(readers.topic, values)
    for given in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
        reader = BatchReader(readers._options(given, is_streaming=False))
        assert len(reader.partitions()) >= 7
        assert readers._read(reader, reader.partitions()) == values


def test_micro_batches_are_limited_and_new_partitions_start_at_their_beginning(
    readers: Readers,
) -> None:
    readers.topics.fill(readers.topic, numbered(1_000))
    stream = readers.stream(maxOffsetsPerTrigger=300)
    start = stream.reader.initialOffset()
    batches = list(stream.batches(start))
    assert sorted(value for batch in batches for value in batch) == numbered(1_000)
    assert len(batches) == 4
    assert all(len(batch) <= 302 for batch in batches)
    all_values, end = stream.batch(start, is_limited=False)
    assert all_values == numbered(1_000)
    readers.topics.add_partitions(readers.topic, 3)
    readers.topics.fill(readers.topic, numbered(500, 1_000), partition=2)
    assert sorted(v for batch in stream.batches(end) for v in batch) == numbered(500, 1_000)


def test_available_now_ignores_records_written_after_its_start(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100))
    stream = readers.stream(maxOffsetsPerTrigger=60)
    start = stream.reader.initialOffset()
    stream.reader.prepareForTriggerAvailableNow()
    readers.topics.fill(readers.topic, numbered(100, 100))
    assert sorted(v for batch in stream.batches(start) for v in batch) == numbered(100)


def test_small_batch_is_delayed_until_min_offsets_or_max_delay(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10))
    patient = readers.stream(minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    start = patient.reader.initialOffset()
    assert patient.batch(start) == ([], start)
    hasty = readers.stream(minOffsetsPerTrigger=50, maxTriggerDelay="0ms")
    assert hasty.batch(start)[0] == numbered(10)
    readers.topics.fill(readers.topic, numbered(40, 10))
    assert patient.batch(start)[0] == numbered(50)


def test_repeated_batch_has_the_same_tasks(readers: Readers) -> None:
    """Even if a whole partition was deleted: a sink identifies tasks by number."""
    for partition in (0, 1):
        readers.topics.fill(readers.topic, numbered(100, 100 * partition), partition=partition)
    before = readers.stream().reader
    start = before.initialOffset()
    end = before.latestOffset(start, ReadAllAvailable())
    readers.topics.delete_records(readers.topic, 0, 100)
    repeated = readers.stream(failOnDataLoss="false").reader
    tasks = [list(repeated.read(task)) for task in repeated.partitions(start, end)]
    assert [sum(batch.num_rows for batch in batches) for batches in tasks] == [0, 100]


def test_micro_batches_are_limited_by_bytes(readers: Readers) -> None:
    values = [f"{number:06}" + "x" * 994 for number in range(2_000)]
    readers.topics.fill(readers.topic, values)
    stream = readers.stream(maxBytesPerTrigger=1_000_000)
    batches = list(stream.batches(stream.reader.initialOffset()))
    assert sorted(value for batch in batches for value in batch) == values
    # Key and value are 1 KB each.
    assert 4 <= len(batches) <= 8


def test_deleted_records_are_never_skipped_silently(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(200), partition=0)
    start = {readers.topic: {"0": 100, "1": 0}}
    readers.topics.delete_records(readers.topic, 0, 150)
    with pytest.raises(LograftError, match="offsets 100 to 149 were deleted"):
        readers.stream().batch(start)
    assert readers.stream(failOnDataLoss="false").batch(start)[0] == numbered(50, 150)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 50}, {"maxBytesPerTrigger": 1 << 20}])
def test_micro_batches_do_not_count_deleted_records(
    topics: Topics, new_topic: NewTopic, limit: dict[str, int]
) -> None:
    readers = Readers(topics, new_topic(1))
    topics.fill(readers.topic, numbered(300), partition=0)
    topics.delete_records(readers.topic, 0, 240)
    stream = readers.stream(failOnDataLoss="false", **limit)
    batches = list(stream.batches({readers.topic: {"0": 10}}))
    assert batches[0][0] == numbered(1, 240)[0], "the first batch starts at the log start offset"
    assert sorted(value for batch in batches for value in batch) == numbered(60, 240)
    readers.close()


def test_error_names_the_offset_or_partition_that_does_not_exist(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10), partition=0)
    beyond = json.dumps({readers.topic: {"0": 99, "1": 0}})
    with pytest.raises(
        LograftError, match="the log end offset is 10, below the requested offset 99"
    ):
        readers.values(startingOffsets=beyond)
    assert readers.values(startingOffsets=beyond, failOnDataLoss="false") == []
    given = {
        "kafka.bootstrap.servers": readers.topics.bootstrap,
        "assign": json.dumps({readers.topic: [0, 7]}),
    }
    with pytest.raises(LograftError, match=r"assign names .*-7, but .* has only partitions 0 to 1"):
        BatchReader(read_options(given, is_streaming=False)).partitions()
    with pytest.raises(LograftError, match=r"startingTimestamp: .* has no record with timestamp"):
        readers.values(startingTimestamp=4102444800000)


def test_records_deleted_between_planning_and_reading(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(200), partition=0)
    for fails, outcome in (("true", None), ("false", numbered(50, 150))):
        reader = BatchReader(readers._options({"failOnDataLoss": fails}, is_streaming=False))
        planned = reader.partitions()
        readers.topics.delete_records(readers.topic, 0, 150)
        if outcome is None:
            with pytest.raises(LograftError, match="the log starts at offset 150"):
                readers._read(reader, planned)
            readers.topics.delete(readers.topic)
            readers.topics.create(readers.topic, 2)
            readers.topics.fill(readers.topic, numbered(200), partition=0)
        else:
            assert readers._read(reader, planned) == outcome


def test_recreated_topic_is_detected_by_its_id(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    strict, lax = readers.stream(), readers.stream(failOnDataLoss="false")
    _, end = strict.batch(strict.reader.initialOffset())
    lax.batch(end)
    readers.topics.delete(readers.topic)
    readers.topics.create(readers.topic, 2)
    readers.topics.fill(readers.topic, numbered(300, 500), partition=0)
    # The offsets alone do not show that the topic is a new one.
    with pytest.raises(LograftError, match="was deleted and recreated"):
        strict.batch(end)
    assert lax.batch(end)[0] == numbered(300, 500)


def test_recreated_topic_is_detected_after_its_deletion_was_seen(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(6), partition=0)
    stream = readers.stream(minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    start = stream.reader.initialOffset()
    readers.topics.delete(readers.topic)
    assert stream.batch(start) == ([], start), "it waits for more records"
    readers.topics.create(readers.topic)
    with pytest.raises(LograftError, match="deleted and recreated"):
        stream.batch(start)


def recreate(readers: Readers, values: list[str]) -> None:
    readers.topics.delete(readers.topic)
    readers.topics.create(readers.topic, 2)
    readers.topics.fill(readers.topic, values, partition=0)


def test_recreated_topic_is_detected_by_the_id_in_the_checkpoint(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    before = readers.stream()
    _, end = before.batch(before.reader.initialOffset())
    recreate(readers, numbered(300, 500))
    # The offsets alone do not show that the topic is a new one.
    with pytest.raises(LograftError, match="was deleted and recreated"):
        readers.stream().batch(end)
    stream = readers.stream(failOnDataLoss="false")
    values, end = stream.batch(end)
    assert values == numbered(300, 500)
    assert readers.stream().batch(end)[0] == [], "the checkpoint now has the new topic's ID"


def test_recreated_topic_with_the_same_end_offset_is_read(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    before = readers.stream()
    _, end = before.batch(before.reader.initialOffset())
    recreate(readers, numbered(100, 500))
    values, _ = readers.stream(failOnDataLoss="false").batch(end)
    assert values == numbered(100, 500)


def test_repeated_batch_reads_nothing_from_a_recreated_topic(readers: Readers) -> None:
    """Its offsets were planned for the old topic and refer to other records in the new one."""
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    before = readers.stream()
    start = before.reader.initialOffset()
    end = before.reader.latestOffset(start, ReadAllAvailable())
    recreate(readers, numbered(300, 500))
    with pytest.raises(LograftError, match="was deleted and recreated"):
        readers.stream().reader.partitions(start, end)
    stream = readers.stream(failOnDataLoss="false")
    for task in stream.reader.partitions(start, end):
        assert list(stream.reader.read(task)) == []
    assert stream.batch(end)[0] == numbered(300, 500)


def test_progress_of_a_deleted_topic_is_not_committed_for_the_new_one(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    group = f"progress-{readers.topic}"
    before = readers.stream(progressGroup=group)
    _, end = before.batch(before.reader.initialOffset())
    recreate(readers, numbered(300, 500))
    after = readers.stream(progressGroup=group, failOnDataLoss="false")
    _, end = after.batch(end)
    assert readers.topics.committed(group).get((readers.topic, 0), 0) == 0
    after.batch(end)
    assert readers.topics.committed(group)[readers.topic, 0] == 300


@pytest.mark.parametrize("has_ids", [True, False])
def test_first_micro_batch_of_a_recreated_topic_is_limited(
    topics: Topics, new_topic: NewTopic, has_ids: bool
) -> None:
    readers = Readers(topics, new_topic(1))
    topics.fill(readers.topic, numbered(400), partition=0)
    before = readers.stream()
    _, end = before.batch(before.reader.initialOffset())
    topics.delete(readers.topic)
    topics.create(readers.topic, 1)
    topics.fill(readers.topic, numbered(300, 500), partition=0)
    if not has_ids:
        end = {readers.topic: end[readers.topic]}
    stream = readers.stream(failOnDataLoss="false", maxOffsetsPerTrigger=100)
    assert [len(batch) for batch in stream.batches(end)] == [100, 100, 100]
    readers.close()


def test_ids_are_added_to_a_checkpoint_without_new_records(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10), partition=0)
    stream = readers.stream(minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    values, end = stream.batch({readers.topic: {"0": 5, "1": 0}})
    assert values == []
    recreate(readers, numbered(300, 500))
    with pytest.raises(LograftError, match="was deleted and recreated"):
        readers.stream().batch(end)


def test_recreated_topic_is_detected_by_its_end_offset(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10), partition=0)
    end = {readers.topic: {"0": 100, "1": 0}}
    with pytest.raises(
        LograftError, match="the log end offset is 10, below the requested offset 100"
    ):
        readers.stream().batch(end)
    assert readers.stream(failOnDataLoss="false").batch(end)[0] == numbered(10)


def test_deleted_topic_fails_the_query(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(10), partition=0)
    strict, lax = readers.stream(), readers.stream(failOnDataLoss="false")
    _, end = strict.batch(strict.reader.initialOffset())
    lax.batch(end)
    readers.topics.delete(readers.topic)
    with pytest.raises(LograftError, match="deleted before the query had read them"):
        strict.batch(end)
    assert lax.batch(end)[0] == []


def test_aborted_transactions_are_skipped(readers: Readers) -> None:
    readers.topics.transact(readers.topic, numbered(10), commits=True)
    readers.topics.transact(readers.topic, numbered(10, 10), commits=False)
    readers.topics.transact(readers.topic, numbered(10, 20), commits=True)
    committed_only = {"kafka.isolation.level": "read_committed"}
    assert readers.values(**committed_only) == numbered(10) + numbered(10, 20)
    assert readers.values() == numbered(30)


def test_progress_is_committed_to_a_group(readers: Readers) -> None:
    readers.topics.fill(readers.topic, numbered(100), partition=0)
    group = f"progress-{readers.topic}"
    stream = readers.stream(progressGroup=group)
    _, end = stream.batch(stream.reader.initialOffset())
    # Spark requests the next batch when this one is complete.
    stream.batch(end)
    assert readers.topics.committed(group) == {(readers.topic, 0): 100, (readers.topic, 1): 0}


def test_cluster_with_tls_is_read_with_an_inline_pem_certificate(
    readers: Readers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The certificate itself is the option, without a trust store file."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder)
    node = Server.of("lograft", folder / "node")
    port = free_port()
    node.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://{node.controller},"
        f"TLS://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.port},TLS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": write_keystore(folder, certificate, key),
    }
    with node.started(), Topics(node.bootstrap) as topics:
        topics.create("secret", 1)
        topics.fill("secret", numbered(10))
        secured = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.certificates": Path(certificate).read_text(),
        }
        reader = BatchReader(read_options(secured | {"subscribe": "secret"}, is_streaming=False))
        assert readers._read(reader, reader.partitions()) == numbered(10)


def write_keystore(folder: Path, certificate: str, key: str) -> str:
    """Writes a PEM key store: private key and certificates in one file."""
    file = folder / "keystore.pem"
    file.write_text(Path(key).read_text() + Path(certificate).read_text())
    return str(file)
