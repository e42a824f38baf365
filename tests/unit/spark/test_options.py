"""Options of the source and the sink: what is taken, what is refused, and in which words."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.offsets import EARLIEST, LATEST, AtEnd, AtOffsets, AtTime, AtTimes
from lograft.spark.options import ReadOptions, read_options, write_options

BASE = {"kafka.bootstrap.servers": "here:9092", "subscribe": "t"}


def reading(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=True)


def reading_a_batch(**more: str) -> ReadOptions:
    return read_options(BASE | more, is_streaming=False)


def test_a_stream_begins_with_what_comes_and_a_batch_takes_all() -> None:
    assert reading().start == AtEnd(LATEST)
    assert reading_a_batch().start == AtEnd(EARLIEST)
    assert reading_a_batch().end == AtEnd(LATEST)


def test_names_come_in_lower_case_from_spark() -> None:
    options = reading(startingoffsets="earliest", maxoffsetspertrigger="7", includeheaders="TRUE")
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
def test_offsets_by_partition(given: dict[str, str], position: dict[tuple[str, int], int]) -> None:
    wanted = {TopicPartition(*where): offset for where, offset in position.items()}
    assert reading(**given).start == AtOffsets(wanted)


def test_of_several_starts_the_time_wins_as_in_spark() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t":{"0":1000}}',
        "startingTimestamp": "2000",
    }
    assert reading(**given).start == AtTime(2000)
    del given["startingTimestamp"]
    assert reading(**given).start == AtTimes({TopicPartition("t", 0): 1000})


def test_durations_have_units() -> None:
    assert reading(maxTriggerDelay="15m").trigger_delay_ms_max == 900_000
    assert reading(maxTriggerDelay="2 min").trigger_delay_ms_max == 120_000


def test_columns_are_chosen_in_their_order() -> None:
    assert reading(columns="offset, VALUE,headers").columns == ("offset", "value", "headers")


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
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not be above"),
        ({"maxTriggerDelay": "soon"}, "a number and a unit"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"columns": "value,size"}, "some of key, value"),
        ({"columns": "value,value"}, "each column once"),
        ({"subscribePattern": "a"}, "one only, not subscribe and subscribePattern"),
        ({"kafka.auto.offset.reset": "earliest"}, "say where to begin with startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "progressGroup"),
        ({"kafka.isolaton.level": "read_committed"}, r"did you mean kafka\.isolation\.level\?"),
        ({"kafka.isolation.level": "read_comitted"}, "must be one of read_committed"),
        ({"retentionHold": "1h"}, "needs a progressGroup"),
        ({"retentionHold": "soon", "progressGroup": "g"}, "a number and a unit"),
        ({"retentionHold": "1s", "progressGroup": "g"}, "at least 10 s"),
        ({"subscribe": " , "}, "must be topics"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers must be set"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        reading(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "nothing would ever be read"),
        ({"endingOffsets": "earliest"}, "nothing would ever be read"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "nothing would be read"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "nothing would be read"),
    ],
)
def test_a_batch_that_could_not_read_anything_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        reading_a_batch(**given)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("assign", '{"t":["0"]}', "must be JSON such as"),
        ("assign", "t", r'must be JSON such as {"topic":\[0,1\]}'),
        ("assign", '{"t":[-1]}', r'must be JSON such as {"topic":\[0,1\]}'),
        ("subscribePattern", "(", "subscribePattern is '\\('"),
    ],
)
def test_other_ways_to_subscribe(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        read_options({"kafka.bootstrap.servers": "h:1", name: text}, is_streaming=True)


def test_partitions_can_be_assigned() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": '{"b":[1],"a":[2,0]}'}
    assert read_options(given, is_streaming=True).subscription.partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


def test_client_settings_lose_their_prefix() -> None:
    given = {"kafka.isolation.level": "read_committed"}
    assert reading(**given).client["isolation.level"] == "read_committed"


def test_one_set_of_client_settings_serves_source_and_sink() -> None:
    both = {"kafka.isolation.level": "read_committed", "kafka.linger.ms": "7"}
    assert reading(**both).client.keys() == {"bootstrap.servers", "isolation.level"}
    written = write_options({"kafka.bootstrap.servers": "here:9092"} | both).client
    assert written.keys() == {"bootstrap.servers", "linger.ms"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka.linger": "7"}, r"did you mean kafka\.linger\.ms\?"),
        ({"kafka.linger.ms": "soon"}, "must be a whole number"),
        ({"kafka.acks": "1", "delivery": "exactly-once"}, "acks is 1: it must be all"),
    ],
)
def test_what_a_task_of_the_sink_could_not_use_is_refused(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        write_options({"kafka.bootstrap.servers": "here:9092"} | given)


def test_a_sink_delivers_at_least_once_unless_told_otherwise() -> None:
    base = {"kafka.bootstrap.servers": "here:9092", "checkpointLocation": "/x"}
    assert write_options(base).delivery == "at-least-once"
    assert write_options(base | {"delivery": "exactly-once"}).delivery == "exactly-once"
    with pytest.raises(InvalidConfig, match="at-least-once or exactly-once"):
        write_options(base | {"delivery": "at-most-once"})
    with pytest.raises(InvalidConfig, match=r"kafka.transactional.id cannot be set"):
        write_options(base | {"kafka.transactional.id": "mine"})
