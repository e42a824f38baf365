"""The consumer: reads records from partitions that it or its group has assigned.

async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
    consumer.subscribe(["greetings"])
    async for record in consumer:
        print(record.partition, record.offset, record.value)
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from lograft.client.arguments import (
    as_iterable,
    check_index,
    check_topic_name,
    lookup_key_of,
    offset_of,
    offsets_of,
    partition_of,
)
from lograft.client.async_resource import AsyncResource
from lograft.client.consuming.engine import Engine
from lograft.client.consuming.fetch_collector import Polled
from lograft.client.consuming.immediate_result import ImmediateResult
from lograft.client.consuming.key_lookup import find_newest_record, partition_of_key
from lograft.client.consuming.membership import TopicSelection
from lograft.client.consuming.rebalance_listener import RebalanceListener
from lograft.client.consuming.reset_policy import EARLIEST, LATEST, ResetKind, ResetPolicy
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.subscription import Position
from lograft.client.consuming.topic_info import fetch_topics, topic_info_of
from lograft.client.errors import Closed, TimedOut, WrongUse
from lograft.client.metering.names import ClientMetrics
from lograft.client.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicInfo,
    TopicPartition,
)
from lograft.model.seams import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from lograft.client.keywords import ConsumerKeywords

CLOSE_TIMEOUT_MS: Final = 30_000


class Consumer(AsyncResource):
    """Reads records. Settings are Kafka's, in a mapping with dotted names or as keyword arguments;
    `runtime` is for simulations. A consumer belongs to the event loop in which it was opened, and
    only one task at a time may wait for records.

    Rebalances, and automatic commits of positions (enable.auto.commit), happen only while the
    application waits for records: the records returned before count as processed then.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as reader:
            reader.assign([TopicPartition("greetings", 0)])
            reader.seek_to_beginning()
            async for record in reader:
                print(record.offset, len(record.value))
                break
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        runtime: Runtime | None = None,
        **keywords: "Unpack[ConsumerKeywords]",
    ) -> None:
        self.settings = ConsumerSettings.read(settings or {}, **keywords)
        self._runtime = runtime
        self._parts: Engine | None = None

    # ── start and close ──────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Opens the consumer. Sends no requests yet, so it does not detect unavailable brokers."""
        if self._parts is not None:
            raise WrongUse("the consumer has been started already")
        self._parts = Engine(self.settings, self._runtime)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commits the positions (with enable.auto.commit), leaves the group and closes."""
        if self._parts is not None and not self._parts.core.is_closed:
            await self._parts.close(timeout_ms)

    # ── subscription and assignment ──────────────────────────────────────────────────────────

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        mode: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribes to these topics as a member of the group. Replaces the previous subscription.

        `mode`, which only Lograft supports, limits the groups that may read the topics: "ptp",
        point to point, one group (group.id, or the group that reads the topics if it is not set);
        "psb", publish and subscribe, any number of groups. The first subscription with a mode sets
        it.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as reader:
            reader.subscribe(["greetings"])
            await reader.poll(timeout_ms=1_000)
        """
        names = frozenset(map(check_topic_name, as_iterable(topics)))
        if not names:
            raise WrongUse("no topics to subscribe to: to stop reading, await unsubscribe()")
        self._engine().subscribe(TopicSelection(names), listener, mode)

    def subscribe_pattern(self, pattern: str, *, listener: RebalanceListener | None = None) -> None:
        """Subscribes to all topics, including future ones, whose whole name matches. With
        group.protocol=consumer the coordinator matches them (RE2), otherwise this client (`re`)."""
        if not self.settings.uses_consumer_protocol:
            try:
                re.compile(pattern)
            except re.error as error:
                raise WrongUse(f"{pattern!r} is not a valid regular expression: {error}") from None
        self._engine().subscribe(TopicSelection(pattern=pattern), listener, None)

    async def unsubscribe(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commits (with enable.auto.commit), leaves the group and drops the assignment."""
        await self._engine().unsubscribe("the consumer unsubscribed", timeout_ms)

    def subscription(self) -> set[str]:
        """Returns the topics that this consumer has subscribed to by name."""
        return set(self._engine().selection.topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions, without group management."""
        self._engine().assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that are assigned now."""
        return set(self._engine().subscription.partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until they are resumed. Keeps fetched records."""
        for partition in partitions:
            self._engine().subscription.state(partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Returns records of these partitions again."""
        engine = self._engine()
        for partition in partitions:
            engine.subscription.state(partition).is_paused = False
        engine.fetcher.wake()
        engine.notifier.notify()

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused."""
        return {state.partition for state in self._engine().subscription if state.is_paused}

    def group_metadata(self) -> GroupMetadata:
        """Returns the identity of this consumer in its group, for `Producer.send_offsets`."""
        engine = self._engine()
        if engine.group_id is None:
            raise WrongUse("the consumer has no group: set group.id")
        identity = engine.commit_identity()
        return GroupMetadata(
            engine.group_id, identity.epoch, identity.member_id, self.settings.group_instance_id
        )

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Triggers a rebalance with the next call that waits for records, for assignors that use
        more than topics and members. Only with the classic protocol.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as reader:
            reader.subscribe(["greetings"])
            reader.enforce_rebalance("moved to another rack")
        """
        membership = self._engine().membership
        if membership is None:
            raise WrongUse("the consumer is not in a group: call subscribe() first")
        membership.rejoin(reason or "the application requested a rebalance")

    # ── records ──────────────────────────────────────────────────────────────────────────────

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> Polled:
        """Returns the next records by partition, at most max.poll.records. Waits for the first, and
        returns an empty mapping after the timeout.

        for partition, records in (await consumer.poll(timeout_ms=100)).items():
            print(partition, [record.value for record in records])
        """
        engine = self._engine()
        count = max_records or self.settings.max_poll_records
        polled = await engine.wait_for(lambda: engine.collector.collect(count) or None, timeout_ms)
        if polled and engine.interceptors:
            polled = engine.interceptors.on_consume(polled)
        return polled or {}

    async def fetch_arrow(
        self, timeout_ms: int | None = None, *, with_headers: bool = False
    ) -> "pa.Table":
        """Returns all fetched records as a table, without a Python object for each. Waits for the
        first, and returns an empty table after the timeout. Keys and values are bytes:
        deserializers and interceptors are not called.

        table = await consumer.fetch_arrow(timeout_ms=100)
        print(table.column("value").to_pylist())
        """
        from lograft.client.columns.decoder import table_of

        engine = self._engine()

        def take() -> "list[pa.RecordBatch] | None":
            return engine.collector.collect_arrow(with_headers=with_headers) or None

        batches = await engine.wait_for(take, timeout_ms)
        return table_of(batches or [], with_headers=with_headers)

    def __aiter__(self) -> "Consumer":
        return self

    def __anext__(self) -> Awaitable[ConsumerRecord]:
        parts = self._parts
        record = None if parts is None else parts.collector.next_record()
        return self._next() if record is None else ImmediateResult(record)

    async def _next(self) -> ConsumerRecord:
        """Returns the next record, and ends the loop when the consumer is closed."""
        try:
            while True:
                engine = self._engine()
                if engine.interceptors:
                    for records in (await self.poll(max_records=1)).values():
                        return records[0]
                    continue
                await engine.wait_for(self._start_run, None)
                record = engine.collector.next_record()
                if record is not None:
                    return record
        except Closed:
            raise StopAsyncIteration from None

    def _start_run(self) -> bool | None:
        return self._engine().collector.start_run(self.settings.max_poll_records) or None

    # ── positions ────────────────────────────────────────────────────────────────────────────

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Sets the position of a partition. Drops records that were fetched before.

        consumer.seek(TopicPartition("topic", 0), 0)
        """
        state = self._engine().subscription.state(partition)
        target = offset_of(offset)
        state.seek(Position(target.offset, target.leader_epoch))
        self._on_seek()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Seeks to the first offset of these partitions, or of all assigned ones. The offset is
        looked up when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Seeks to the end offset of these partitions, or of all assigned ones. The offset is
        looked up when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.LATEST))

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """Returns the offset of the next record to return to the application."""
        state = self._engine().subscription.state(partition)
        deadline_ms = self._deadline(timeout_ms)
        engine = self._engine()
        while not state.has_position:
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if engine.core.now_ms() >= deadline_ms:
                raise TimedOut(
                    f"the position of {state.partition} was not determined within the timeout"
                )
            await engine.positions.wait_for_round(deadline_ms)
        return state.position.offset

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._offsets_at(EARLIEST, partitions, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset after the last readable record of each partition.

        print(await consumer.end_offsets([TopicPartition("greetings", 0)]))
        """
        return await self._offsets_at(LATEST, partitions, timeout_ms)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the offset of the first record at or after each time, or None if there is none.

        partition = TopicPartition("greetings", 0)
        print((await consumer.offsets_for_times({partition: 1_700_000_000_000}))[partition])
        """
        lookup = self._engine().lookup
        for partition, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise WrongUse(f"{partition}: the timestamp {timestamp} is negative")
        requested = {
            partition_of(partition): timestamp for partition, timestamp in timestamps_ms.items()
        }
        found = await lookup.look_up(requested, self._deadline(timeout_ms))
        return {
            partition: OffsetAndTimestamp(offset.offset, offset.timestamp_ms, offset.leader_epoch)
            if offset.offset >= 0
            else None
            for partition, offset in found.items()
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the lag of the position behind the end offset of the last fetch response. None if
        either is unknown."""
        state = self._engine().subscription.state(partition)
        return state.lag(is_read_committed=self.settings.is_read_committed)

    def preferred_replica(self, partition: TopicPartition) -> int | None:
        """Returns the follower from which this partition is fetched because it is in the same rack
        (client.rack), or None if it is fetched from the leader."""
        replica = self._engine().subscription.state(partition).preferred_replica
        return None if replica < 0 else replica

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits these offsets, or the positions of all assigned partitions. Raises CommitFailed
        if the consumer is no longer a member of the group.

        await consumer.commit({TopicPartition("topic", 0): 0})
        print(await consumer.committed([TopicPartition("topic", 0)]))
        """
        engine = self._engine()
        positions = engine.consumed_offsets() if offsets is None else offsets_of(offsets)
        with engine.poll_metrics.committing.measure():
            await engine.commit(positions, self._timeout(timeout_ms))

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> "asyncio.Future[None]":
        """Like `commit`, without waiting. Commits keep their order. An error that is not retrieved
        from the future is logged."""
        engine = self._engine()
        return engine.commit_nowait(
            engine.consumed_offsets() if offsets is None else offsets_of(offsets)
        )

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of the group; None for partitions without one."""
        engine = self._engine()
        requested = [partition_of(partition) for partition in as_iterable(partitions)]
        with engine.poll_metrics.reading_committed.measure():
            found = await engine.committed_offsets.fetch(requested, self._timeout(timeout_ms))
        return {partition: found.get(partition) for partition in requested}

    # ── by key ───────────────────────────────────────────────────────────────────────────────

    async def get(
        self, topic: str, key: bytes | str, *, partition: int | None = None
    ) -> ConsumerRecord | None:
        """Returns the latest record of a key, from the partition that the hash of the key selects.
        A record whose value is None is a tombstone; None means that there is no record. Reads
        backwards from the end: the whole partition if it does not contain the key. Does not change
        positions. With a group.id, the group must be allowed to read the topic, as for `assign`:
        another group may read it point to point."""
        if partition is not None:
            check_index(partition)
        engine = self._engine()
        name, key_bytes = check_topic_name(topic), lookup_key_of(key)
        topic_partition = (
            await partition_of_key(engine.core, name, key_bytes)
            if partition is None
            else TopicPartition(name, partition)
        )
        await engine.wait_for_access(topic_partition)
        record = await find_newest_record(engine.core, topic_partition, key_bytes)
        return None if record is None else engine.deserializer.deserialize(record)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    async def topics(self) -> dict[str, TopicInfo]:
        """Returns all topics that this client is authorized to describe."""
        return await fetch_topics(self._engine().core)

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> TopicInfo:
        """Returns the partitions of a topic. Waits until its metadata is available.

        print(len((await consumer.partitions_for("topic")).partitions))
        """
        metadata = self._engine().core.metadata
        return topic_info_of(
            await metadata.wait_topic(topic, deadline_ms=self._deadline(timeout_ms))
        )

    def metrics(self) -> ClientMetrics:
        """Returns the values of all metrics, by Kafka's names; see docs/client-metrics.md.

        print(consumer.metrics().value("assigned-partitions"))
        """
        return self._engine().core.metrics.metrics()

    def _describe_open(self) -> str | None:
        engine = getattr(self, "_parts", None)
        if engine is None or engine.core.is_closed:
            return None
        group_id = engine.group_id
        return "consumer" if group_id is None else f"consumer of group {group_id!r}"

    # ── internals ────────────────────────────────────────────────────────────────────────────

    def _engine(self) -> Engine:
        if self._parts is None:
            raise WrongUse("the consumer is not open: use `async with`, or await start()")
        self._parts.core.check_open()
        return self._parts

    def _timeout(self, timeout_ms: int | None) -> int:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _deadline(self, timeout_ms: int | None) -> int:
        return self._engine().core.now_ms() + self._timeout(timeout_ms)

    def _reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        subscription = self._engine().subscription
        states = [subscription.state(partition) for partition in partitions] or list(subscription)
        for state in states:
            state.request_reset(policy)
        self._on_seek()

    def _on_seek(self) -> None:
        self._engine().wake()
        self._engine().notifier.notify()

    async def _offsets_at(
        self, timestamp: int, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        requested = dict.fromkeys(map(partition_of, as_iterable(partitions)), timestamp)
        found = await self._engine().lookup.look_up(requested, self._deadline(timeout_ms))
        return {partition: offset.offset for partition, offset in found.items()}
