"""How far every group of the cluster is in some topics."""

import asyncio
from dataclasses import dataclass

from lograft.client import EARLIEST, LATEST, Admin
from lograft.model.types import TopicPartition
from lograft.spark.pipelines.settings import Source
from lograft.spark.staging import SLOT_PREFIX


@dataclass(frozen=True, slots=True)
class GroupPosition:
    group: str
    topic: str
    partition: int
    #: None: nothing of this partition, though of others of the topic.
    committed: int | None
    #: Of the log.
    start: int
    end: int

    @property
    def next(self) -> int:
        """The first offset that the group can read and has not."""
        return self.start if self.committed is None else max(self.start, self.committed)

    @property
    def unread(self) -> int:
        return max(0, self.end - self.next)

    @property
    def lost(self) -> int:
        """Offsets that were deleted before the group had read them."""
        return 0 if self.committed is None else max(0, self.start - self.committed)


def group_positions(source: Source) -> list[GroupPosition]:
    settings = {"bootstrap.servers": source.bootstrap, **source.kafka}
    return asyncio.run(_positions(settings, source.topics))


async def _positions(settings: dict[str, str], topics: tuple[str, ...]) -> list[GroupPosition]:
    async with Admin(settings) as admin:
        described = await admin.describe_topics(topics)
        there = {
            name: [TopicPartition(name, one.index) for one in topic.partitions]
            for name, topic in described.items()
        }
        everywhere = [one for partitions in there.values() for one in partitions]
        starts = await admin.list_offsets(dict.fromkeys(everywhere, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(everywhere, LATEST))
        found = []
        for group in sorted(one.group for one in await admin.list_groups()):
            # What those of our sink commit are numbers of batches, not offsets.
            if group.startswith(SLOT_PREFIX):
                continue
            committed = await admin.list_group_offsets(group)
            for name in sorted({where.topic for where in committed} & there.keys()):
                for where in there[name]:
                    offset = committed[where].offset if where in committed else None
                    found.append((group, where, offset))
    return [
        GroupPosition(group, *where, offset, starts[where].offset, ends[where].offset)
        for group, where, offset in found
    ]
