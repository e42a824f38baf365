"""kafka-consumer-groups: lists, describes and deletes groups, resets and deletes their offsets."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from lograft.cli.client_runner import run_admin
from lograft.cli.group_resets import parse_datetime_ms, parse_duration_ms, parse_scope
from lograft.cli.groups import positions_of
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.client.admin import (
    Admin,
    GroupDescription,
    GroupListing,
    OffsetMove,
    Target,
    TopicPartition,
)
from lograft.client.administering.groups import DEAD
from lograft.client.errors import ClientError, GroupNotEmpty, SomeFailed
from lograft.client.group_types import CONSUMER_TYPES
from lograft.model.errors import InvalidInput
from lograft.runtime.clock import SystemClock

WIDTH: Final = 15
#: "": offsets were committed, but no member ever joined.
CONSUMER_PROTOCOLS: Final = frozenset(("", "consumer"))
INACTIVE: Final = frozenset(("Empty", DEAD))
_TARGETS: Final = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "by_duration",
    "to_datetime",
    "from_file",
)


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-consumer-groups", "List, describe, reset and delete consumer groups.")
    parser.add_connection()
    for flag in ("list", "describe", "delete", "reset-offsets", "delete-offsets"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--topic", action="append", default=[], metavar="T[:P,…]")
    parser.add_argument("--state", nargs="?", const="", metavar="STATES")
    parser.add_argument("--type", nargs="?", const="", metavar="TYPES")
    for flag in (
        *("all-groups", "all-topics", "members", "offsets", "verbose", "execute", "dry-run"),
        *("export", "to-earliest", "to-latest", "to-current", "validate-regex"),
    ):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--to-offset", type=int)
    parser.add_argument("--shift-by", type=int)
    parser.add_argument("--by-duration", metavar="PnDTnHnMnS")
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
    parser.add_argument("--from-file", metavar="FILE.csv")
    parser.add_argument("--timeout", type=int, default=30_000, metavar="MS")
    arguments = parser.parse_args(list(words))
    actions = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
    action = parser.require_one(arguments, *actions)
    if action != "list" and not arguments.group and not arguments.all_groups:
        parser.error(f"Option [{action.replace('_', '-')}] takes one of: [group], [all-groups]")
    settings = settings_of(parser, arguments)
    settings.setdefault("default.api.timeout.ms", str(arguments.timeout))
    settings.setdefault("request.timeout.ms", str(min(arguments.timeout, 30_000)))
    works = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
    }
    try:
        run_admin(settings, lambda admin: works[action](admin, arguments))
    except (ClientError, InvalidInput) as error:
        print(f"\nError: {error}", file=sys.stderr)
        return 1
    return 0


async def _group_names(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if arguments.all_groups:
        return [group.group for group in await _consumer_groups(admin)]
    return list(arguments.group)


async def _consumer_groups(
    admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Lists groups as Kafka's tool does: without share groups, streams groups and the groups of
    Kafka Connect and other protocols."""
    found = await admin.list_groups(states=states, types=types or CONSUMER_TYPES)
    return [group for group in found if group.protocol_type in CONSUMER_PROTOCOLS]


# ── list and describe ────────────────────────────────────────────────────────────────────────


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    types = _split_list(arguments.type)
    if not {group.lower() for group in types} <= set(CONSUMER_TYPES):
        raise InvalidInput(
            f"Invalid types list '{arguments.type}'. Valid types are: Classic, Consumer"
        )
    found = await _consumer_groups(admin, _split_list(arguments.state), types)
    if arguments.state is None and arguments.type is None:
        for group in found:
            print(group.group)
        return
    width = max([WIDTH, *(len(group.group) for group in found)]) + 10
    heads, rows = ["GROUP"], [[group.group] for group in found]
    if arguments.type is not None:
        heads.append("TYPE")
        for row, group in zip(rows, found, strict=True):
            row.append(group.type.capitalize())
    if arguments.state is not None:
        heads.append("STATE")
        for row, group in zip(rows, found, strict=True):
            row.append(group.state)
    for line in (heads, *rows):
        print(f"{line[0]:<{width}} " + " ".join(f"{text:<20}" for text in line[1:]))


