"""Requests of a query's driver to the brokers, over connections that stay open between requests.

Spark calls its readers from a thread without an event loop, so `Cluster` owns an event loop that
runs only while a request is in progress. Connections tolerate the pauses between requests."""

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lograft.client import ConsumerSettings, OffsetAndMetadata, RangeReader, TimedOut, TopicInfo
from lograft.model.errors import InvalidConfig
from lograft.model.progress_groups import PROGRESS
from lograft.model.retention_holds import HOLD_GROUPS, format_hold
from lograft.model.types import TopicPartition
from lograft.spark.offsets import (
    LATEST,
    AtEnd,
    AtOffsets,
    AtTime,
    AtTimes,
    Offsets,
    Position,
    check_covers,
)
from lograft.spark.options import ReadOptions, Subscription

if TYPE_CHECKING:
    from lograft.client import Consumer

T = TypeVar("T")

REQUEST_TIMEOUT_SECONDS: Final = 60
#: Enough to measure the size of records; a broker always returns at least one whole batch.
_SAMPLE_BYTES: Final = "16384"
_OFFSETS_ADVICE: Final = "list every partition, with -1 for latest and -2 for earliest"


class Cluster:
    """Synchronous client of a query's driver. Owned by a reader, which closes it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._settings = ConsumerSettings.read(options.client)
        self._runner = asyncio.Runner()
        #: Looks up topics and offsets; None until the first request.
        self._reader: RangeReader | None = None
        #: Commits offsets of the progress group; None until the first commit.
        self._committer: Consumer | None = None

    def close(self) -> None:
        if self._committer is not None:
            self._runner.run(self._committer.close())
            self._committer = None
        if self._reader is not None:
            self._runner.run(self._reader.close())
            self._reader = None
        self._runner.close()

    def topics(self) -> dict[str, TopicInfo]:
        """Returns the subscription's topics that currently exist."""
        return self._run(self._topics(self._options.subscription))

    def partitions(self, topics: Mapping[str, TopicInfo]) -> set[TopicPartition]:
        """Returns the subscription's partitions in `topics`."""
        assigned = self._options.subscription.partitions
        if assigned:
            return {
                partition
                for partition in assigned
                if partition.topic in topics
                and partition.partition < len(topics[partition.topic].partitions)
            }
        return {
            TopicPartition(topic.name, index)
            for topic in topics.values()
            for index in range(len(topic.partitions))
        }

    def offsets(self, positions: Mapping[TopicPartition, int]) -> Offsets:
        """Looks up EARLIEST, LATEST or a timestamp in ms per partition. The offset is -1 where no
        record has that timestamp or a later one."""
        return self._run(self._offsets(positions))

    def ends(self, which: int, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, which))

    def resolve(
        self, which: str, position: Position, partitions: set[TopicPartition], *, or_latest: bool
    ) -> Offsets:
        """Returns the offsets that the options starting with `which` refer to. With `or_latest` a
        timestamp after the last record resolves to the log end; without it, it is rejected."""
        match position:
            case AtEnd(end):
                return self.ends(end, partitions)
            case AtOffsets(offsets):
                check_covers(f"{which}Offsets", offsets, partitions, _OFFSETS_ADVICE)
                named = {partition: offset for partition, offset in offsets.items() if offset < 0}
                return {**offsets, **self.offsets(named)}
            case AtTime(timestamp_ms):
                option = f"{which}Timestamp"
                times = dict.fromkeys(partitions, timestamp_ms)
            case AtTimes(timestamps_ms):
                option = f"{which}OffsetsByTimestamp"
                check_covers(option, timestamps_ms, partitions, "list every partition")
                times = dict(timestamps_ms)
        found = self.offsets(times)
        late = sorted(partition for partition, offset in found.items() if offset < 0)
        if late and not or_latest:
            raise InvalidConfig(
                f"{option}: {late[0]} has no record with timestamp {times[late[0]]} or later; set"
                " startingOffsetsByTimestampStrategy to latest to start at the end of the partition"
            )
        return {**found, **self.ends(LATEST, late)}

    def row_bytes(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """Estimates the record size per partition from the first batch at its start offset."""
        return self._run(self._row_bytes(start, end))

    def commit_progress(
        self, group: str, offsets: Offsets, *, held_until_ms: int | None = None
    ) -> None:
        """Commits the query's offsets and the time until which unread records are held."""
        metadata = PROGRESS
        if held_until_ms is not None:
            metadata += f" {format_hold(held_until_ms)}"
        commits = {
            partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()
        }
        self._run(self._commit(group, commits))

    def check_hold_allowed(self, group: str, topics: Collection[str]) -> None:
        """Raises InvalidConfig if the brokers would ignore a hold of this group."""
        self._run(self._check_hold_allowed(group, topics))

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    def _run(self, request: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(self._with_timeout(request))

    async def _with_timeout(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                return await request
        except TimeoutError:
            raise TimedOut(
                f"{','.join(self._settings.bootstrap_servers)}: no response within"
                f" {REQUEST_TIMEOUT_SECONDS} s"
            ) from None

    async def _open_reader(self) -> RangeReader:
        if self._reader is None:
            self._reader = RangeReader(self._options.client)
            await self._reader.start()
        return self._reader

    async def _topics(self, subscription: Subscription) -> dict[str, TopicInfo]:
        reader = await self._open_reader()
        if subscription.pattern is None:
            partitions = subscription.partitions
            return await reader.find_topics(
                {partition.topic for partition in partitions} | set(subscription.topics)
            )
        pattern = re.compile(subscription.pattern)
        return {
            name: topic
            for name, topic in (await reader.find_topics()).items()
            if pattern.fullmatch(name) and not topic.is_internal
        }

    async def _offsets(self, positions: Mapping[TopicPartition, int]) -> Offsets:
        reader = await self._open_reader()
        return await reader.find_offsets(positions)

    async def _check_hold_allowed(self, group: str, topics: Collection[str]) -> None:
        from lograft.client import Admin, topic_resource

        async with Admin(self._options.client) as admin:
            found = await admin.describe_configs(map(topic_resource, topics), names=(HOLD_GROUPS,))
        for resource, settings in found.items():
            setting = settings.get(HOLD_GROUPS)
            if setting is None:
                raise InvalidConfig(
                    "retentionHold: these brokers do not support retention holds, an extension of"
                    " Lograft; remove the option"
                )
            if group not in (setting.value or "").split(","):
                raise InvalidConfig(
                    f"retentionHold: topic {resource.name!r} does not allow group {group!r} to hold"
                    f" its records; allow it with `lograft configs alter --topic {resource.name}"
                    f" --append {HOLD_GROUPS}={group}`"
                )

    async def _commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        if self._committer is None:
            from lograft.client import Consumer

            self._committer = Consumer({**self._options.client, "group.id": group})
            await self._committer.start()
        await self._committer.commit(offsets)

    async def _row_bytes(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        settings = {**self._options.client, "max.partition.fetch.bytes": _SAMPLE_BYTES}
        async with RangeReader(settings) as reader:

            async def sample(partition: TopicPartition) -> tuple[TopicPartition, float]:
                batches = reader.read(*partition, start=start[partition], end=end[partition])
                async for batch in batches:
                    return partition, batch.nbytes / batch.num_rows
                return partition, 0.0

            behind = [
                partition
                for partition in end
                if partition in start and start[partition] < end[partition]
            ]
            return dict(await asyncio.gather(*map(sample, behind)))
