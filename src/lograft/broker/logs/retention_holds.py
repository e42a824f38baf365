"""Retention holds of groups on the partitions that this broker leads.

A hold is part of the committed offsets of its group (`model/retention_holds.py`), so the broker
requests them from the group's coordinator, once for each group and round of retention. Without a
response all records count as held: the limits of the topic still apply, and the next round requests
the offsets again.

Only leaders do so. Followers adopt the log start of their leader, so that no replica deletes what
another one keeps.
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

#: Versions with several groups in one request and topic names.
VERSIONS: Final = Versions(8, 9)
LANE: Final = "holds"
TIMEOUT_MS: Final = 5_000
#: A hold on every record.
EVERYTHING: Final = Offset(0)

Held: TypeAlias = Mapping[TopicPartition, Offset]


class RetentionHolds:
    def __init__(
        self,
        link: BrokerLink,
        *,
        has_groups: Callable[[], bool],
        coordinator_of: Callable[[str], NodeId | None],
    ) -> None:
        """`coordinator_of` returns the broker that coordinates a group; None if there is none."""
        self._link = link
        self._has_groups = has_groups
        self._coordinator_of = coordinator_of

    async def find_held(
        self, partitions: Iterable[Partition], now_ms: int
    ) -> dict[Partition, Offset]:
        """Returns the partitions with held records, and the offset from which on they are held.
        Topics without hold groups have no cost."""
        found: dict[Partition, Offset] = {}
        led: list[Partition] = []
        for partition in partitions:
            if partition.config.retention_hold_groups:
                if partition.leads:
                    led.append(partition)
                else:
                    found[partition] = EVERYTHING
        by_group: dict[str, list[TopicPartition]] = {}
        for partition in led:
            for group in partition.config.retention_hold_groups:
                by_group.setdefault(group, []).append(partition.topic_partition)
        if by_group and self._has_groups():
            lowest: dict[TopicPartition, Offset] = {}
            requests = (
                self._request_holds(group, names, now_ms) for group, names in by_group.items()
            )
            for held in await asyncio.gather(*requests):
                for name, offset in held.items():
                    lowest[name] = min(offset, lowest.get(name, offset))
            found |= {
                partition: lowest[name]
                for partition in led
                if (name := partition.topic_partition) in lowest
            }
        return found

    async def _request_holds(
        self, group: str, partitions: Sequence[TopicPartition], now_ms: int
    ) -> Held:
        unknown = dict.fromkeys(partitions, EVERYTHING)
        coordinator = self._coordinator_of(group)
        if coordinator is None:
            return unknown
        try:
            response = await self._link.request(
                coordinator,
                OffsetFetchRequest(groups=[_build_request(group, partitions)]),
                VERSIONS,
                OffsetFetchResponse,
                timeout_ms=TIMEOUT_MS,
                lane=LANE,
            )
        except (PeerUnreachable, PeerLost) as error:
            LOGGER.info("could not fetch the retention holds of group %s: %s", group, error)
            return unknown
        (result,) = response.groups
        if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if result.error_code:
            name = ErrorCode(result.error_code).name
            LOGGER.info("could not fetch the retention holds of group %s: %s", group, name)
            return unknown
        return active_holds(result, now_ms)


def active_holds(group: OffsetFetchResponseGroup, now_ms: int) -> Held:
    """Returns the holds that have not expired. A partition with an error counts as held."""
    found: dict[TopicPartition, Offset] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                found[name] = EVERYTHING
            elif partition.committed_offset >= 0:
                until_ms = parse_hold(partition.metadata)
                if until_ms is not None and until_ms > now_ms:
                    found[name] = Offset(partition.committed_offset)
    return found


def _build_request(group: str, partitions: Sequence[TopicPartition]) -> OffsetFetchRequestGroup:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return OffsetFetchRequestGroup(
        group_id=group,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )
