"""Requests about retention holds, by which groups keep records beyond their retention."""

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
    #: Records from this offset on are held.
    offset: int
    #: Wall-clock time at which the hold expires.
    until_ms: int
    log_start: int
    end_offset: int
    #: The number of held records that are older than retention.ms; None without such a limit.
    records_kept: int | None


async def list_retention_holds(
    driver: RequestDriver, topics: Iterable[str] | None = None, *, now_ms: int
) -> list[RetentionHold]:
    names = (
        [topic.name for topic in await list_topics(driver)]
        if topics is None
        else list(as_iterable(topics))
    )
    resources = {topic_resource(name): name for name in names}
    settings = {
        resources[resource]: configs
        for resource, configs in (
            await describe_configs(driver, resources, names=(HOLD_GROUPS, _RETENTION))
        ).items()
    }
    groups = {group for configs in settings.values() for group in _allowed_groups(configs)}
    holds: list[tuple[TopicPartition, str, int, int]] = []
    for group in sorted(groups):
        for partition, committed in (await list_group_offsets(driver, group)).items():
            until_ms = parse_hold(committed.metadata)
            allowed = _allowed_groups(settings.get(partition.topic, {}))
            if group in allowed and (until_ms or 0) > now_ms:
                holds.append((partition, group, committed.offset, until_ms or 0))
    partitions = {partition for partition, *_ in holds}
    starts = await list_offsets(driver, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(driver, dict.fromkeys(partitions, LATEST))
    oldest_ms = {
        partition: now_ms - retention_ms
        for partition in partitions
        if (retention_ms := int(settings[partition.topic][_RETENTION].value or -1)) >= 0
    }
    unexpired = await list_offsets(driver, oldest_ms)

    def count_kept(partition: TopicPartition, offset: int) -> int | None:
        if partition not in unexpired:
            return None
        first = unexpired[partition].offset
        # -1: all records have expired.
        first = ends[partition].offset if first < 0 else first
        return max(0, first - max(offset, starts[partition].offset))

    return [
        RetentionHold(
            *partition,
            group,
            offset,
            until_ms,
            starts[partition].offset,
            ends[partition].offset,
            count_kept(partition, offset),
        )
        for partition, group, offset, until_ms in sorted(holds)
    ]


def _allowed_groups(configs: Mapping[str, ConfigEntry]) -> list[str]:
    """Returns the groups that may hold records of a topic."""
    entry = configs.get(HOLD_GROUPS)
    return [] if entry is None or not entry.value else entry.value.split(",")
