"""From where on groups hold the records of partitions that this broker leads.

A hold lies in the committed offsets of its group (`model/retention_holds.py`), so the group's
coordinator is asked, once for each group and round of retention. While it does not answer,
everything counts as held: the bounds of the topic still hold, and the next round asks again.

Only leaders ask. What followers delete is decided by their leaders, whose log start they follow,
so that no replica loses what another one keeps.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode
from lograft.model.retention_holds import parse_hold
from lograft.model.types import NodeId, Offset, TopicPartition
from lograft.wire.apis import Versions
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

LOGGER: Final = logging.getLogger(__name__)

#: Several groups in one request, topics by name.
VERSIONS: Final = Versions(8, 9)
LANE: Final = "holds"
TIMEOUT_MS: Final = 5_000
#: As a hold: every record.
EVERYTHING: Final = Offset(0)

Held: TypeAlias = Mapping[TopicPartition, Offset]


class RetentionHolds:
    def __init__(
        self,
        link: BrokerLink,
        *,
        there_are_groups: Callable[[], bool],
        coordinator_of: Callable[[str], NodeId | None],
    ) -> None:
        """`coordinator_of` gives the broker that coordinates a group; None if nobody does."""
        self._link = link
        self._there_are_groups = there_are_groups
        self._coordinator_of = coordinator_of

    async def held(self, partitions: Iterable[Partition], now_ms: int) -> dict[Partition, Offset]:
        """Of these partitions, those with records that retention may not simply take, and from
        which offset on. Costs nothing for topics that no group may hold."""
        found: dict[Partition, Offset] = {}
        led: list[Partition] = []
        for one in partitions:
            if one.config.retention_hold_groups:
                if one.leads:
                    led.append(one)
                else:
                    found[one] = EVERYTHING
        by_group: dict[str, list[TopicPartition]] = {}
        for one in led:
            for group in one.config.retention_hold_groups:
                by_group.setdefault(group, []).append(one.topic_partition)
        if by_group and self._there_are_groups():
            lowest: dict[TopicPartition, Offset] = {}
            asked = (self._ask(group, places, now_ms) for group, places in by_group.items())
            for answer in await asyncio.gather(*asked):
                for place, offset in answer.items():
                    lowest[place] = min(offset, lowest.get(place, offset))
            found |= {one: lowest[at] for one in led if (at := one.topic_partition) in lowest}
        return found

    async def _ask(self, group: str, places: Sequence[TopicPartition], now_ms: int) -> Held:
        unknown = dict.fromkeys(places, EVERYTHING)
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            return unknown
        try:
            answer = await self._link.request(
                coordinator,
                OffsetFetchRequest(groups=[_asked(group, places)]),
                VERSIONS,
                OffsetFetchResponse,
                timeout_ms=TIMEOUT_MS,
                lane=LANE,
            )
        except (PeerUnreachable, PeerLost) as error:
            LOGGER.info("what group %s holds is not known now: %s", group, error)
            return unknown
        (told,) = answer.groups
        if told.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if told.error_code:
            name = ErrorCode(told.error_code).name
            LOGGER.info("what group %s holds is not known now: %s", group, name)
            return unknown
        return active_holds(told, now_ms)


def active_holds(told: OffsetFetchResponseGroup, now_ms: int) -> Held:
    """A partition that cannot be told is held as a whole."""
    found: dict[TopicPartition, Offset] = {}
    for topic in told.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                found[place] = EVERYTHING
            elif one.committed_offset >= 0:
                until_ms = parse_hold(one.metadata)
                if until_ms is not None and until_ms > now_ms:
                    found[place] = Offset(one.committed_offset)
    return found


def _asked(group: str, places: Sequence[TopicPartition]) -> OffsetFetchRequestGroup:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )
