"""confluent-kafka: produce, assign and consume, seek; against Lograft and against Apache Kafka."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition

from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    consumer_of,
    create_topic,
    produce,
    read,
    read_to_end,
    values_of,
)
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
VALUES = [f"value {number} ".encode() * 20 for number in range(500)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_equal(server: Server, new_topic: NewName, codec: str) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    delivered = produce(server.bootstrap, topic, VALUES, settings={"compression.type": codec})
    assert [each.offset for each in delivered] == list(range(len(VALUES)))
    assert values_of(read(server.bootstrap, topic)) == VALUES


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": "all"},
        {"acks": "1"},
        {"enable.idempotence": True},
        {"enable.idempotence": True, "compression.type": "zstd", "batch.num.messages": 7},
    ],
    ids=lambda settings: "-".join(f"{value}" for value in settings.values()),
)
def test_acknowledged_messages_are_there_once_and_in_order(
    server: Server, new_topic: NewName, settings: dict[str, object]
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    delivered = produce(server.bootstrap, topic, VALUES, settings=settings)
    assert all(each.error is None for each in delivered)
    assert values_of(read(server.bootstrap, topic)) == VALUES


def test_acks_zero_arrives_too(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, VALUES, settings={"acks": "0"})
    with consumer_of(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen: list[bytes | None] = []
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while len(seen) < len(VALUES) and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message.value())
    assert seen == VALUES


def test_keys_headers_and_nulls_survive(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    headers: list[tuple[str, bytes | None]] = [
        ("a", b"1"),
        ("a", b""),
        ("ä", None),
        ("z", b"\x00\xff"),
    ]
    produce(
        server.bootstrap,
        topic,
        [b"value", None, b"", b"last"],
        keys=[b"key", b"tombstone", None, b""],
        headers=headers,
    )
    messages = read(server.bootstrap, topic)
    assert [(m.key(), m.value()) for m in messages] == [
        (b"key", b"value"),
        (b"tombstone", None),
        (None, b""),
        (b"", b"last"),
    ]
    assert [m.headers() for m in messages] == [headers] * 4


def test_seek_by_offset(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, VALUES, settings={"batch.num.messages": 50})
    with consumer_of(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 321)])
        assert values_of(read_to_end(consumer)) == VALUES[321:]
        consumer.seek(TopicPartition(topic, 0, 77))
        again = read_to_end(consumer)
    assert [message.offset() for message in again] == list(range(77, len(VALUES)))


def test_seek_by_time(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    first_ms = 1_700_000_000_000
    stamps = [first_ms + 10 * number for number in range(len(VALUES))]
    produce(
        server.bootstrap, topic, VALUES, timestamps_ms=stamps, settings={"batch.num.messages": 20}
    )
    asked = {first_ms - 5: 0, first_ms + 1234: 124, stamps[-1]: len(VALUES) - 1, stamps[-1] + 1: -1}
    with consumer_of(server.bootstrap) as consumer:
        for timestamp_ms, expected in asked.items():
            (answer,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], 10)
            assert answer.offset == expected, timestamp_ms
    messages = read(server.bootstrap, topic, offset=499)
    assert messages[0].timestamp() == (1, stamps[499])


def test_log_append_time_is_the_brokers(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, configs={"message.timestamp.type": "LogAppendTime"})
    produce(server.bootstrap, topic, [b"old"], timestamps_ms=[1_000])
    kind, stamp_ms = read(server.bootstrap, topic)[0].timestamp()
    assert kind == 2
    assert stamp_ms > 1_600_000_000_000


def test_large_messages(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, configs={"max.message.bytes": "6000000"})
    values = [bytes([number]) * 4_000_000 for number in range(4)]
    settings = {"message.max.bytes": 5_000_000}
    delivered = produce(server.bootstrap, topic, values, settings=settings)
    assert [each.error for each in delivered] == [None] * 4
    # The first batch is returned completely, even if the consumer requested fewer bytes.
    got = read(server.bootstrap, topic, **{"fetch.message.max.bytes": 100_000})
    assert values_of(got) == values


def test_a_message_above_the_topics_limit_is_refused(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, configs={"max.message.bytes": "10000"})
    (refused,) = produce(server.bootstrap, topic, [b"x" * 20_000])
    assert refused.error is not None
    assert refused.error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    (taken,) = produce(server.bootstrap, topic, [b"x" * 2_000])
    assert taken == (0, None)


def test_reading_at_the_end_waits_for_the_next_message(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"before"])
    with consumer_of(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert read_to_end(consumer) == []
        produce(server.bootstrap, topic, [b"after"])
        message = consumer.poll(ANSWER_SECONDS_MAX)
        assert message is not None
        assert (message.offset(), message.value()) == (1, b"after")


def test_an_offset_outside_the_log_is_an_error(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, [b"one"])
    with consumer_of(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(ANSWER_SECONDS_MAX)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


def test_watermarks(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    produce(server.bootstrap, topic, VALUES[:10])
    with consumer_of(server.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)


def test_many_partitions(server: Server, new_topic: NewName) -> None:
    topic, partitions = new_topic(), 50
    create_topic(server.bootstrap, topic, partitions=partitions)
    values = [f"{number}".encode() for number in range(partitions * 20)]
    produce(server.bootstrap, topic, values, partition=-1, keys=values)
    with consumer_of(server.bootstrap) as consumer:
        consumer.assign(
            [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        )
        messages = read_to_end(consumer, partitions=partitions)
    assert sorted(values_of(messages), key=lambda value: int(value or b"0")) == values
    assert len({message.partition() for message in messages}) > partitions // 2


def test_producing_creates_the_topic(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    produce(server.bootstrap, topic, [b"made on demand"], partition=1)
    with consumer_of(server.bootstrap) as consumer:
        described = consumer.list_topics(topic, timeout=10).topics[topic]
    assert sorted(described.partitions) == [0, 1]
    assert values_of(read(server.bootstrap, topic, partition=1)) == [b"made on demand"]


def test_an_unknown_partition_is_an_error(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic)
    (refused,) = produce(
        server.bootstrap, topic, [b"x"], partition=7, settings={"message.timeout.ms": 3000}
    )
    assert refused.error is not None
    assert refused.error.code() == KafkaError._UNKNOWN_PARTITION
