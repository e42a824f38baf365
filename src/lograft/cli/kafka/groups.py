"""kafka-consumer-groups: list and describe groups, move and delete their offsets, delete them."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from lograft.cli.client_runner import run_admin
from lograft.cli.group_resets import parse_datetime_ms, parse_duration_ms, parse_scope
from lograft.cli.groups import standings
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


def run(arguments: Sequence[str]) -> int:
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
    given = parser.parse_args(list(arguments))
    actions = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
    action = parser.require_one(given, *actions)
    if action != "list" and not given.group and not given.all_groups:
        parser.error(f"Option [{action.replace('_', '-')}] takes one of: [group], [all-groups]")
    settings = settings_of(parser, given)
    settings.setdefault("default.api.timeout.ms", str(given.timeout))
    settings.setdefault("request.timeout.ms", str(min(given.timeout, 30_000)))
    works = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset,
        "delete_offsets": _delete_offsets,
    }
    try:
        run_admin(settings, lambda admin: works[action](admin, given))
    except (ClientError, InvalidInput) as error:
        print(f"\nError: {error}", file=sys.stderr)
        return 1
    return 0


async def _groups(admin: Admin, given: argparse.Namespace) -> list[str]:
    if given.all_groups:
        return [one.group for one in await _consumer_groups(admin)]
    return list(given.group)


async def _consumer_groups(
    admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    """Lists groups as Kafka's tool does: without share groups, streams groups and the groups of
    Kafka Connect and other protocols."""
    found = await admin.list_groups(states=states, types=types or CONSUMER_TYPES)
    return [group for group in found if group.protocol_type in CONSUMER_PROTOCOLS]


# ── list and describe ────────────────────────────────────────────────────────────────────────


async def _list(admin: Admin, given: argparse.Namespace) -> None:
    types = _words(given.type)
    if not {one.lower() for one in types} <= set(CONSUMER_TYPES):
        raise InvalidInput(f"Invalid types list '{given.type}'. Valid types are: Classic, Consumer")
    found = await _consumer_groups(admin, _words(given.state), types)
    if given.state is None and given.type is None:
        for one in found:
            print(one.group)
        return
    width = max([WIDTH, *(len(one.group) for one in found)]) + 10
    heads, rows = ["GROUP"], [[one.group] for one in found]
    if given.type is not None:
        heads.append("TYPE")
        for row, one in zip(rows, found, strict=True):
            row.append(one.type.capitalize())
    if given.state is not None:
        heads.append("STATE")
        for row, one in zip(rows, found, strict=True):
            row.append(one.state)
    for line in (heads, *rows):
        print(f"{line[0]:<{width}} " + " ".join(f"{text:<20}" for text in line[1:]))


def _words(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


async def _describe(admin: Admin, given: argparse.Namespace) -> None:
    names = await _groups(admin, given)
    described = await admin.describe_groups(names)
    addresses = {one.id: one.address for one in (await admin.describe_cluster()).brokers}
    for name in names:
        group = described[name]
        if group.state == DEAD or not group.has_consumers:
            raise InvalidInput(f"Consumer group '{name}' does not exist.")
        if not group.members:
            print(f"\nConsumer group '{name}' has no active members.")
        elif group.state in ("PreparingRebalance", "CompletingRebalance"):
            print(f"\nWarning: Consumer group '{name}' is rebalancing.")
        if given.state is not None:
            where = f"{addresses.get(group.coordinator, '-')}  ({group.coordinator})"
            row = (name, where, group.assignor or "-", group.state, str(len(group.members)))
            _print_state([row])
        elif given.members:
            _print_members(group, verbose=given.verbose)
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
    for one in group.members:
        count = sum(map(len, one.partitions.values()))
        row = [group.group, one.member, one.host, one.client, str(count)]
        if verbose:
            assigned = ", ".join(
                f"{topic}({','.join(map(str, indexes))})"
                for topic, indexes in sorted(one.partitions.items())
            )
            row.append(assigned or "-")
        rows.append(row)
    if verbose:
        head.append("ASSIGNMENT")
    _print_rows([head, *rows], (WIDTH,) * len(head))


async def _print_offsets(admin: Admin, group: GroupDescription) -> None:
    found = await standings(admin, group, await admin.list_group_offsets(group.group))
    if not found:
        return
    members = {one.member: one for one in group.members}
    head = (
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    rows = []
    for one in found:
        member = members.get(one.member or "")
        rows.append(
            (
                *(group.group, one.topic, str(one.partition), _said(one.offset)),
                *(_said(one.end_offset), _said(one.lag)),
                *(
                    ("-", "-", "-")
                    if member is None
                    else (member.member, member.host, member.client)
                ),
            )
        )
    print()
    _print_rows([head, *rows], (WIDTH, WIDTH, 10, WIDTH, WIDTH, WIDTH, WIDTH, WIDTH))


def _print_rows(rows: Sequence[Sequence[str]], least: Sequence[int]) -> None:
    """Columns at least so wide; what is beyond them is as wide as it is."""
    widths = [max(low, *(len(row[at]) for row in rows)) for at, low in enumerate(least)]
    for row in rows:
        cells = [f"{text:<{width}}" for text, width in zip(row, widths, strict=False)]
        print(" ".join([*cells, *row[len(widths) :]]))


def _said(number: int | None) -> str:
    return "-" if number is None else str(number)


# ── delete ───────────────────────────────────────────────────────────────────────────────────


async def _delete(admin: Admin, given: argparse.Namespace) -> None:
    names = await _groups(admin, given)
    quoted = ", ".join(f"'{name}'" for name in names)
    try:
        await admin.delete_groups(names)
    except SomeFailed as error:
        lines = [
            f"* Group '{name}' could not be deleted due to: {why}"
            for name, why in error.failed.items()
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


async def _delete_offsets(admin: Admin, given: argparse.Namespace) -> None:
    (group,) = given.group
    places = await _places(admin, given.topic)
    status = "Successful"
    try:
        await admin.delete_group_offsets(group, places)
        print(f"Request succeeded for deleting offsets from group {group}.")
    except GroupNotEmpty as error:
        status = f"Error: {error}"
        print(
            f"\nEncountered some partition-level error, see the follow-up details for group {group}"
        )
    print()
    rows = [(one.topic, str(one.partition), status) for one in places]
    _print_rows([("TOPIC", "PARTITION", "STATUS"), *rows], (WIDTH, 10, WIDTH))


async def _places(admin: Admin, texts: Sequence[str]) -> list[TopicPartition]:
    scope = parse_scope(texts)
    described = await admin.describe_topics(scope)
    return [
        TopicPartition(name, one.index)
        for name, topic in described.items()
        for one in topic.partitions
        if (wanted := scope[name]) is None or one.index in wanted
    ]


# ── reset ────────────────────────────────────────────────────────────────────────────────────


async def _reset(admin: Admin, given: argparse.Namespace) -> None:
    """Of groups that nobody is in, as Kafka does it; `lograft groups reset` moves others too."""
    if not given.all_topics and not given.topic and given.from_file is None:
        raise InvalidInput("One of the reset scopes should be defined: --all-topics, --topic.")
    moves: list[tuple[str, OffsetMove]] = []
    for group in await _groups(admin, given):
        described = (await admin.describe_groups([group]))[group]
        if described.state not in INACTIVE:
            raise InvalidInput(
                f"Assignments can only be reset if the group '{group}' is inactive, but the current"
                f" state is {described.state}. (`lograft groups reset {group}` does it while it"
                " runs.)"
            )
        moves += [(group, one) for one in await _planned(admin, group, given)]
    if given.execute:
        for group in dict.fromkeys(name for name, _ in moves):
            offsets = {
                TopicPartition(one.topic, one.partition): one.after
                for name, one in moves
                if name == group and one.after is not None
            }
            await admin.alter_group_offsets(group, offsets)
    if given.export:
        several = len({name for name, _ in moves}) > 1
        for group, one in moves:
            front = f'"{group}",' if several else ""
            print(f'{front}"{one.topic}",{one.partition},{one.after}')
        return
    print()
    rows = [(name, one.topic, str(one.partition), _said(one.after)) for name, one in moves]
    _print_rows([("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows], (WIDTH, WIDTH, 10))


async def _planned(admin: Admin, group: str, given: argparse.Namespace) -> list[OffsetMove]:
    if given.from_file is not None:
        return _from_file(given.from_file, group)
    target = _target(given)
    scope = None if given.all_topics else parse_scope(given.topic)
    return list((await admin.plan_reset(group, target, scope)).moves)


def _target(given: argparse.Namespace) -> Target:
    chosen = [one for one in _TARGETS if getattr(given, one) not in (None, False)]
    if len(chosen) != 1:
        flags = ", ".join(f"--{one.replace('_', '-')}" for one in _TARGETS)
        raise InvalidInput(f"Exactly one of the reset scenarios is needed: {flags}")
    from_ms = None
    if given.by_duration is not None:
        from_ms = SystemClock().wall_ms() - parse_duration_ms(given.by_duration)
    elif given.to_datetime is not None:
        from_ms = parse_datetime_ms(given.to_datetime)
    return Target(
        earliest=given.to_earliest,
        latest=given.to_latest,
        current=given.to_current,
        offset=given.to_offset,
        shift=given.shift_by,
        from_ms=from_ms,
    )


def _from_file(path: str, group: str) -> list[OffsetMove]:
    """Lines of topic,partition,offset, with the group before them where there are several."""
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
