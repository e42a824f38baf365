"""The groups that read a topic: how they read it, with how many members, and how far behind."""

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
#: What a topic without the setting has, and every topic of Apache Kafka.
_PUBLISH_SUBSCRIBE: Final = "psb"
_POINT_TO_POINT: Final = "ptp"
#: Groups of one request to their coordinator.
_GROUPS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """The position of a group in one partition. A field is None if its value is unknown or there
    is none.

    for group in (await admin.list_topic_groups(["orders"]))["orders"].groups:
        for reading in group.partitions:
            print(reading.partition, reading.offset, reading.lag, reading.member)
    """

    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    #: The member that has the partition now.
    member: str | None


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """One group that has members with partitions of the topic, or offsets in it.

    for group in (await admin.list_topic_groups(["orders"]))["orders"].groups:
        print(group.group, group.type, group.members, group.lag)
    """

    group: str
    #: "classic" or "consumer".
    type: str
    state: str
    assignor: str
    #: Members that have partitions of this topic. 0: consumers assign partitions themselves, or
    #: none is running.
    members: int
    partitions: tuple[PartitionReading, ...]

    @property
    def lag(self) -> int | None:
        """Over the partitions where it is known; None: in none."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """How a topic may be read, and who does.

    orders = (await admin.list_topic_groups(["orders"]))["orders"]
    print(orders.mode, orders.owner, [one.group for one in orders.groups])
    """

    topic: str
    #: "psb": any number of groups; "ptp": the owner alone.
    mode: str
    #: Of a "ptp" topic that a group has taken.
    owner: str | None
    groups: tuple[TopicGroup, ...]


async def list_topic_groups(driver: RequestDriver, topics: Iterable[str]) -> dict[str, TopicGroups]:
    described = await describe_topics(driver, as_iterable(topics))
    resources = {name: topic_resource(name) for name in described}
    settings = await describe_configs(driver, resources.values(), names=(_MODE, _OWNER))
    places = {
        TopicPartition(name, one.index): one.leader >= 0
        for name, topic in described.items()
        for one in topic.partitions
    }
    # A coordinator refuses a group that names a "ptp" topic of another group; a group that asks
    # for all its offsets gets those that it has.
    is_claimed = any(_mode(settings[one]) == _POINT_TO_POINT for one in resources.values())
    names = [one.group for one in await list_groups(driver)]
    groups: dict[str, GroupDescription] = {}
    offsets: dict[str, dict[TopicPartition, GroupOffset]] = {}
    for first in range(0, len(names), _GROUPS_AT_ONCE):
        some = names[first : first + _GROUPS_AT_ONCE]
        groups |= await describe_groups(driver, some)
        offsets |= await list_offsets_of_groups(driver, some, None if is_claimed else places)
    led = [place for place, has_leader in places.items() if has_leader]
    listed = await list_offsets(driver, dict.fromkeys(led, LATEST))
    ends = {place: one.offset for place, one in listed.items()}
    found = {}
    for name, resource in resources.items():
        owner = settings[resource].get(_OWNER)
        found[name] = TopicGroups(
            name,
            _mode(settings[resource]),
            (owner.value or None) if owner is not None else None,
            tuple(
                reading
                for group in sorted(groups)
                if (reading := _reading(name, groups[group], offsets[group], ends)) is not None
            ),
        )
    return found


def _mode(settings: Mapping[str, ConfigEntry]) -> str:
    entry = settings.get(_MODE)
    return (entry.value if entry is not None else None) or _PUBLISH_SUBSCRIBE


def _reading(
    topic: str,
    group: GroupDescription,
    offsets: Mapping[TopicPartition, GroupOffset],
    ends: Mapping[TopicPartition, int],
) -> TopicGroup | None:
    """None: the group does not read the topic."""
    readers = {place: one for place, one in group.readers.items() if place.topic == topic}
    committed = {
        place: one.offset
        for place, one in offsets.items()
        if place.topic == topic and one.offset >= 0
    }
    if not readers and not committed:
        return None
    partitions = []
    for place in sorted({*readers, *committed}):
        offset, end = committed.get(place), ends.get(place)
        reader = readers.get(place)
        partitions.append(
            PartitionReading(
                place.partition,
                offset,
                end,
                None if offset is None or end is None else max(0, end - offset),
                None if reader is None else reader.member,
            )
        )
    return TopicGroup(
        group.group,
        group.type,
        group.state,
        group.assignor,
        len({one.member for one in readers.values()}),
        tuple(partitions),
    )
