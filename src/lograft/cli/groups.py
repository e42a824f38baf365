"""`lograft groups list|describe|delete`: who reads what, and how far behind."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from lograft.cli.asking import Asks
from lograft.cli.group_questions import (
    LATEST,
    Description,
    GroupsRefused,
    Listed,
    Place,
    Position,
    at_coordinator,
    check,
    describe_group,
    list_groups,
    log_offsets,
    partitions_of,
    positions_of,
)
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

DELETE_GROUPS_VERSION: Final = 2
DEAD: Final = "Dead"
NOTHING: Final = "-"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in one partition; None: not known, or none."""

    topic: str
    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    #: Who reads it now.
    member: str | None
    #: Where an undo would go back to (-1: to none); None: there is nothing to undo.
    offset_before_reset: int | None


# ── list ─────────────────────────────────────────────────────────────────────────────────────


async def listed(ask: Asks, *, states: Collection[str], types: Collection[str]) -> list[Listed]:
    states = {one.lower() for one in states}
    types = {one.lower() for one in types}
    return [
        one
        for one in await list_groups(ask)
        if (not states or one.state.lower() in states) and (not types or one.type in types)
    ]


def list_lines(groups: Sequence[Listed]) -> list[str]:
    if not groups:
        return ["There is no such group."]
    return table(["GROUP", "TYPE", "STATE"], ((one.group, one.type, one.state) for one in groups))


# ── describe ─────────────────────────────────────────────────────────────────────────────────


async def describe(ask: Asks, groups: Sequence[str]) -> list[tuple[Description, list[Standing]]]:
    """These, or all."""
    names = groups or [one.group for one in await list_groups(ask)]
    found = []
    for name in names:
        description = await describe_group(ask, name)
        positions = await positions_of(ask, name)
        if description.state == DEAD and not positions:
            raise GroupsRefused(
                f"there is no group {name}; `lograft groups list` shows those there are"
            )
        found.append((description, await _standings(ask, description, positions)))
    return found


async def _standings(
    ask: Asks, description: Description, positions: dict[Place, Position]
) -> list[Standing]:
    readers = readers_of(description)
    places = sorted({*positions, *readers})
    leaders = await partitions_of(ask, {topic for topic, _ in places})
    ends = await log_offsets(
        ask, {place: leaders[place] for place in places if place in leaders}, LATEST
    )
    standings = []
    for place in places:
        position = positions.get(place)
        offset = position.offset if position is not None and position.offset >= 0 else None
        end = ends.get(place)
        undoable = position is not None and position.reset_ms >= 0
        standings.append(
            Standing(
                *place,
                offset,
                end,
                None if offset is None or end is None else max(0, end - offset),
                readers.get(place),
                position.before_reset if position is not None and undoable else None,
            )
        )
    return standings


def readers_of(description: Description) -> dict[Place, str]:
    return {
        (topic, partition): member.member
        for member in description.members
        for topic, partitions in member.partitions.items()
        for partition in partitions
    }


def describe_lines(
    found: Iterable[tuple[Description, Sequence[Standing]]],
) -> Iterator[str]:
    for number, (group, standings) in enumerate(found):
        if number:
            yield ""
        count = len(group.members)
        how = f", assigned by {group.assignor}" if group.assignor else ""
        yield (
            f"{group.group}  {group.type}  {group.state}"
            f"  {count} member{'' if count == 1 else 's'}{how}"
        )
        if group.members:
            yield ""
            yield from table(
                ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
                (
                    (
                        one.member,
                        one.instance or NOTHING,
                        one.client,
                        one.host,
                        _told(one.partitions),
                    )
                    for one in group.members
                ),
            )
        if standings:
            yield ""
            yield from table(
                ["PARTITION", "OFFSET", "END", "LAG", "BEFORE RESET", "MEMBER"],
                (
                    (
                        f"{one.topic}-{one.partition}",
                        _number(one.offset),
                        _number(one.end_offset),
                        _number(one.lag),
                        "none"
                        if one.offset_before_reset == -1
                        else _number(one.offset_before_reset),
                        one.member or NOTHING,
                    )
                    for one in standings
                ),
            )


def describe_json(
    found: Iterable[tuple[Description, Sequence[Standing]]],
) -> list[dict[str, Any]]:
    return [
        {**asdict(group), "positions": [asdict(one) for one in standings]}
        for group, standings in found
    ]


# ── delete ───────────────────────────────────────────────────────────────────────────────────


async def delete(ask: Asks, groups: Sequence[str]) -> list[str]:
    """With all they have committed. One after the other; ends at the first that is refused."""
    for group in groups:

        async def question(at: Address, group: str = group) -> None:
            request = DeleteGroupsRequest(groups_names=[group])
            response = await ask(request, DELETE_GROUPS_VERSION, DeleteGroupsResponse, at=at)
            (result,) = response.results
            if result.error_code == ErrorCode.non_empty_group:
                raise GroupsRefused(
                    f"group {group} has members; stop them (`lograft groups describe {group}`"
                    " shows who they are), then delete it"
                )
            if result.error_code == ErrorCode.group_id_not_found:
                raise GroupsRefused(
                    f"there is no group {group}; `lograft groups list` shows those there are"
                )
            check(result.error_code, f"group {group}")

        await at_coordinator(ask, group, question)
    return [f"Group {group} is deleted." for group in groups]


# ── words ────────────────────────────────────────────────────────────────────────────────────


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """In columns; the last is as wide as it is."""
    everything = [head, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in everything
    ]


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def _told(partitions: dict[str, list[int]]) -> str:
    return (
        " ".join(
            f"{topic}:{','.join(map(str, found))}" for topic, found in sorted(partitions.items())
        )
        or NOTHING
    )
