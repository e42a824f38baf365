"""kafka-console-producer: lines of stdin into a topic."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lograft.cli.client_runner import run as run_client
from lograft.cli.input_lines import input_lines
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.line_producer import Line, produce
from lograft.cli.node_runner import read_properties
from lograft.cli.stall_watch import StallWatch, explain_stall
from lograft.cli.values import raw_bytes
from lograft.client.errors import ClientError
from lograft.client.producer import Producer
from lograft.model.errors import InvalidInput


def run(arguments: Sequence[str]) -> int:
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
    given = parser.parse_args(list(arguments))
    reader = _properties(given.reader)
    if given.reader_config is not None:
        reader = read_properties(given.reader_config) | reader
    settings = settings_of(parser, given) | _settings(given)
    try:
        run_client(_work(settings, given.topic, reader))
    except (ClientError, InvalidInput) as error:
        print(f"ERROR {error}", file=sys.stderr)
        return 1
    return 0


def _settings(given: argparse.Namespace) -> dict[str, Any]:
    flags = {
        "acks": given.request_required_acks,
        "compression.type": given.compression_codec,
        "batch.size": given.batch_size,
        "max.block.ms": given.max_block_ms,
        "request.timeout.ms": given.request_timeout_ms,
        "retries": given.message_send_max_retries,
        # One line after the other is acknowledged before the next is read.
        "linger.ms": "0" if given.sync else None,
    }
    return {name: one for name, one in flags.items() if one is not None} | _properties(
        given.producer
    )


def _properties(texts: Sequence[str]) -> dict[str, str]:
    return dict(one.partition("=")[::2] for one in texts)


async def _work(settings: Mapping[str, Any], topic: str, reader: Mapping[str, str]) -> None:
    prompt = _show_prompt if sys.stdin.isatty() else None
    async with Producer(settings) as producer:
        explain = partial(explain_stall, producer, topic)
        await produce(
            producer,
            topic,
            input_lines(sys.stdin, before_wait=prompt),
            lambda text, number: _line(text, number, reader),
            watch=StallWatch(producer, explain, _warn),
        )


def _warn(text: str) -> None:
    print(f"WARN {text}", file=sys.stderr, flush=True)


def _show_prompt() -> None:
    print(">", end="", flush=True)


def _line(text: str, number: int, reader: Mapping[str, str]) -> Line:
    null = reader.get("null.marker")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key: bytes | None = None
    if reader.get("parse.headers") == "true":
        told, text = _cut(text, reader.get("headers.delimiter", "\t"), number, "headers", reader)
        separator = reader.get("headers.separator", ",")
        between = reader.get("headers.key.separator", ":")
        pairs = (one.partition(between) for one in told.split(separator) if one)
        headers = tuple((name, None if one == null else raw_bytes(one)) for name, _, one in pairs)
    if reader.get("parse.key") == "true":
        told, text = _cut(text, reader.get("key.separator", "\t"), number, "key", reader)
        key = None if told == null else raw_bytes(told)
    return Line(key, None if text == null else raw_bytes(text), headers, None, None)


def _cut(
    text: str, separator: str, number: int, what: str, reader: Mapping[str, str]
) -> tuple[str, str]:
    front, found, rest = text.partition(separator)
    if not found:
        if reader.get("ignore.error") == "true":
            return "", text
        raise InvalidInput(f"No {what} separator found on line number {number}: '{text}'")
    return front, rest
