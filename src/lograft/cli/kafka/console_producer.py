"""kafka-console-producer: sends lines of stdin to a topic."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lograft.cli.client_runner import run as run_client
from lograft.cli.input_lines import input_lines
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.line_producer import Line, produce
from lograft.cli.node_runner import read_properties
from lograft.cli.stall_watch import watch_producer
from lograft.cli.values import raw_bytes
from lograft.client.errors import ClientError
from lograft.client.producer import Producer
from lograft.model.errors import InvalidInput


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-console-producer", "Send lines of stdin to a topic.")
    parser.add_connection("--producer.config")
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--property", "--reader-property", action="append", default=[], dest="reader"
    )
    parser.add_argument("--reader-config", metavar="FILE")
    parser.add_argument(
        "--producer-property", "--command-property", action="append", default=[], dest="producer"
    )
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--request-required-acks")
    for flag in ("batch-size", "max-block-ms", "request-timeout-ms", "message-send-max-retries"):
        parser.add_argument(f"--{flag}")
    arguments = parser.parse_args(list(words))
    reader = _parse_properties(arguments.reader)
    if arguments.reader_config is not None:
        reader = read_properties(arguments.reader_config) | reader
    settings = settings_of(parser, arguments) | _settings_of(arguments)
    try:
        run_client(_send_lines(settings, arguments.topic, reader))
    except (ClientError, InvalidInput) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    return 0


def _settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "acks": arguments.request_required_acks,
        "compression.type": arguments.compression_codec,
        "batch.size": arguments.batch_size,
        "max.block.ms": arguments.max_block_ms,
        "request.timeout.ms": arguments.request_timeout_ms,
        "retries": arguments.message_send_max_retries,
        # Each line is acknowledged before the next is read.
        "linger.ms": "0" if arguments.sync else None,
    }
    return {name: value for name, value in flags.items() if value is not None} | _parse_properties(
        arguments.producer
    )


def _parse_properties(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.partition("=")[::2] for text in texts)


async def _send_lines(settings: Mapping[str, Any], topic: str, reader: Mapping[str, str]) -> None:
    prompt = _show_prompt if sys.stdin.isatty() else None
    async with Producer(settings) as producer:
        await produce(
            producer,
            topic,
            input_lines(sys.stdin, before_wait=prompt),
            lambda text, number: _parse_line(text, number, reader),
            watch=watch_producer(producer, topic, _warn),
        )


def _warn(text: str) -> None:
    print(f"WARN {text}", file=sys.stderr, flush=True)


def _show_prompt() -> None:
    print(">", end="", flush=True)


def _parse_line(text: str, number: int, reader: Mapping[str, str]) -> Line:
    null = reader.get("null.marker")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key: bytes | None = None
    if reader.get("parse.headers") == "true":
        part, text = _split(text, reader.get("headers.delimiter", "\t"), number, "headers", reader)
        separator = reader.get("headers.separator", ",")
        key_separator = reader.get("headers.key.separator", ":")
        pairs = (header.partition(key_separator) for header in part.split(separator) if header)
        headers = tuple(
            (name, None if value == null else raw_bytes(value)) for name, _, value in pairs
        )
    if reader.get("parse.key") == "true":
        part, text = _split(text, reader.get("key.separator", "\t"), number, "key", reader)
        key = None if part == null else raw_bytes(part)
    return Line(key, None if text == null else raw_bytes(text), headers, None, None)


def _split(
    text: str, separator: str, number: int, part: str, reader: Mapping[str, str]
) -> tuple[str, str]:
    front, found, rest = text.partition(separator)
    if not found:
        if reader.get("ignore.error") == "true":
            return "", text
        raise InvalidInput(f"No {part} separator found on line number {number}: '{text}'")
    return front, rest