def _split_list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _group_names(admin, arguments)
    described = await admin.describe_groups(names)
    addresses = {broker.id: broker.address for broker in (await admin.describe_cluster()).brokers}
    for name in names:
        group = described[name]
        if group.state == DEAD or not group.has_consumers:
            raise InvalidInput(f"Consumer group '{name}' does not exist.")
        if not group.members:
            print(f"\nConsumer group '{name}' has no active members.")
        elif group.state in ("PreparingRebalance", "CompletingRebalance"):
            print(f"\nWarning: Consumer group '{name}' is rebalancing.")
        if arguments.state is not None:
            where = f"{addresses.get(group.coordinator, '-')}  ({group.coordinator})"
            row = (name, where, group.assignor or "-", group.state, str(len(group.members)))
            _print_state([row])
        elif arguments.members:
            _print_members(group, verbose=arguments.verbose)
        else:
            await _print_offsets(admin, group)


def _print_state(rows: Iterable[Sequence[str]]) -> None:
    print()
    head = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    _print_rows([head, *rows], (WIDTH, 25, 20, 20))


def _print_members(group: GroupDescription, *, verbose: bool) -> None:
    print()
    head = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = []
    for member in group.members:
        count = sum(map(len, member.partitions.values()))
        row = [group.group, member.member, member.host, member.client, str(count)]
        if verbose:
            assigned = ", ".join(
                f"{topic}({','.join(map(str, indexes))})"
                for topic, indexes in sorted(member.partitions.items())
            )
            row.append(assigned or "-")
        rows.append(row)
    if verbose:
        head.append("ASSIGNMENT")
    _print_rows([head, *rows], (WIDTH,) * len(head))


