"""What a query's driver asks of the brokers, over connections that it keeps.

Spark calls its readers from a thread without an event loop, so one is kept here and runs while
something is asked. Between two questions nothing moves, which a connection does not mind.
"""

import asyncio
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from lograft.client import ClientError, ConsumerSettings, OffsetAndMetadata, RangeReader, TimedOut
from lograft.client.consuming.offset_lookup import OffsetLookup
from lograft.client.core import ClientCore
from lograft.client.errors import broker_error
from lograft.model.errors import ErrorCode, InvalidConfig
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

PATIENCE_SECONDS: Final = 60
#: Enough to see how large records are; a broker sends a whole batch anyhow.
_SAMPLE_BYTES: Final = "16384"
_OFFSETS_ADVICE: Final = "name every partition, with -1 for latest and -2 for earliest"


class TopicSeen(NamedTuple):
    name: str
    id: UUID
    partitions: int


class Cluster:
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._settings = ConsumerSettings.read(options.client)
        self._runner = asyncio.Runner()
        self._core: ClientCore[ConsumerSettings] | None = None
        #: Commits for the progress group, if there is one.
        self._committer: Consumer | None = None

    def close(self) -> None:
        if self._committer is not None:
            self._runner.run(self._committer.close())
            self._committer = None
        if self._core is not None:
            self._runner.run(self._core.close())
            self._core = None
        self._runner.close()

    def topics(self) -> dict[str, TopicSeen]:
        """Those of the subscription that there are now."""
        return self._run(self._topics(self._options.subscription))

    def partitions(self, topics: Mapping[str, TopicSeen]) -> set[TopicPartition]:
        """Those of the subscription."""
        assigned = self._options.subscription.partitions
        if assigned:
            return {
                one
                for one in assigned
                if one.topic in topics and one.partition < topics[one.topic].partitions
            }
        return {
            TopicPartition(topic.name, index)
            for topic in topics.values()
            for index in range(topic.partitions)
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Of EARLIEST, LATEST or a time in ms. -1: no record is as young as that time."""
        return self._run(self._offsets(wanted))

    def ends(self, which: int, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.offsets(dict.fromkeys(partitions, which))

    def resolve(
        self, which: str, position: Position, partitions: set[TopicPartition], *, or_latest: bool
    ) -> Offsets:
        """The offsets that an option means, one of those that begin with `which`. `or_latest`: a
        time after the last record is the end of the partition; else it is refused."""
        match position:
            case AtEnd(end):
                return self.ends(end, partitions)
            case AtOffsets(offsets):
                check_covers(f"{which}Offsets", offsets, partitions, _OFFSETS_ADVICE)
                named = {one: offset for one, offset in offsets.items() if offset < 0}
                return {**offsets, **self.offsets(named)}
            case AtTime(timestamp_ms):
                option = f"{which}Timestamp"
                times = dict.fromkeys(partitions, timestamp_ms)
            case AtTimes(timestamps_ms):
                option = f"{which}OffsetsByTimestamp"
                check_covers(option, timestamps_ms, partitions, "name every partition")
                times = dict(timestamps_ms)
        found = self.offsets(times)
        late = sorted(one for one, offset in found.items() if offset < 0)
        if late and not or_latest:
            raise InvalidConfig(
                f"{option}: {late[0]} has no record as young as {times[late[0]]} ms; set"
                " startingOffsetsByTimestampStrategy to latest to begin with what is to come"
            )
        return {**found, **self.ends(LATEST, late)}

    def row_bytes(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """About how large records are where reading is to begin: the first batch of each partition
        says it."""
        return self._run(self._row_bytes(start, end))

    def tell_progress(
        self, group: str, offsets: Offsets, *, held_until_ms: int | None = None
    ) -> None:
        """Commits how far the query is, and until when what follows is held."""
        metadata = "" if held_until_ms is None else format_hold(held_until_ms)
        done = {one: OffsetAndMetadata(offset, metadata) for one, offset in offsets.items()}
        self._run(self._commit(group, done))

    def check_may_hold(self, group: str, topics: Collection[str]) -> None:
        """A hold that no broker minds would be a promise that nobody keeps: refused."""
        self._run(self._check_may_hold(group, topics))

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    def _run(self, question: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(self._patient(question))

    async def _patient(self, question: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await question
        except TimeoutError:
            raise TimedOut(
                f"{','.join(self._settings.bootstrap_servers)}: no answer within"
                f" {PATIENCE_SECONDS} s"
            ) from None

    def _opened(self) -> ClientCore[ConsumerSettings]:
        if self._core is None:
            self._core = ClientCore(self._settings)
        return self._core

    async def _topics(self, subscription: Subscription) -> dict[str, TopicSeen]:
        metadata = self._opened().metadata
        names = {one.topic for one in subscription.partitions} | set(subscription.topics)
        if subscription.pattern is None:
            metadata.set_wanted(names)
        else:
            metadata.want_all()
        await self._refreshed()
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            names = {
                name
                for name, topic in metadata.cache.topics.items()
                if pattern.fullmatch(name) and not topic.is_internal
            }
        found = {}
        for name in sorted(names):
            topic = metadata.cache.topic(name)
            code = metadata.cache.error_of(name)
            if topic is not None:
                found[name] = TopicSeen(name, topic.id, len(topic.partitions))
            elif code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise broker_error(code, f"topic {name!r}")
        return found

    async def _refreshed(self) -> None:
        """Asks until the brokers have answered; what will not pass by itself is raised."""
        core = self._opened()
        while True:
            try:
                return await core.metadata.refresh()
            except ClientError as error:
                if not error.is_retriable:
                    raise
                await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        core = self._opened()
        missing = [one for one in wanted if core.metadata.cache.partition(*one) is None]
        if missing:
            raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(missing[0]))
        deadline_ms = core.now_ms() + PATIENCE_SECONDS * 1000
        found = await OffsetLookup(core).look_up(wanted, deadline_ms)
        return {one: answer.offset for one, answer in found.items()}

    async def _check_may_hold(self, group: str, topics: Collection[str]) -> None:
        from lograft.client import Admin, topic_resource

        async with Admin(self._options.client) as admin:
            found = await admin.describe_configs(map(topic_resource, topics), names=(HOLD_GROUPS,))
        for resource, settings in found.items():
            setting = settings.get(HOLD_GROUPS)
            if setting is None:
                raise InvalidConfig(
                    "retentionHold: these brokers know no retention holds, which are Lograft's"
                )
            if group not in (setting.value or "").split(","):
                raise InvalidConfig(
                    f"retentionHold: topic {resource.name!r} does not let group {group!r} hold its"
                    f" records; `lograft configs alter --topic {resource.name} --append"
                    f" {HOLD_GROUPS}={group}` does"
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

            async def sample(where: TopicPartition) -> tuple[TopicPartition, float]:
                batches = reader.read(*where, start=start[where], end=end[where])
                async for batch in batches:
                    return where, batch.nbytes / batch.num_rows
                return where, 0.0

            behind = [one for one in end if one in start and start[one] < end[one]]
            return dict(await asyncio.gather(*map(sample, behind)))
