"""The readers without Spark around them: what it would ask of them, on a real node."""

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


class Reading:
    """Readers of one topic; a stream is restarted with every `stream()`."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.topics = topics
        self.topic = topic
        self._streams: list[StreamReader] = []

    def values(self, **options: str | int) -> list[str]:
        reader = BatchReader(self._options(options, is_streaming=False))
        return self._read(reader, reader.partitions())

    def stream(self, **options: str | int) -> "Stream":
        asked = {"startingOffsets": "earliest"} | options
        reader = StreamReader(self._options(asked, is_streaming=True))
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
    def __init__(self, reading: Reading, reader: StreamReader) -> None:
        self._reading = reading
        self.reader = reader

    def batch(self, start: OffsetJson, *, is_limited: bool = True) -> tuple[list[str], OffsetJson]:
        """What a micro-batch from there on has, and where it ends. The offsets go through text, as
        in a checkpoint."""
        limit = self.reader.getDefaultReadLimit() if is_limited else ReadAllAvailable()
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return self._reading._read(self.reader, self.reader.partitions(start, end)), end

    def batches(self, start: OffsetJson) -> Iterator[list[str]]:
        while True:
            values, end = self.batch(start)
            if end == start:
                return
            yield values
            start = end


@pytest.fixture
def reading(topics: Topics, new_topic: NewTopic) -> Iterator[Reading]:
    made = Reading(topics, new_topic(2))
    yield made
    made.close()


def numbered(count: int, since: int = 0) -> list[str]:
    return [f"{number:06}" for number in range(since, since + count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_codecs(reading: Reading, codec: str) -> None:
    values = numbered(3_000)
    reading.topics.fill(reading.topic, values, codec=codec)
    assert reading.values() == values


def test_from_where_to_where(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0, timestamp_ms=1_000)
    reading.topics.fill(reading.topic, numbered(100, 100), partition=0, timestamp_ms=2_000)
    reading.topics.fill(reading.topic, numbered(10, 200), partition=1, timestamp_ms=3_000)
    where = json.dumps({reading.topic: {"0": 90, "1": -2}})
    until = json.dumps({reading.topic: {"0": 110, "1": 3}})
    assert reading.values(startingOffsets=where, endingOffsets=until) == [
        *numbered(20, 90),
        *numbered(3, 200),
    ]
    assert reading.values(startingTimestamp=2_000) == numbered(110, 100)
    assert reading.values(endingTimestamp=2_000) == numbered(100)
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reading.values(startingTimestamp=2_500, **late) == numbered(10, 200)
    with pytest.raises(LograftError, match="no record as young as 2500 ms"):
        reading.values(startingTimestamp=2_500)
    with pytest.raises(LograftError, match=f"does not name {reading.topic}-1"):
        reading.values(startingOffsets=json.dumps({reading.topic: {"0": 0}}))
    with pytest.raises(LograftError, match="'nowhere' is not in the cluster"):
        reading.values(subscribe="nowhere")


def test_patterns_and_assigned_partitions(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10), partition=0)
    reading.topics.fill(reading.topic, numbered(10, 10), partition=1)
    base = {"kafka.bootstrap.servers": reading.topics.bootstrap}
    for given, values in (
        ({"assign": json.dumps({reading.topic: [1]})}, numbered(10, 10)),
        ({"subscribePattern": f"{reading.topic[:-1]}[{reading.topic[-1]}]"}, numbered(20)),
    ):
        reader = BatchReader(read_options(base | given, is_streaming=False))
        assert reading._read(reader, reader.partitions()) == values


def test_tasks_are_cut_as_asked(reading: Reading) -> None:
    values = numbered(1_000)
    reading.topics.fill(reading.topic, values)
    for given in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
        reader = BatchReader(reading._options(given, is_streaming=False))
        assert len(reader.partitions()) >= 7
        assert reading._read(reader, reader.partitions()) == values


def test_micro_batches_are_limited_and_new_partitions_begin_at_their_beginning(
    reading: Reading,
) -> None:
    reading.topics.fill(reading.topic, numbered(1_000))
    stream = reading.stream(maxOffsetsPerTrigger=300)
    start = stream.reader.initialOffset()
    batches = list(stream.batches(start))
    assert sorted(value for batch in batches for value in batch) == numbered(1_000)
    assert len(batches) == 4
    assert all(len(batch) <= 302 for batch in batches)
    everything, end = stream.batch(start, is_limited=False)
    assert everything == numbered(1_000)
    reading.topics.add_partitions(reading.topic, 3)
    reading.topics.fill(reading.topic, numbered(500, 1_000), partition=2)
    assert sorted(v for batch in stream.batches(end) for v in batch) == numbered(500, 1_000)


def test_a_run_of_available_now_does_not_see_what_comes_later(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100))
    stream = reading.stream(maxOffsetsPerTrigger=60)
    start = stream.reader.initialOffset()
    stream.reader.prepareForTriggerAvailableNow()
    reading.topics.fill(reading.topic, numbered(100, 100))
    assert sorted(v for batch in stream.batches(start) for v in batch) == numbered(100)


def test_few_records_wait_for_more_but_not_for_ever(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10))
    patient = reading.stream(minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    start = patient.reader.initialOffset()
    assert patient.batch(start) == ([], start)
    hasty = reading.stream(minOffsetsPerTrigger=50, maxTriggerDelay="0ms")
    assert hasty.batch(start)[0] == numbered(10)
    reading.topics.fill(reading.topic, numbered(40, 10))
    assert patient.batch(start)[0] == numbered(50)


def test_a_batch_that_comes_again_has_the_same_tasks(reading: Reading) -> None:
    """Also when all of a partition is gone by then: a sink knows tasks by their numbers."""
    for partition in (0, 1):
        reading.topics.fill(reading.topic, numbered(100, 100 * partition), partition=partition)
    before = reading.stream().reader
    start = before.initialOffset()
    end = before.latestOffset(start, ReadAllAvailable())
    reading.topics.delete_records(reading.topic, 0, 100)
    again = reading.stream(failOnDataLoss="false").reader
    tasks = [list(again.read(one)) for one in again.partitions(start, end)]
    assert [sum(batch.num_rows for batch in one) for one in tasks] == [0, 100]


def test_micro_batches_are_limited_by_bytes(reading: Reading) -> None:
    values = [f"{number:06}" + "x" * 994 for number in range(2_000)]
    reading.topics.fill(reading.topic, values)
    stream = reading.stream(maxBytesPerTrigger=1_000_000)
    batches = list(stream.batches(stream.reader.initialOffset()))
    assert sorted(value for batch in batches for value in batch) == values
    # Key and value have a kilobyte each.
    assert 4 <= len(batches) <= 8


def test_records_that_are_gone_are_never_passed_over_in_silence(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(200), partition=0)
    start = {reading.topic: {"0": 100, "1": 0}}
    reading.topics.delete_records(reading.topic, 0, 150)
    with pytest.raises(LograftError, match="offsets 100 to 149 are not there any more"):
        reading.stream().batch(start)
    assert reading.stream(failOnDataLoss="false").batch(start)[0] == numbered(50, 150)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 50}, {"maxBytesPerTrigger": 1 << 20}])
def test_micro_batches_do_not_count_records_that_are_gone(
    topics: Topics, new_topic: NewTopic, limit: dict[str, int]
) -> None:
    reading = Reading(topics, new_topic(1))
    topics.fill(reading.topic, numbered(300), partition=0)
    topics.delete_records(reading.topic, 0, 240)
    stream = reading.stream(failOnDataLoss="false", **limit)
    batches = list(stream.batches({reading.topic: {"0": 10}}))
    assert batches[0][0] == numbered(1, 240)[0], "the first batch begins where the log does"
    assert sorted(one for batch in batches for one in batch) == numbered(60, 240)
    reading.close()


def test_what_is_not_in_the_cluster_is_named(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10), partition=0)
    beyond = json.dumps({reading.topic: {"0": 99, "1": 0}})
    with pytest.raises(LograftError, match="the log ends at 10, before the offset 99"):
        reading.values(startingOffsets=beyond)
    assert reading.values(startingOffsets=beyond, failOnDataLoss="false") == []
    given = {
        "kafka.bootstrap.servers": reading.topics.bootstrap,
        "assign": json.dumps({reading.topic: [0, 7]}),
    }
    with pytest.raises(LograftError, match=r"assign names .*-7, but .* the partitions 0 to 1"):
        BatchReader(read_options(given, is_streaming=False)).partitions()
    with pytest.raises(LograftError, match=r"startingTimestamp: .* has no record as young"):
        reading.values(startingTimestamp=4102444800000)


def test_records_that_go_between_plan_and_task(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(200), partition=0)
    for fails, outcome in (("true", None), ("false", numbered(50, 150))):
        reader = BatchReader(reading._options({"failOnDataLoss": fails}, is_streaming=False))
        planned = reader.partitions()
        reading.topics.delete_records(reading.topic, 0, 150)
        if outcome is None:
            with pytest.raises(LograftError, match="the log begins at 150"):
                reading._read(reader, planned)
            reading.topics.delete(reading.topic)
            reading.topics.create(reading.topic, 2)
            reading.topics.fill(reading.topic, numbered(200), partition=0)
        else:
            assert reading._read(reader, planned) == outcome


def test_a_topic_that_was_created_again_is_known_by_its_id(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    strict, lax = reading.stream(), reading.stream(failOnDataLoss="false")
    _, end = strict.batch(strict.reader.initialOffset())
    lax.batch(end)
    reading.topics.delete(reading.topic)
    reading.topics.create(reading.topic, 2)
    reading.topics.fill(reading.topic, numbered(300, 500), partition=0)
    # By its offsets alone the new topic could be the old one.
    with pytest.raises(LograftError, match="was deleted and created again"):
        strict.batch(end)
    assert lax.batch(end)[0] == numbered(300, 500)


def test_a_topic_is_known_again_though_it_was_seen_to_be_gone(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(6), partition=0)
    stream = reading.stream(minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    start = stream.reader.initialOffset()
    reading.topics.delete(reading.topic)
    assert stream.batch(start) == ([], start), "it waits for more"
    reading.topics.create(reading.topic)
    with pytest.raises(LograftError, match="deleted and created again"):
        stream.batch(start)


def recreate(reading: Reading, values: list[str]) -> None:
    reading.topics.delete(reading.topic)
    reading.topics.create(reading.topic, 2)
    reading.topics.fill(reading.topic, values, partition=0)


def test_after_a_restart_a_new_topic_is_known_by_the_id_in_the_checkpoint(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    before = reading.stream()
    _, end = before.batch(before.reader.initialOffset())
    recreate(reading, numbered(300, 500))
    # By its offsets alone the new topic could be the old one.
    with pytest.raises(LograftError, match="was deleted and created again"):
        reading.stream().batch(end)
    stream = reading.stream(failOnDataLoss="false")
    values, end = stream.batch(end)
    assert values == numbered(300, 500)
    assert reading.stream().batch(end)[0] == [], "from here on it is the query's topic"


def test_a_new_topic_as_long_as_the_old_one_is_read(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    before = reading.stream()
    _, end = before.batch(before.reader.initialOffset())
    recreate(reading, numbered(100, 500))
    values, _ = reading.stream(failOnDataLoss="false").batch(end)
    assert values == numbered(100, 500)


def test_a_batch_that_comes_again_takes_nothing_of_a_new_topic(reading: Reading) -> None:
    """It was planned in the old one: its offsets mean other records in the new one."""
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    before = reading.stream()
    start = before.reader.initialOffset()
    end = before.reader.latestOffset(start, ReadAllAvailable())
    recreate(reading, numbered(300, 500))
    with pytest.raises(LograftError, match="was deleted and created again"):
        reading.stream().reader.partitions(start, end)
    stream = reading.stream(failOnDataLoss="false")
    for task in stream.reader.partitions(start, end):
        assert list(stream.reader.read(task)) == []
    assert stream.batch(end)[0] == numbered(300, 500)


def test_progress_in_a_topic_that_is_no_more_is_not_told_of_the_new_one(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    group = f"progress-{reading.topic}"
    before = reading.stream(progressGroup=group)
    _, end = before.batch(before.reader.initialOffset())
    recreate(reading, numbered(300, 500))
    after = reading.stream(progressGroup=group, failOnDataLoss="false")
    _, end = after.batch(end)
    assert reading.topics.committed(group).get((reading.topic, 0), 0) == 0
    after.batch(end)
    assert reading.topics.committed(group)[reading.topic, 0] == 300


@pytest.mark.parametrize("knows_ids", [True, False])
def test_micro_batches_of_a_new_topic_are_limited_from_the_first_on(
    topics: Topics, new_topic: NewTopic, knows_ids: bool
) -> None:
    reading = Reading(topics, new_topic(1))
    topics.fill(reading.topic, numbered(400), partition=0)
    before = reading.stream()
    _, end = before.batch(before.reader.initialOffset())
    topics.delete(reading.topic)
    topics.create(reading.topic, 1)
    topics.fill(reading.topic, numbered(300, 500), partition=0)
    if not knows_ids:
        end = {reading.topic: end[reading.topic]}
    stream = reading.stream(failOnDataLoss="false", maxOffsetsPerTrigger=100)
    assert [len(batch) for batch in stream.batches(end)] == [100, 100, 100]
    reading.close()


def test_a_checkpoint_without_ids_gets_them_before_there_is_news(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10), partition=0)
    stream = reading.stream(minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    values, end = stream.batch({reading.topic: {"0": 5, "1": 0}})
    assert values == []
    recreate(reading, numbered(300, 500))
    with pytest.raises(LograftError, match="was deleted and created again"):
        reading.stream().batch(end)


def test_after_a_restart_a_new_topic_is_known_by_its_end(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10), partition=0)
    end = {reading.topic: {"0": 100, "1": 0}}
    with pytest.raises(LograftError, match="the log ends at 10, before the offset 100"):
        reading.stream().batch(end)
    assert reading.stream(failOnDataLoss="false").batch(end)[0] == numbered(10)


def test_a_topic_that_is_gone(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(10), partition=0)
    strict, lax = reading.stream(), reading.stream(failOnDataLoss="false")
    _, end = strict.batch(strict.reader.initialOffset())
    lax.batch(end)
    reading.topics.delete(reading.topic)
    with pytest.raises(LograftError, match="deleted while the query was to read on there"):
        strict.batch(end)
    assert lax.batch(end)[0] == []


def test_aborted_transactions_are_skipped(reading: Reading) -> None:
    reading.topics.transact(reading.topic, numbered(10), commits=True)
    reading.topics.transact(reading.topic, numbered(10, 10), commits=False)
    reading.topics.transact(reading.topic, numbered(10, 20), commits=True)
    committed_only = {"kafka.isolation.level": "read_committed"}
    assert reading.values(**committed_only) == numbered(10) + numbered(10, 20)
    assert reading.values() == numbered(30)


def test_progress_is_seen_in_a_group(reading: Reading) -> None:
    reading.topics.fill(reading.topic, numbered(100), partition=0)
    group = f"progress-{reading.topic}"
    stream = reading.stream(progressGroup=group)
    _, end = stream.batch(stream.reader.initialOffset())
    # Spark asks for the next batch when this one is done.
    stream.batch(end)
    assert reading.topics.committed(group) == {(reading.topic, 0): 100, (reading.topic, 1): 0}


def test_a_cluster_behind_tls_is_read_with_pem_text(
    reading: Reading, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No trust store file, no JKS: the certificate itself is the option."""
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
        "ssl.keystore.location": joined(folder, certificate, key),
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
        assert reading._read(reader, reader.partitions()) == numbered(10)


def joined(folder: Path, certificate: str, key: str) -> str:
    """Kafka's PEM key store: private key and certificates in one file."""
    file = folder / "keystore.pem"
    file.write_text(Path(key).read_text() + Path(certificate).read_text())
    return str(file)
