"""kafka-console-consumer: prints the records of a topic to stdout."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lograft.cli.client_runner import run as run_client
from lograft.cli.interrupts import output_guard
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.node_runner import read_properties
from lograft.client.consumer import Consumer
from lograft.client.errors import ClientError
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.model.errors import InvalidInput


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-console-consumer", "Print the records of a topic.")
    parser.add_connection("--consumer.config")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--topic")
    source.add_argument("--include", "--whitelist", metavar="PATTERN")
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
    arguments = parser.parse_args(list(words))
    if arguments.offset is not None and arguments.partition is None:
        parser.error("The partition is required when offset is specified.")
    settings = settings_of(parser, arguments) | {
        "isolation.level": arguments.isolation_level,
        "auto.offset.reset": "earliest" if arguments.from_beginning else "latest",
        **({} if arguments.group is None else {"group.id": arguments.group}),
        **dict(text.partition("=")[::2] for text in arguments.consumer),
    }
    formatter = dict(text.partition("=")[::2] for text in arguments.formatter)
    if arguments.formatter_config is not None:
        formatter = read_properties(arguments.formatter_config) | formatter
    processed = [0]
    try:
        run_client(_print_records(settings, arguments, Formatter(formatter), processed))
    except (ClientError, InvalidInput) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        print(f"Processed a total of {processed[0]} messages", file=sys.stderr)
    return 0


class Formatter:
    """Formats records as Kafka's DefaultMessageFormatter does."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        def is_on(name: str, default: str = "false") -> bool:
            return properties.get(name, default).strip().lower() == "true"

        self._fields = [
            name
            for name in ("timestamp", "partition", "offset", "delivery", "headers", "key", "value")
            if is_on(f"print.{name}", "true" if name == "value" else "false")
        ]
        self._separator = _unescape(properties.get("key.separator", "\t"))
        self._end = _unescape(properties.get("line.separator", "\n"))
        self._headers_separator = _unescape(properties.get("headers.separator", ","))
        self._null = properties.get("null.literal", "null")

    def line(self, record: ConsumerRecord) -> bytes:
        parts: dict[str, Callable[[ConsumerRecord], bytes]] = {
            "timestamp": self._timestamp,
            "partition": lambda record: b"Partition:%d" % record.partition,
            "offset": lambda record: b"Offset:%d" % record.offset,
            "delivery": lambda _record: b"Delivery:NOT_PRESENT",
            "headers": self._headers,
            "key": lambda record: self._bytes(record.key),
            "value": lambda record: self._bytes(record.value),
        }
        separator = self._separator.encode()
        return separator.join(parts[name](record) for name in self._fields) + self._end.encode()

    def _timestamp(self, record: ConsumerRecord) -> bytes:
        if record.timestamp_ms < 0:
            return b"NO_TIMESTAMP"
        kind = b"LogAppendTime" if record.timestamp_type == 1 else b"CreateTime"
        return b"%s:%d" % (kind, record.timestamp_ms)

    def _headers(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self._headers_separator.encode().join(
            name.encode() + b":" + self._bytes(value) for name, value in record.headers
        )

    def _bytes(self, data: bytes | None) -> bytes:
        return self._null.encode() if data is None else data


def _unescape(text: str) -> str:
    """Replaces the escape sequences \\t and \\n."""
    return text.replace("\\t", "\t").replace("\\n", "\n")


async def _print_records(
    settings: Mapping[str, Any],
    arguments: argparse.Namespace,
    formatter: Formatter,
    processed: list[int],
) -> None:
    async with Consumer(settings) as consumer:
        if arguments.group is None or arguments.partition is not None:
            partitions = await _find_partitions(consumer, arguments)
            consumer.assign(partitions)
            _seek_to_start(consumer, partitions, arguments)
        elif arguments.topic is not None:
            consumer.subscribe([arguments.topic])
        else:
            consumer.subscribe_pattern(arguments.include)
        limit = arguments.max_messages
        while limit is None or processed[0] < limit:
            polled = await consumer.poll(
                timeout_ms=arguments.timeout_ms,
                max_records=None if limit is None else limit - processed[0],
            )
            if not polled:
                return
            _print_polled(consumer, polled, formatter, processed)


def _print_polled(
    consumer: Consumer,
    polled: Mapping[TopicPartition, Sequence[ConsumerRecord]],
    formatter: Formatter,
    processed: list[int],
) -> None:
    """If it fails, the next consumer of the group reads the records that were not printed."""
    remaining = {partition: records[0].offset for partition, records in polled.items()}
    try:
        for partition, records in polled.items():
            for record in records:
                with output_guard:
                    _write(formatter.line(record))
                processed[0] += 1
                remaining[partition] = record.offset + 1
    except BaseException:
        for partition, offset in remaining.items():
            consumer.seek(partition, offset)
        raise


def _write(line: bytes) -> None:
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(line.decode("utf-8", errors="replace"))
    else:
        binary.write(line)
        binary.flush()


async def _find_partitions(
    consumer: Consumer, arguments: argparse.Namespace
) -> list[TopicPartition]:
    topics = await consumer.topics()
    if arguments.topic is not None:
        names = [arguments.topic]
        if arguments.topic not in topics:
            raise InvalidInput(f"Topic '{arguments.topic}' does not exist")
    else:
        pattern = re.compile(arguments.include)
        names = [name for name in topics if pattern.fullmatch(name)]
    return [
        TopicPartition(name, partition.partition)
        for name in names
        for partition in topics[name].partitions
        if arguments.partition is None or partition.partition == arguments.partition
    ]


def _seek_to_start(
    consumer: Consumer, partitions: list[TopicPartition], arguments: argparse.Namespace
) -> None:
    """Seeks to the requested offset; without one, a group starts at its committed offsets."""
    if arguments.offset is not None and arguments.offset.isdigit():
        for partition in partitions:
            consumer.seek(partition, int(arguments.offset))
    elif arguments.from_beginning or arguments.offset == "earliest":
        consumer.seek_to_beginning(*partitions)
    elif arguments.group is None:
        consumer.seek_to_end(*partitions)
