"""`lograft groups list` and `describe`: groups, their members, offsets and lag."""

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
class GroupPosition:
    """A group's progress in one partition; fields are None if unknown."""

    topic: str
    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    #: The id of the member to which the partition is assigned.
    member: str | None
    #: The offset that an undo restores (-1: no offset); None if there is nothing to undo.
    offset_before_reset: int | None


DescribedGroup = tuple[GroupDescription, list[GroupPosition]]


def list_lines(groups: Sequence[GroupListing]) -> list[str]:
    if not groups:
        return ["No groups."]
    return table(
        ["GROUP", "TYPE", "STATE"], ((group.group, group.type, group.state) for group in groups)
    )


async def describe(admin: Admin, groups: Sequence[str]) -> list[DescribedGroup]:
    """Describes these groups, or all if none are given. Raises GroupMissing."""
    names = list(groups) or [listing.group for listing in await admin.list_groups()]
    described = await admin.describe_groups(names)
    committed = await admin.list_offsets_of_groups(names)
    found = []
    for name in names:
        offsets = committed[name]
        if described[name].state == DEAD and not offsets:
            raise GroupMissing(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"group {name} does not exist: `lograft groups list` shows all groups",
            )
        found.append((described[name], await positions_of(admin, described[name], offsets)))
    return found


async def positions_of(
    admin: Admin, group: GroupDescription, offsets: Mapping[TopicPartition, GroupOffset]
) -> list[GroupPosition]:
    owners = group.owners
    partitions = sorted({*offsets, *owners})
    ends = await end_offsets(admin, partitions)
    positions = []
    for partition in partitions:
        committed = offsets.get(partition)
        offset = committed.offset if committed is not None and committed.offset >= 0 else None
        end = ends.get(partition)
        owner = owners.get(partition)
        positions.append(
            GroupPosition(
                *partition,
                offset,
                end,
                None if offset is None or end is None else max(0, end - offset),
                None if owner is None else owner.member,
                committed.before_reset
                if committed is not None and committed.reset_ms >= 0
                else None,
            )
        )
    return positions


async def end_offsets(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the end offsets of partitions that exist and have a leader; the others are left out,
    so that a group can be described nevertheless."""
    requested = set(partitions)
    existing = {topic.name for topic in await admin.list_topics(internal=True)}
    topics = await admin.describe_topics(sorted({name for name, _ in requested} & existing))
    with_leader = [
        partition
        for name, topic in topics.items()
        for description in topic.partitions
        if description.leader >= 0
        and (partition := TopicPartition(name, description.index)) in requested
    ]
    listed = await admin.list_offsets(dict.fromkeys(with_leader, LATEST))
    return {partition: end.offset for partition, end in listed.items()}


def describe_lines(found: Iterable[DescribedGroup]) -> Iterator[str]:
    for index, (group, positions) in enumerate(found):
        if index:
            yield ""
        assignor = f", assignor {group.assignor}" if group.assignor else ""
        members = count(len(group.members), "member")
        if not group.has_consumers:
            members = f"members not shown: Lograft does not support {group.type} groups yet"
        yield f"{group.group}  {group.type}  {group.state}  {members}{assignor}"
        if group.members:
            yield ""
            yield from table(
                ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
                (
                    (
                        member.member,
                        member.instance or NOTHING,
                        member.client,
                        member.host,
                        _assignment_text(member.partitions),
                    )
                    for member in group.members
                ),
            )
        if positions:
            yield ""
            yield from table(
                ["PARTITION", "OFFSET", "LOG END", "LAG", "BEFORE RESET", "MEMBER"],
                (
                    (
                        f"{position.topic}-{position.partition}",
                        number(position.offset),
                        number(position.end_offset),
                        number(position.lag),
                        "none"
                        if position.offset_before_reset == -1
                        else number(position.offset_before_reset),
                        position.member or NOTHING,
                    )
                    for position in positions
                ),
            )


def describe_json(found: Iterable[DescribedGroup]) -> list[dict[str, Any]]:
    return [{**jsonable(group), "positions": jsonable(positions)} for group, positions in found]


def _assignment_text(partitions: Mapping[str, list[int]]) -> str:
    return (
        " ".join(
            f"{topic}:{','.join(map(str, indexes))}"
            for topic, indexes in sorted(partitions.items())
        )
        or NOTHING
    )
