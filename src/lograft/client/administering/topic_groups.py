"""Requests that list the groups that read a topic, with their members and lag."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lograft.client.administering.configs import ConfigEntry, describe_configs, topic_resource
from lograft.client.administering.group_offsets import GroupOffset, list_offsets_of_groups
from lograft.client.administering.groups import GroupDescription, describe_groups, list_groups
from lograft.client.administering.partitions import LATEST, list_offsets
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.administering.topic_descriptions import describe_topics
from lograft.client.arguments import as_iterable
from lograft.model.types import TopicPartition

_MODE: Final = "subscription.mode"
_OWNER: Final = "subscription.group"
#: The mode of topics without the setting, and of all topics of Apache Kafka.
_PUBLISH_SUBSCRIBE: Final = "psb"
_POINT_TO_POINT: Final = "ptp"
#: Maximum number of groups in one request.
_GROUPS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """The position of a group in one partition. Fields are None if they are unknown or do not
    apply.

    for group in (await admin.list_topic_groups(["orders"]))["orders"].groups:
        for reading in group.partitions:
            print(reading.partition, reading.offset, reading.lag, reading.member)
    """

    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    #: The member to which the partition is assigned.
    member: str | None


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A group with assigned partitions of the topic, or committed offsets for it.

    for group in (await admin.list_topic_groups(["orders"]))["orders"].groups:
        print(group.group, group.type, group.members, group.lag)
    """

    group: str
    #: "classic" or "consumer".
    type: str
    state: str
    assignor: str
    #: The number of members with partitions of this topic; 0: consumers assign partitions
    #: themselves, or none is running.
    members: int
    partitions: tuple[PartitionReading, ...]

    @property
    def lag(self) -> int | None:
        """The sum over the partitions whose lag is known; None if there is none."""
        known = [reading.lag for reading in self.partitions if reading.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """The subscription mode of a topic and the groups that read it.

    orders = (await admin.list_topic_groups(["orders"]))["orders"]
    print(orders.mode, orders.owner, [group.group for group in orders.groups])
    """

    topic: str
    #: "psb": any number of groups may read it; "ptp": only the owner.
    mode: str
    #: The group that reads a "ptp" topic, if it has one.
    owner: str | None
    groups: tuple[TopicGroup, ...]


async def list_topic_groups(driver: RequestDriver, topics: Iterable[str]) -> dict[str, TopicGroups]:
    described = await describe_topics(driver, as_iterable(topics))
    resources = {name: topic_resource(name) for name in described}
    settings = await describe_configs(driver, resources.values(), names=(_MODE, _OWNER))
    partitions = {
        TopicPartition(name, partition.index): partition.leader >= 0
        for name, topic in described.items()
        for partition in topic.partitions
    }
    # A coordinator rejects OffsetFetch for a "ptp" topic of another group, but not OffsetFetch for
    # all topics of the group.
    has_ptp = any(
        _mode_of(settings[resource]) == _POINT_TO_POINT for resource in resources.values()
    )
    names = [listing.group for listing in await list_groups(driver)]
    groups: dict[str, GroupDescription] = {}
    offsets: dict[str, dict[TopicPartition, GroupOffset]] = {}
    for first in range(0, len(names), _GROUPS_MAX):
        chunk = names[first : first + _GROUPS_MAX]
        groups |= await describe_groups(driver, chunk)
        offsets |= await list_offsets_of_groups(driver, chunk, None if has_ptp else partitions)
    led = [partition for partition, has_leader in partitions.items() if has_leader]
    listed = await list_offsets(driver, dict.fromkeys(led, LATEST))
    ends = {partition: end.offset for partition, end in listed.items()}
    found = {}
    for name, resource in resources.items():
        owner = settings[resource].get(_OWNER)
        found[name] = TopicGroups(
            name,
            _mode_of(settings[resource]),
            (owner.value or None) if owner is not None else None,
            tuple(
                topic_group
                for group in sorted(groups)
                if (topic_group := _topic_group(name, groups[group], offsets[group], ends))
                is not None
            ),
        )
    return found


def _mode_of(settings: Mapping[str, ConfigEntry]) -> str:
    entry = settings.get(_MODE)
    return (entry.value if entry is not None else None) or _PUBLISH_SUBSCRIBE


def _topic_group(
    topic: str,
    group: GroupDescription,
    offsets: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
) -> TopicGroup | None:
    """Returns None if the group does not read the topic."""
    owners = {
        partition: member for partition, member in group.owners.items() if partition.topic == topic
    }
    committed = {
        partition: offset.offset
        for partition, offset in offsets.items()
        if partition.topic == topic and offset.offset >= 0
    }
    if not owners and not committed:
        return None
    readings = []
    for partition in sorted({*owners, *committed}):
        offset, end = committed.get(partition), ends.get(partition)
        owner = owners.get(partition)
        readings.append(
            PartitionReading(
                partition.partition,
                offset,
                end,
                None if offset is None or end is None else max(0, end - offset),
                None if owner is None else owner.member,
            )
        )
    return TopicGroup(
        group.group,
        group.type,
        group.state,
        group.assignor,
        len({member.member for member in owners.values()}),
        tuple(readings),
    )