async def _print_offsets(admin: Admin, group: GroupDescription) -> None:
    found = await positions_of(admin, group, await admin.list_group_offsets(group.group))
    if not found:
        return
    members = {position.member: position for position in group.members}
    head = (
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    rows = []
    for position in found:
        member = members.get(position.member or "")
        rows.append(
            (
                *(
                    group.group,
                    position.topic,
                    str(position.partition),
                    _number_text(position.offset),
                ),
                *(_number_text(position.end_offset), _number_text(position.lag)),
                *(
                    ("-", "-", "-")
                    if member is None
                    else (member.member, member.host, member.client)
                ),
            )
        )
    print()
    _print_rows([head, *rows], (WIDTH, WIDTH, 10, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH))


def _print_rows(rows: Sequence[Sequence[str]], widths_min: Sequence[int]) -> None:
    """Prints rows with columns of at least these widths; further columns are not padded."""
    widths = [
        max(width, *(len(row[column]) for row in rows)) for column, width in enumerate(widths_min)
    ]
    for row in rows:
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        print(" ".join([*cells, *row[len(widths) :]]))


def _number_text(number: int | None) -> str:
    return "-" if number is None else str(number)


# ── delete ───────────────────────────────────────────────────────────────────────────────────


async def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _group_names(admin, arguments)
    quoted = ", ".join(f"'{name}'" for name in names)
    try:
        await admin.delete_groups(names)
    except SomeFailed as error:
        lines = [
            f"* Group '{name}' could not be deleted due to: {reason}"
            for name, reason in error.failed.items()
        ]
        raise InvalidInput(
            "Deletion of some consumer groups failed:\n" + "\n".join(lines)
        ) from None
    except ClientError as error:
        raise InvalidInput(
            "Deletion of some consumer groups failed:\n"
            f"* Group {quoted} could not be deleted due to: {error}"
        ) from None
    print(f"Deletion of requested consumer groups ({quoted}) was successful.")


async def _delete_offsets(admin: Admin, arguments: argparse.Namespace) -> None:
    (group,) = arguments.group
    partitions = await _find_partitions(admin, arguments.topic)
    status = "Successful"
    try:
        await admin.delete_group_offsets(group, partitions)
        print(f"Request succeeded for deleting offsets from group {group}.")
    except GroupNotEmpty as error:
        status = f"Error: {error}"
        print(
            f"\nEncountered some partition-level error, see the follow-up details for group {group}"
        )
    print()
    rows = [(topic, str(partition), status) for topic, partition in partitions]
    _print_rows([("TOPIC", "PARTITION", "STATUS"), *rows], (WIDTH, 10, WIDTH))


async def _find_partitions(admin: Admin, texts: Sequence[str]) -> list[TopicPartition]:
    scope = parse_scope(texts)
    described = await admin.describe_topics(scope)
    return [
        TopicPartition(name, partition.index)
        for name, topic in described.items()
        for partition in topic.partitions
        if (indexes := scope[name]) is None or partition.index in indexes
    ]


# ── reset ────────────────────────────────────────────────────────────────────────────────────


async def _reset(admin: Admin, arguments: argparse.Namespace) -> None:
    """Resets the offsets of inactive groups, as Kafka does; `lograft groups reset` resets active
    groups too."""
    if not arguments.all_topics and not arguments.topic and arguments.from_file is None:
        raise InvalidInput("One of the reset scopes should be defined: --all-topics, --topic.")
    moves: list[tuple[str, OffsetMove]] = []
    for group in await _group_names(admin, arguments):
        described = (await admin.describe_groups([group]))[group]
        if described.state not in INACTIVE:
            raise InvalidInput(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current"
                f" state is {described.state}. (`lograft groups reset {group}` also resets active"
                " groups.)"
            )
        moves += [(group, move) for move in await _plan(admin, group, arguments)]
    if arguments.execute:
        for group in dict.fromkeys(name for name, _ in moves):
            offsets = {
                TopicPartition(move.topic, move.partition): move.after
                for name, move in moves
                if name == group and move.after is not None
            }
            await admin.alter_group_offsets(group, offsets)
    if arguments.export:
        several = len({name for name, _ in moves}) > 1
        for group, move in moves:
            front = f'"{group}",' if several else ""
            print(f'{front}"{move.topic}",{move.partition},{move.after}')
        return
    print()
    rows = [
        (name, move.topic, str(move.partition), _number_text(move.after)) for name, move in moves
    ]
    _print_rows([("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows], (WIDTH, WIDTH, 10))


async def _plan(admin: Admin, group: str, arguments: argparse.Namespace) -> list[OffsetMove]:
    if arguments.from_file is not None:
        return _read_moves(arguments.from_file, group)
    target = _parse_target(arguments)
    scope = None if arguments.all_topics else parse_scope(arguments.topic)
    return list((await admin.plan_reset(group, target, scope)).moves)


def _parse_target(arguments: argparse.Namespace) -> Target:
    chosen = [name for name in _TARGETS if getattr(arguments, name) not in (None, False)]
    if len(chosen) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in _TARGETS)
        raise InvalidInput(f"Exactly one of the reset scenarios is needed: {flags}")
    from_ms = None
    if arguments.by_duration is not None:
        from_ms = SystemClock().wall_ms() - parse_duration_ms(arguments.by_duration)
    elif arguments.to_datetime is not None:
        from_ms = parse_datetime_ms(arguments.to_datetime)
    return Target(
        earliest=arguments.to_earliest,
        latest=arguments.to_latest,
        current=arguments.to_current,
        offset=arguments.to_offset,
        shift=arguments.shift_by,
        from_ms=from_ms,
    )


def _read_moves(path: str, group: str) -> list[OffsetMove]:
    """Reads lines of the form [group,]topic,partition,offset."""
    moves = []
    with open(path, encoding="utf-8") as file:
        for line in filter(None, map(str.strip, file)):
            parts = [part.strip().strip('"') for part in line.split(",")]
            if len(parts) == 4 and parts.pop(0) != group:
                continue
            if len(parts) != 3:
                raise InvalidInput(f"{path}: {line} is not topic,partition,offset")
            moves.append(OffsetMove(parts[0], int(parts[1]), None, int(parts[2])))
    return moves
