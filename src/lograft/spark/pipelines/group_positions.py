"""Reads the committed offsets of every group of the cluster for some topics."""

import asyncio
from dataclasses import dataclass
from itertools import chain

from lograft.client import EARLIEST, LATEST, Admin
from lograft.model.types import TopicPartition
from lograft.spark.pipelines.settings import Source
from lograft.spark.staging import SLOT_PREFIX


@dataclass(frozen=True, slots=True)
class GroupPosition:
    group: str
    topic: str
    partition: int
    #: None if the group has committed offsets only for other partitions of the topic.
    committed: int | None
    #: Log start and log end offset.
    start: int
    end: int

    @property
    def next(self) -> int:
        """The first unread offset that still exists."""
        return self.start if self.committed is None else max(self.start, self.committed)

    @property
    def lag(self) -> int:
        return max(0, self.end - self.next)

    @property
    def lost_count(self) -> int:
        """Number of offsets that were deleted before the group read them."""
        return 0 if self.committed is None else max(0, self.start - self.committed)


def group_positions(source: Source) -> list[GroupPosition]:
    settings = {"bootstrap.servers": source.bootstrap, **source.kafka}
    return asyncio.run(_positions(settings, source.topics))


async def _positions(settings: dict[str, str], topics: tuple[str, ...]) -> list[GroupPosition]:
    async with Admin(settings) as admin:
        described = await admin.describe_topics(topics)
        partitions_of = {
            name: [TopicPartition(name, partition.index) for partition in topic.partitions]
            for name, topic in described.items()
        }
        partitions = list(chain.from_iterable(partitions_of.values()))
        starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
        found = []
        for group in sorted(listing.group for listing in await admin.list_groups()):
            # The groups of Lograft's sink commit batch IDs, not offsets.
            if group.startswith(SLOT_PREFIX):
                continue
            committed = await admin.list_group_offsets(group)
            topics_read = {partition.topic for partition in committed} & partitions_of.keys()
            for name in sorted(topics_read):
                for partition in partitions_of[name]:
                    offset = committed[partition].offset if partition in committed else None
                    found.append((group, partition, offset))
    return [
        GroupPosition(group, *partition, offset, starts[partition].offset, ends[partition].offset)
        for group, partition, offset in found
    ]
