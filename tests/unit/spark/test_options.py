"""Tests of the options of the source and the sink, and of their error messages."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import SCRAM_MODULE
from lograft.model.types import TopicPartition
from lograft.spark.offsets import EARLIEST, LATEST, AtEnd, AtOffsets, AtTime, AtTimes
from lograft.spark.options import ReadOptions, read_options, write_options

BASE = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}


def stream_options(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=True)


def batch_options(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=False)


def test_streams_start_at_latest_and_batches_at_earliest() -> None:
    assert stream_options().start == AtEnd(LATEST)
    assert batch_options().start == AtEnd(EARLIEST)
    assert batch_options().end == AtEnd(LATEST)


def test_option_names_are_case_insensitive() -> None:
    options = stream_options(
        startingoffsets="earliest", maxoffsetspertrigger="7", includeheaders="TRUE"
    )
    assert options.start == AtEnd(EARLIEST)
    assert options.trigger_offsets_max == 7
    assert options.columns[-1] == "headers"


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ({"startingOffsets": '{"t":{"0":3,"1":-2}}'}, {("t", 0): 3, ("t", 1): EARLIEST}),
        ({"startingOffsets": '{"t":{"0":-1}}'}, {("t", 0): LATEST}),
    ],
)
def test_starting_offsets_are_parsed_by_partition(
    given: dict[str, str], position: dict[tuple[str, int], int]
) -> None:
    expected = {TopicPartition(*partition): offset for partition, offset in position.items()}
    assert stream_options(**given).start == AtOffsets(expected)


def test_starting_timestamp_takes_precedence_as_in_spark() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t":{"0":1000}}',
        "startingTimestamp": "2000",
    }
    assert stream_options(**given).start == AtTime(2000)
    del given["startingTimestamp"]
    assert stream_options(**given).start == AtTimes({TopicPartition("t", 0): 1000})


def test_durations_have_units() -> None:
    assert stream_options(maxTriggerDelay="15m").trigger_delay_ms_max == 900_000
    assert stream_options(maxTriggerDelay="2 min").trigger_delay_ms_max == 120_000


def test_columns_keep_their_given_order() -> None:
    assert stream_options(columns="offset, VALUE,headers").columns == ("offset", "value", "headers")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "first"}, 'must be JSON such as {"topic":{"0":23}}'),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-1 \\(latest\\) or -2 \\(earliest\\)"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "must be JSON"),
        ({"startingOffsets": '{"t":{"²":1}}'}, "must be JSON"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "at least 0"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "a number of at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "a number of at least 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not exceed"),
        ({"maxTriggerDelay": "soon"}, "a number and a unit"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"columns": "value,size"}, "allowed are key, value"),
        ({"columns": "value,value"}, "each column once"),
        ({"subscribePattern": "a"}, "exactly one of .* not subscribe and subscribePattern"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "progressGroup"),
        ({"kafka.isolaton.level": "read_committed"}, r"did you mean kafka\.isolation\.level\?"),
        ({"kafka.isolation.level": "read_comitted"}, "must be one of read_committed"),
        ({"retentionHold": "1h"}, "needs progressGroup"),
        ({"retentionHold": "soon", "progressGroup": "g"}, "a number and a unit"),
        ({"retentionHold": "1s", "progressGroup": "g"}, "at least 10 s"),
        ({"subscribe": " , "}, "must be a list of topics"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers must be set"),
    ],
)
def test_invalid_options_are_rejected_with_the_allowed_values(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        stream_options(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "no records would ever be read"),
        ({"endingOffsets": "earliest"}, "no records would ever be read"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "no records would be read"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "no records would be read"),
    ],
)
def test_batch_that_would_read_no_records_is_rejected(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        batch_options(**given)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("assign", '{"t":["0"]}', "must be JSON such as"),
        ("assign", "t", r'must be JSON such as {"topic":\[0,1\]}'),
        ("assign", '{"t":[-1]}', r'must be JSON such as {"topic":\[0,1\]}'),
        ("subscribePattern", "(", "subscribePattern is '\\('"),
    ],
)
def test_invalid_subscriptions_are_rejected(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        read_options({"kafka.bootstrap.servers": "h:1", name: text}, is_streaming=True)


def test_assigned_partitions_are_sorted() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": '{"b":[1],"a":[2,0]}'}
    assert read_options(given, is_streaming=True).subscription.partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


def test_prefix_of_client_settings_is_removed() -> None:
    given = {"kafka.isolation.level": "read_committed"}
    assert stream_options(**given).client["isolation.level"] == "read_committed"


def test_source_and_sink_ignore_client_settings_of_each_other() -> None:
    both = {"kafka.isolation.level": "read_committed", "kafka.linger.ms": "7"}
    assert stream_options(**both).client.keys() == {"bootstrap.servers", "isolation.level"}
    written = write_options({"kafka.bootstrap.servers": "here:9092"} | both).client
    assert written.keys() == {"bootstrap.servers", "linger.ms"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka.linger": "7"}, r"did you mean kafka\.linger\.ms\?"),
        ({"kafka.linger.ms": "soon"}, "must be an integer"),
        ({"kafka.acks": "1", "delivery": "exactly-once"}, "acks is 1: it must be all"),
    ],
)
def test_sink_rejects_invalid_producer_settings(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        write_options({"kafka.bootstrap.servers": "here:9092"} | given)


def test_sink_delivers_at_least_once_by_default() -> None:
    base = {"kafka.bootstrap.servers": "here:9092", "checkpointLocation": "/x"}
    assert write_options(base).delivery == "at-least-once"
    assert write_options(base | {"delivery": "exactly-once"}).delivery == "exactly-once"
    with pytest.raises(InvalidConfig, match="at-least-once or exactly-once"):
        write_options(base | {"delivery": "at-most-once"})
    with pytest.raises(InvalidConfig, match=r"kafka.transactional.id cannot be set"):
        write_options(base | {"kafka.transactional.id": "mine"})


def test_options_do_not_show_client_settings() -> None:
    given = {
        "subscribe": "t",
        "topic": "t",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="c4n4ry";',
    }
    read = read_options(
        {name: value for name, value in given.items() if name != "topic"}, is_streaming=False
    )
    assert read.client["sasl.mechanism"] == "SCRAM-SHA-512"
    assert "c4n4ry" in read.client["sasl.jaas.config"]
    assert "c4n4ry" not in repr(read)
    written = write_options({name: value for name, value in given.items() if name != "subscribe"})
    assert "c4n4ry" in written.client["sasl.jaas.config"]
    assert "c4n4ry" not in repr(written)
