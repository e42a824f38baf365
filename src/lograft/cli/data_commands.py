"""The commands for records: produce, consume, get."""

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
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of the client; may be repeated."),
]


def produce(
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[VALUE]…", help="What to send; lines of stdin if left out."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all of them.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Each line is a key, this, and a value.")
    ] = None,
    header: Header = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="All into this partition.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Their time, as in 2026-05-01T12:00:00Z.")
    ] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="text|json|hex|base64|record",
            help="What a value is; record: a JSON object as consume --json prints it.",
        ),
    ] = "text",
    null: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A value that is this is a tombstone.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lines of this file instead of stdin.")
    ] = None,
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="Who must have it.")] = "all",
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="How batches are packed.")
    ] = "none",
    setting: Setting = None,
    json: Json = False,
) -> None:
    """Send records, one for each value or line."""
    from functools import partial

    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.group_resets import parse_datetime_ms
    from lograft.cli.line_producer import Places, ProduceOptions, parse_line
    from lograft.cli.line_producer import produce as send
    from lograft.cli.output import count, show_json, warn
    from lograft.cli.progress import progress_bar
    from lograft.cli.stall_watch import StallWatch, explain_stall
    from lograft.client.admin import Admin
    from lograft.client.producer import Producer

    if format_ not in ("text", "json", "hex", "base64", "record"):
        raise typer.BadParameter("--format is text, json, hex, base64 or record")
    options = ProduceOptions(
        form=format_,
        key=key,
        key_separator=key_separator,
        headers=tuple((name, one.encode()) for name, one in pairs_of(header).items()),
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
    told: list[Acknowledged] = []

    async def work() -> int:
        # A producer would wait max.block.ms for servers that are not there.
        async with Admin({"client.id": "lograft-produce", **servers}) as admin:
            await admin.connect()
            async with Producer(settings) as producer:
                explain = partial(explain_stall, producer, topic)
                with progress_bar("sending", 0) as progress:
                    return await send(
                        producer,
                        topic,
                        _texts(values, file),
                        lambda text, number: parse_line(text, number, options),
                        on_sent=lambda sent: progress(sent, f"{sent:,} records"),
                        acknowledged=told.append if json else _ignore,
                        check=Places(admin, topic).check,
                        watch=StallWatch(producer, explain, warn),
                    )

    sent = run(work())
    if json:
        show_json(told)
    else:
        print(f"{count(sent, 'record')} sent to {topic}.")


def _ignore(_acknowledged: "Acknowledged") -> None:
    pass


async def _texts(values: list[str] | None, path: str | None) -> AsyncIterator[str]:
    import sys

    from lograft.cli.input_lines import in_turns, input_lines

    if values:
        async for text in in_turns(values):
            yield text
    elif path is None:
        async for text in input_lines(sys.stdin):
            yield text
    else:
        async for text in in_turns(_lines_of_file(path)):
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
            metavar="PLACE",
            help="beginning, end, an offset, -10 (the last ten), 1h (ago) or a time.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes; Ctrl-C ends it.")
    ] = False,
    max_: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="At most so many.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Go on where this group is, and commit; with --follow as a member of it.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only with this key.")] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only values that this fits.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only JSON values with this; may be repeated."),
    ] = None,
    header: Header = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="auto|json|text|hex|base64",
            help="How keys and values are shown; auto: by what they are.",
        ),
    ] = "auto",
    value_only: Annotated[
        bool, typer.Option("--value-only", help="Show nothing but the values.")
    ] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out what transactions have not committed.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE.parquet", help="Into this file.")
    ] = None,
    setting: Setting = None,
    json: Json = False,
) -> None:
    """Show records: from the beginning to the end that is there now, or as the options say."""
    from lograft.cli import record_reader
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.values import FORMATS

    if format_ not in FORMATS:
        raise typer.BadParameter(f"--format is one of {', '.join(FORMATS)}")
    is_member = group is not None and follow
    if is_member and (partition or from_ not in (None, "beginning", "end")):
        raise typer.BadParameter(
            "a group that is followed says which partitions and where: leave --partition and --from"
            " out"
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
        with_place=not value_only,
        as_json=json,
        output=output,
        wanted=_filter(key, grep, where, header),
        is_member=is_member,
    )
    if output is not None and follow:
        raise typer.BadParameter("--output ends at the end of the log: leave --follow out")
    if output is not None and options.wanted != record_reader.Filter():
        raise typer.BadParameter(
            "--output takes whole columns, without a look at single records: leave --key, --grep,"
            " --where and --header out, and filter the file"
        )
    run(record_reader.run(settings, options))


def get(
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Whose newest value is wanted.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    key_format: Annotated[
        str, typer.Option(metavar="text|hex|base64", help="How the key is written.")
    ] = "text",
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Where it is, if its hash does not say so."),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="auto|json|text|hex|base64", help="How it is shown."),
    ] = "auto",
    json: Json = False,
) -> None:
    """Show the newest value of a key. Exit code 1 when the key is not there, or deleted."""
    from lograft.cli import record_reader
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.values import shown, typed

    settings = {
        "client.id": "lograft-get",
        "allow.auto.create.topics": "false",
        **client_settings(bootstrap_server, command_config),
    }
    wanted = typed(key, key_format)
    record = run(record_reader.newest_of(settings, topic, wanted, partition))
    if record is None or record.value is None:
        why = "has no record" if record is None else "was deleted"
        typer.echo(f"lograft: key {key} {why} in {topic}", err=True)
        raise typer.Exit(1)
    print(record_reader.json_of(record) if json else shown(record.value, format_))


def _group_settings(group: str, start: str | None, *, is_member: bool) -> dict[str, str]:
    return {
        "group.id": group,
        "enable.auto.commit": "true" if is_member else "false",
        "auto.offset.reset": "latest" if start == "end" else "earliest",
    }


def _filter(
    key: str | None, grep: str | None, where: list[str] | None, header: list[str] | None
) -> "Filter":
    import re

    from lograft.cli.record_reader import Filter, parse_where

    try:
        pattern = None if grep is None else re.compile(grep)
    except re.error as error:
        raise typer.BadParameter(f"--grep {grep} is no pattern: {error}") from None
    return Filter(
        key=key,
        grep=pattern,
        where=parse_where(where or ()),
        headers=tuple(pairs_of(header).items()),
    )
