"""kafka-console-consumer: the records of a topic, to stdout."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lograft.cli.client_runner import run as run_client
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.node_runner import read_properties
from lograft.client.consumer import Consumer
from lograft.client.errors import ClientError
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.model.errors import InvalidInput


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-console-consumer", "Show the records of a topic.")
    parser.add_connection("--consumer.config")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic")
    what.add_argument("--include", "--whitelist", metavar="PATTERN")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset", default=None, metavar="N|earliest|latest")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--max-messages", type=int)
    parser.add_argument("--timeout-ms", type=int)
    parser.add_argument("--group")
    parser.add_argument(
        "--property", "--formatter-property", action="append", default=[], dest="formatter"
    )
    parser.add_argument("--formatter-config", metavar="FILE")
    parser.add_argument(
        "--consumer-property", "--command-property", action="append", default=[], dest="consumer"
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_committed", "read_uncommitted"),
        default="read_uncommitted",
    )
    parser.add_argument("--skip-message-on-error", action="store_true")
    parser.add_argument("--enable-systest-events", action="store_true")
    given = parser.parse_args(list(arguments))
    if given.offset is not None and given.partition is None:
        parser.error("The partition is required when offset is specified.")
    settings = settings_of(parser, given) | {
        "isolation.level": given.isolation_level,
        "auto.offset.reset": "earliest" if given.from_beginning else "latest",
        **({} if given.group is None else {"group.id": given.group}),
        **dict(one.partition("=")[::2] for one in given.consumer),
    }
    formatter = dict(one.partition("=")[::2] for one in given.formatter)
    if given.formatter_config is not None:
        formatter = read_properties(given.formatter_config) | formatter
    shown = [0]
    try:
        run_client(_work(settings, given, Formatter(formatter), shown))
    except (ClientError, InvalidInput) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        print(f"Processed a total of {shown[0]} messages", file=sys.stderr)
    return 0


class Formatter:
    """As Kafka's DefaultMessageFormatter: what is shown of a record, and between what."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def is_on(name: str, default: str = "false") -> bool:
            return properties.get(name, default).strip().lower() == "true"

        self._shows = [
            name
            for name in ("timestamp", "partition", "offset", "delivery", "headers", "key", "value")
            if is_on(f"print.{name}", "true" if name == "value" else "false")
        ]
        self._separator = _plain(properties.get("key.separator", "\t"))
        self._end = _plain(properties.get("line.separator", "\n"))
        self._between_headers = _plain(properties.get("headers.separator", ","))
        self._null = properties.get("null.literal", "null")

    def line(self, record: ConsumerRecord) -> bytes:
        parts: dict[str, Callable[[ConsumerRecord], bytes]] = {
            "timestamp": self._timestamp,
            "partition": lambda one: b"Partition:%d" % one.partition,
            "offset": lambda one: b"Offset:%d" % one.offset,
            "delivery": lambda _one: b"Delivery:NOT_PRESENT",
            "headers": self._headers,
            "key": lambda one: self._bytes(one.key),
            "value": lambda one: self._bytes(one.value),
        }
        separator = self._separator.encode()
        return separator.join(parts[name](record) for name in self._shows) + self._end.encode()

    def _timestamp(self, record: ConsumerRecord) -> bytes:
        if record.timestamp_ms < 0:
            return b"NO_TIMESTAMP"
        kind = b"LogAppendTime" if record.timestamp_type == 1 else b"CreateTime"
        return b"%s:%d" % (kind, record.timestamp_ms)

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._between_headers.encode().join(
            name.encode() + b":" + self._bytes(one) for name, one in record.headers
        )

    def _bytes(self, data: bytes | None) -> bytes:
        return self._null.encode() if data is None else data


def _plain(text: str) -> str:
    """\\t and \\n as people type them in a shell."""
    return text.replace("\\t", "\t").replace("\\n", "\n")


async def _work(
    settings: Mapping[str, Any], given: argparse.Namespace, formatter: Formatter, shown: list[int]
) -> None:
    async with Consumer(settings) as consumer:
        if given.group is None or given.partition is not None:
            places = await _places(consumer, given)
            consumer.assign(places)
            _begin(consumer, places, given)
        elif given.topic is not None:
            consumer.subscribe([given.topic])
        else:
            consumer.subscribe_pattern(given.include)
        limit = given.max_messages
        while limit is None or shown[0] < limit:
            polled = await consumer.poll(
                timeout_ms=given.timeout_ms,
                max_records=None if limit is None else limit - shown[0],
            )
            if not polled:
                return
            for records in polled.values():
                for record in records:
                    _write(formatter.line(record))
                    shown[0] += 1


def _write(line: bytes) -> None:
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(line.decode("utf-8", errors="replace"))
    else:
        binary.write(line)
        binary.flush()


async def _places(consumer: Consumer, given: argparse.Namespace) -> list[TopicPartition]:
    topics = await consumer.topics()
    if given.topic is not None:
        names = [given.topic]
        if given.topic not in topics:
            raise InvalidInput(f"Topic '{given.topic}' does not exist")
    else:
        pattern = re.compile(given.include)
        names = [name for name in topics if pattern.fullmatch(name)]
    return [
        TopicPartition(name, one.partition)
        for name in names
        for one in topics[name].partitions
        if given.partition is None or one.partition == given.partition
    ]


def _begin(consumer: Consumer, places: list[TopicPartition], given: argparse.Namespace) -> None:
    """A group's offsets are where it begins, unless an offset is named."""
    if given.offset is not None and given.offset.isdigit():
        for place in places:
            consumer.seek(place, int(given.offset))
    elif given.from_beginning or given.offset == "earliest":
        consumer.seek_to_beginning(*places)
    elif given.group is None:
        consumer.seek_to_end(*places)
