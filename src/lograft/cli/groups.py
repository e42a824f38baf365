"""`lograft groups list|describe`: who reads what, and how far behind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lograft.cli.output import NOTHING, count, jsonable, number, table
from lograft.client.admin import (
    LATEST,
    Admin,
    GroupDescription,
    GroupListing,
    GroupOffset,
    TopicPartition,
)
from lograft.client.administering.groups import DEAD
from lograft.client.errors import GroupMissing
from lograft.model.errors import ErrorCode


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


Found = tuple[GroupDescription, list[Standing]]


def list_lines(groups: Sequence[GroupListing]) -> list[str]:
    if not groups:
        return ["There are no groups."]
    return table(["GROUP", "TYPE", "STATE"], ((one.group, one.type, one.state) for one in groups))


async def describe(admin: Admin, groups: Sequence[str]) -> list[Found]:
    """These, or all."""
    names = list(groups) or [one.group for one in await admin.list_groups()]
    described = await admin.describe_groups(names)
    committed = await admin.list_offsets_of_groups(names)
    found = []
    for name in names:
        offsets = committed[name]
        if described[name].state == DEAD and not offsets:
            raise GroupMissing(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no group {name}; `lograft groups list` shows those there are",
            )
        found.append((described[name], await standings(admin, described[name], offsets)))
    return found


async def standings(
    admin: Admin, group: GroupDescription, offsets: Mapping[TopicPartition, GroupOffset]
) -> list[Standing]:
    readers = group.readers
    places = sorted({*offsets, *readers})
    ends = await end_offsets(admin, places)
    found = []
    for place in places:
        stand = offsets.get(place)
        offset = stand.offset if stand is not None and stand.offset >= 0 else None
        end = ends.get(place)
        reader = readers.get(place)
        found.append(
            Standing(
                *place,
                offset,
                end,
                None if offset is None or end is None else max(0, end - offset),
                None if reader is None else reader.member,
                stand.before_reset if stand is not None and stand.reset_ms >= 0 else None,
            )
        )
    return found


async def end_offsets(admin: Admin, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Of those that exist and have a leader: a group is described even when others have not."""
    wanted = set(places)
    there = {one.name for one in await admin.list_topics(internal=True)}
    topics = await admin.describe_topics(sorted({one.topic for one in wanted} & there))
    led = [
        place
        for name, topic in topics.items()
        for one in topic.partitions
        if one.leader >= 0 and (place := TopicPartition(name, one.index)) in wanted
    ]
    listed = await admin.list_offsets(dict.fromkeys(led, LATEST))
    return {place: one.offset for place, one in listed.items()}


def describe_lines(found: Iterable[Found]) -> Iterator[str]:
    for place, (group, positions) in enumerate(found):
        if place:
            yield ""
        how = f", assigned by {group.assignor}" if group.assignor else ""
        members = count(len(group.members), "member")
        if not group.has_consumers:
            members = f"members unknown: Lograft does not support {group.type} groups yet"
        yield f"{group.group}  {group.type}  {group.state}  {members}{how}"
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
        if positions:
            yield ""
            yield from table(
                ["PARTITION", "OFFSET", "END", "LAG", "BEFORE RESET", "MEMBER"],
                (
                    (
                        f"{one.topic}-{one.partition}",
                        number(one.offset),
                        number(one.end_offset),
                        number(one.lag),
                        "none"
                        if one.offset_before_reset == -1
                        else number(one.offset_before_reset),
                        one.member or NOTHING,
                    )
                    for one in positions
                ),
            )


def describe_json(found: Iterable[Found]) -> list[dict[str, Any]]:
    return [{**jsonable(group), "positions": jsonable(positions)} for group, positions in found]


def _told(partitions: Mapping[str, list[int]]) -> str:
    return (
        " ".join(
            f"{topic}:{','.join(map(str, found))}" for topic, found in sorted(partitions.items())
        )
        or NOTHING
    )
