"""How far every group of the cluster is in some topics."""

import asyncio
from dataclasses import dataclass

from lograft.client.admin import LATEST, Admin
from lograft.spark.pipelines.settings import Source


@dataclass(frozen=True, slots=True)
class GroupPosition:
    group: str
    topic: str
    partition: int
    committed: int
    end: int

    @property
    def unread(self) -> int:
        return max(0, self.end - self.committed)


def group_positions(source: Source) -> list[GroupPosition]:
    settings = {"bootstrap.servers": source.bootstrap, **source.kafka}
    return asyncio.run(_positions(settings, frozenset(source.topics)))


async def _positions(settings: dict[str, str], topics: frozenset[str]) -> list[GroupPosition]:
    async with Admin(settings) as admin:
        groups = sorted(one.group for one in await admin.list_groups())
        found = []
        for group in groups:
            offsets = await admin.list_group_offsets(group)
            for where, one in offsets.items():
                if where.topic in topics:
                    found.append((group, where, one.offset))
        ends = await admin.list_offsets(dict.fromkeys({where for _, where, _ in found}, LATEST))
    return [
        GroupPosition(group, *where, offset, ends[where].offset) for group, where, offset in found
    ]
