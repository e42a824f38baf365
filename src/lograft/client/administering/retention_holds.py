"""Retention holds: which groups keep records beyond their retention, and which records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lograft.client.administering.configs import ConfigEntry, describe_configs, topic_resource
from lograft.client.administering.group_offsets import list_group_offsets
from lograft.client.administering.partitions import EARLIEST, LATEST, list_offsets
from lograft.client.administering.request_driver import RequestDriver
from lograft.client.administering.topic_descriptions import list_topics
from lograft.client.arguments import as_iterable
from lograft.model.retention_holds import HOLD_GROUPS, parse_hold
from lograft.model.types import TopicPartition

_RETENTION: Final = "retention.ms"


@dataclass(frozen=True, slots=True)
class RetentionHold:
    topic: str
    partition: int
    group: str
    #: Records from here on are held.
    offset: int
    #: By the wall clock.
    until_ms: int
    log_start: int
    end_offset: int
    #: Held records that are older than retention.ms; None where that sets no limit.
    records_kept: int | None


async def list_retention_holds(
    driver: RequestDriver, topics: Iterable[str] | None = None, *, now_ms: int
) -> list[RetentionHold]:
    names = (
        [one.name for one in await list_topics(driver)]
        if topics is None
        else list(as_iterable(topics))
    )
    resources = {topic_resource(name): name for name in names}
    settings = {
        resources[resource]: found
        for resource, found in (
            await describe_configs(driver, resources, names=(HOLD_GROUPS, _RETENTION))
        ).items()
    }
    groups = {group for found in settings.values() for group in _allowed(found)}
    holds: list[tuple[TopicPartition, str, int, int]] = []
    for group in sorted(groups):
        for place, told in (await list_group_offsets(driver, group)).items():
            until_ms = parse_hold(told.metadata)
            if group in _allowed(settings.get(place.topic, {})) and (until_ms or 0) > now_ms:
                holds.append((place, group, told.offset, until_ms or 0))
    places = {place for place, *_ in holds}
    starts = await list_offsets(driver, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(driver, dict.fromkeys(places, LATEST))
    oldest_ms = {
        place: now_ms - retention_ms
        for place in places
        if (retention_ms := int(settings[place.topic][_RETENTION].value or -1)) >= 0
    }
    unexpired = await list_offsets(driver, oldest_ms)

    def kept(place: TopicPartition, offset: int) -> int | None:
        if place not in unexpired:
            return None
        first = unexpired[place].offset
        # -1: all are older.
        first = ends[place].offset if first < 0 else first
        return max(0, first - max(offset, starts[place].offset))

    return [
        RetentionHold(
            *place,
            group,
            offset,
            until_ms,
            starts[place].offset,
            ends[place].offset,
            kept(place, offset),
        )
        for place, group, offset, until_ms in sorted(holds)
    ]


def _allowed(settings: Mapping[str, ConfigEntry]) -> list[str]:
    """The groups that may hold a topic's records."""
    found = settings.get(HOLD_GROUPS)
    return [] if found is None or not found.value else found.value.split(",")
