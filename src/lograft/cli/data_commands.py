"""The commands `lograft produce`, `lograft consume` and `lograft get`."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import (
    BootstrapServer,
    CommandConfig,
    Json,
    numbers_of,
    pairs_of,
)

if TYPE_CHECKING:
    from lograft.cli.record_reader import Filter
    from lograft.client.types import Acknowledged

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
Header = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A record header; may be repeated.")
]
HeaderFilter = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Only records with this header; may be repeated."),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A client setting; may be repeated."),
]


def produce(
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]…", help="Values to send; by default, the lines of stdin."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Text between key and value in each line.")
    ] = None,
    header: Header = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send to this partition.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="The records' timestamp: 2026-05-01T12:00:00Z."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="text|json|hex|base64|record",
            help="Format of the values; record: JSON objects as printed by consume --json.",
        ),
    ] = "text",
    null: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Values equal to this text become null (tombstones)."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read lines from this file instead of stdin.")
    ] = None,
    acks: Annotated[
        str, typer.Option(metavar="all|1|0", help="Acknowledgements to wait for.")
    ] = "all",
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression type.")
    ] = "none",
    setting: Setting = None,
    json: Json = False,
) -> None:
    """Send a record for each value, or for each line of stdin."""
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.group_resets import parse_datetime_ms
    from lograft.cli.line_producer import PartitionCheck, ProduceOptions, parse_line
    from lograft.cli.line_producer import produce as send
    from lograft.cli.output import count, show_json, warn
    from lograft.cli.progress import progress_bar
    from lograft.cli.stall_watch import watch_producer
    from lograft.client.admin import Admin
    from lograft.client.producer import Producer

    if format_ not in ("text", "json", "hex", "base64", "record"):
        raise typer.BadParameter("--format must be text, json, hex, base64 or record")
    options = ProduceOptions(
        form=format_,
        key=key,
        key_separator=key_separator,
        headers=tuple((name, value.encode()) for name, value in pairs_of(header).items()),
        partition=partition,
        timestamp_ms=None if timestamp is None else parse_datetime_ms(timestamp),
        null=null,
    )
    servers = client_settings(bootstrap_server, command_config)
    settings = {
        "client.id": "lograft-produce",
        "acks": acks,
        "compression.type": compression,
        **servers,
        **pairs_of(setting),
    }
    acknowledgements: list[Acknowledged] = []

    async def work() -> int:
        # An Admin reports unreachable servers immediately; a producer waits max.block.ms.
        async with Admin({"client.id": "lograft-produce", **servers}) as admin:
            await admin.connect()
            async with Producer(settings) as producer:
                with progress_bar("sending", 0) as progress:
                    return await send(
                        producer,
                        topic,
                        _read_texts(values, file),
                        lambda text, number: parse_line(text, number, options),
                        on_sent=lambda sent: progress(sent, f"{sent:,} records"),
                        on_acknowledged=acknowledgements.append if json else _ignore,
                        check=PartitionCheck(admin, topic).check,
                        watch=watch_producer(producer, topic, warn),
                    )

    sent = run(work())
    if json:
        show_json(acknowledgements)
    else:
        print(f"{count(sent, 'record')} sent to {topic}.")


def _ignore(_acknowledged: "Acknowledged") -> None:
    pass


async def _read_texts(values: list[str] | None, path: str | None) -> AsyncIterator[str]:
    import sys

    from lograft.cli.input_lines import input_lines, yield_in_turns

    if values:
        async for text in yield_in_turns(values):
            yield text
    elif path is None:
        async for text in input_lines(sys.stdin):
            yield text
    else:
        async for text in yield_in_turns(_lines_of_file(path)):
            yield text


def _lines_of_file(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            yield line.removesuffix("\n")


def consume(
    topic: Topic,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    partition: Annotated[
        str, typer.Option("--partition", "-p", metavar="P,…", help="Only these partitions.")
    ] = "",
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Start at beginning, end, an offset, -10 (the last ten), 1h (ago) or a time.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
    max_: Annotated[
        int | None,
        typer.Option("--max", "-n", min=1, metavar="N", help="Maximum number of records."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Start at this group's committed offsets and commit; with --follow, join it.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Only records with this key.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only values that match this regular expression."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="Only JSON values with this field; may be repeated."
        ),
    ] = None,
    header: HeaderFilter = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="auto|json|text|hex|base64",
            help="Format of keys and values; auto: text, or hex for binary data.",
        ),
    ] = "auto",
    value_only: Annotated[bool, typer.Option("--value-only", help="Print only values.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Read with isolation.level=read_committed.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.parquet", help="Write to this file."),
    ] = None,
    setting: Setting = None,
    json: Json = False,
) -> None:
    """Print the records of a topic.

    By default, reads each partition from the beginning to its current end.
    """
    from lograft.cli import record_reader
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.values import FORMATS

    if format_ not in FORMATS:
        raise typer.BadParameter(f"--format must be one of {', '.join(FORMATS)}")
    is_member = group is not None and follow
    if is_member and (partition or from_ not in (None, "beginning", "end")):
        raise typer.BadParameter(
            "with --group and --follow the group determines partitions and offsets: omit"
            " --partition and --from"
        )
    settings = {
        "client.id": "lograft-consume",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "allow.auto.create.topics": "false",
        **client_settings(bootstrap_server, command_config),
        **({} if group is None else _group_settings(group, from_, is_member=is_member)),
        **pairs_of(setting),
    }
    options = record_reader.ConsumeOptions(
        topic=topic,
        partitions=tuple(numbers_of(partition)),
        start=from_,
        follow=follow,
        count_max=max_,
        form=format_,
        with_metadata=not value_only,
        as_json=json,
        output=output,
        filter=_build_filter(key, grep, where, header),
        is_member=is_member,
    )
    if output is not None and follow:
        raise typer.BadParameter(
            "--output cannot be combined with --follow: the file would not end"
        )
    if output is not None and options.filter != record_reader.Filter():
        raise typer.BadParameter(
            "--output cannot be combined with --key, --grep, --where or --header: it copies columns"
            " without decoding single records; filter the file instead"
        )
    run(record_reader.run(settings, options))


def get(
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    key_format: Annotated[
        str, typer.Option(metavar="text|hex|base64", help="Format of the key.")
    ] = "text",
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="The key's partition; by default, from the key's hash."
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="auto|json|text|hex|base64", help="Format of the value."),
    ] = "auto",
    json: Json = False,
) -> None:
    """Print the newest value of a key. The exit code is 1 if the key does not exist."""
    from lograft.cli import record_reader
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.values import encode_text, format_bytes

    settings = {
        "client.id": "lograft-get",
        "allow.auto.create.topics": "false",
        **client_settings(bootstrap_server, command_config),
    }
    encoded_key = encode_text(key, key_format)
    record = run(record_reader.newest_of(settings, topic, encoded_key, partition))
    if record is None or record.value is None:
        reason = "has no record" if record is None else "was deleted"
        typer.echo(f"lograft: key {key} {reason} in topic {topic}", err=True)
        raise typer.Exit(1)
    print(record_reader.json_of(record) if json else format_bytes(record.value, format_))


def _group_settings(group: str, start: str | None, *, is_member: bool) -> dict[str, str]:
    return {
        "group.id": group,
        "enable.auto.commit": "true" if is_member else "false",
        "auto.offset.reset": "latest" if start == "end" else "earliest",
    }


def _build_filter(
    key: str | None, grep: str | None, where: list[str] | None, header: list[str] | None
) -> "Filter":
    import re

    from lograft.cli.record_reader import Filter, parse_where

    try:
        pattern = None if grep is None else re.compile(grep)
    except re.error as error:
        raise typer.BadParameter(f"--grep {grep} is not a regular expression: {error}") from None
    return Filter(
        key=key,
        grep=pattern,
        where=parse_where(where or ()),
        headers=tuple(pairs_of(header).items()),
    )
