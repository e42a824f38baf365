"""The consumer: records out of the partitions that it has chosen or that its group gives it.

async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
    consumer.subscribe(["greetings"])
    async for record in consumer:
        print(record.partition, record.offset, record.value)
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Iterator, Mapping
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
from lograft.client.consuming.key_lookup import newest, partition_of_key
from lograft.client.consuming.membership import Interest
from lograft.client.consuming.rebalance_listener import RebalanceListener
from lograft.client.consuming.reset_policy import EARLIEST, LATEST, ResetKind, ResetPolicy
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.subscription import Position
from lograft.client.consuming.topic_info import all_topics, topic_info
from lograft.client.errors import Closed, TimedOut, WrongUse
from lograft.client.types import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicInfo,
    TopicPartition,
)
from lograft.model.metrics import Gauge, Sample, values_of
from lograft.model.seams import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from lograft.client.keywords import ConsumerKeywords

CLOSE_TIMEOUT_MS: Final = 30_000

ASSIGNED: Final = Gauge("lograft_client_partitions_assigned", "Partitions of the consumer.")


class Consumer(AsyncResource):
    """Belongs to the event loop in which it was opened; one task at a time may wait in it for
    records. Settings are Kafka's, by their dotted names in a mapping or as keywords; `runtime` is
    for simulations.

    Partitions come and go, and positions are committed by themselves (enable.auto.commit), only
    while the program waits for records: what it was given before counts as done then.

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

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Opens the consumer. Nobody is asked yet: brokers that are not there show when something
        is wanted of them."""
        if self._parts is not None:
            raise WrongUse("the consumer has been started already")
        self._parts = Engine(self.settings, self._runtime)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commits what was handed out (with enable.auto.commit), leaves the group, and ends."""
        if self._parts is not None and not self._parts.core.is_closed:
            await self._parts.close(timeout_ms)

    # ── which partitions ─────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        mode: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics, together with the other members of the group; instead of what it has
        subscribed to before.

        `mode`, which only Lograft knows, is how the topics are read: "ptp", point to point, by one
        group (group.id, or without one whichever group the topics have); "psb", publish and
        subscribe, by any number of groups. The first who subscribes with a mode sets it.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as reader:
            reader.subscribe(["greetings"])
            await reader.poll(timeout_ms=1_000)
        """
        wanted = frozenset(map(check_topic_name, as_iterable(topics)))
        if not wanted:
            raise WrongUse("there is no topic to subscribe to: await unsubscribe() to stop reading")
        self._engine().subscribe(Interest(wanted), listener, mode)

    def subscribe_pattern(self, pattern: str, *, listener: RebalanceListener | None = None) -> None:
        """Reads every topic whose whole name matches, also those that come later. With
        group.protocol=consumer the coordinator matches (RE2), else this client (Python's `re`)."""
        if not self.settings.uses_consumer_protocol:
            try:
                re.compile(pattern)
            except re.error as error:
                raise WrongUse(f"{pattern!r} is not a pattern: {error}") from None
        self._engine().subscribe(Interest(pattern=pattern), listener, None)

    async def unsubscribe(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Commits (with enable.auto.commit), leaves the group, and has no partitions any more."""
        await self._engine().unsubscribe("the consumer has unsubscribed", timeout_ms)

    def subscription(self) -> set[str]:
        """The topics that this consumer has subscribed to by name."""
        return set(self._engine().interest.topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these, without a group's help."""
        self._engine().assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return set(self._engine().subscription.partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Gives nothing of these until they are resumed; what was fetched of them is kept."""
        for one in partitions:
            self._engine().subscription.state(one).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Gives records of these again."""
        engine = self._engine()
        for one in partitions:
            engine.subscription.state(one).is_paused = False
        engine.fetcher.wake()
        engine.notifier.notify()

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused now."""
        return {state.partition for state in self._engine().subscription if state.is_paused}

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group: for `Producer.send_offsets`."""
        engine = self._engine()
        if engine.group_id is None:
            raise WrongUse("without group.id there is no group")
        who = engine.identity()
        return GroupMetadata(
            engine.group_id, who.epoch, who.member_id, self.settings.group_instance_id
        )

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Makes the group share out its partitions again, from the next call for records on: for
        assignments that depend on more than topics and members. Of the classic protocol only.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as reader:
            reader.subscribe(["greetings"])
            reader.enforce_rebalance("this machine has moved to another rack")
        """
        membership = self._engine().membership
        if membership is None:
            raise WrongUse("this consumer is in no group: subscribe() first")
        membership.rejoin(reason or "the program asked for a rebalance")

    # ── records ──────────────────────────────────────────────────────────────────────────────

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> Polled:
        """The next records, by partition, at most max.poll.records; waits for the first of them,
        and gives nothing when the time is up.

        for partition, records in (await consumer.poll(timeout_ms=100)).items():
            print(partition, [record.value for record in records])
        """
        engine = self._engine()
        count = max_records or self.settings.max_poll_records
        polled = await engine.wait_for(lambda: engine.collector.take(count) or None, timeout_ms)
        if polled and engine.interceptors:
            polled = engine.interceptors.on_consume(polled)
        return polled or {}

    async def fetch_arrow(
        self, timeout_ms: int | None = None, *, with_headers: bool = False
    ) -> "pa.Table":
        """All records that lie ready, as columns, without a Python object for each; waits for the
        first of them, and gives an empty table when the time is up. Keys and values are bytes:
        deserializers and interceptors see nothing of it.

        table = await consumer.fetch_arrow(timeout_ms=100)
        print(table.column("value").to_pylist())
        """
        from lograft.client.columns.reading import joined

        engine = self._engine()

        def take() -> "list[pa.RecordBatch] | None":
            return engine.collector.take_columns(with_headers=with_headers) or None

        batches = await engine.wait_for(take, timeout_ms)
        return joined(batches or [], with_headers=with_headers)

    def __aiter__(self) -> "Consumer":
        return self

    def __anext__(self) -> Awaitable[ConsumerRecord]:
        parts = self._parts
        record = None if parts is None else parts.collector.next_ready()
        return self._next() if record is None else ImmediateResult(record)

    async def _next(self) -> ConsumerRecord:
        """Ends the loop when the consumer is closed."""
        try:
            while True:
                engine = self._engine()
                if engine.interceptors:
                    for records in (await self.poll(max_records=1)).values():
                        return records[0]
                    continue
                await engine.wait_for(self._begin_run, None)
                record = engine.collector.next_ready()
                if record is not None:
                    return record
        except Closed:
            raise StopAsyncIteration from None

    def _begin_run(self) -> bool | None:
        return self._engine().collector.begin_run(self.settings.max_poll_records) or None

    # ── positions ────────────────────────────────────────────────────────────────────────────

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on from there; what was fetched before is dropped.

        consumer.seek(TopicPartition("topic", 0), 0)
        """
        state = self._engine().subscription.state(partition)
        place = offset_of(offset)
        state.seek(Position(place.offset, place.leader_epoch))
        self._sought()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """All assigned ones where none is named. Where that is, is asked when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.EARLIEST))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """All assigned ones where none is named. Where that is, is asked when it is needed."""
        self._reset(partitions, ResetPolicy(ResetKind.LATEST))

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that the program gets."""
        state = self._engine().subscription.state(partition)
        deadline_ms = self._deadline(timeout_ms)
        engine = self._engine()
        while not state.has_position:
            if state.error is not None:
                error, state.error = state.error, None
                raise error
            if engine.core.now_ms() >= deadline_ms:
                raise TimedOut(f"the position of {state.partition} was not found in time")
            await engine.positions.next_round(deadline_ms)
        return state.position.offset

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each of them has."""
        return await self._offsets_at(EARLIEST, partitions, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read.

        print(await consumer.end_offsets([TopicPartition("greetings", 0)]))
        """
        return await self._offsets_at(LATEST, partitions, timeout_ms)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None: there is none yet.

        here = TopicPartition("greetings", 0)
        print((await consumer.offsets_for_times({here: 1_700_000_000_000}))[here])
        """
        lookup = self._engine().lookup
        for one, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise WrongUse(f"{one}: a time is not negative: {timestamp}")
        wanted = {partition_of(one): timestamp for one, timestamp in timestamps_ms.items()}
        found = await lookup.look_up(wanted, self._deadline(timeout_ms))
        return {
            one: OffsetAndTimestamp(it.offset, it.timestamp_ms, it.leader_epoch)
            if it.offset >= 0
            else None
            for one, it in found.items()
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are behind the position, as far as the last fetch has told."""
        state = self._engine().subscription.state(partition)
        end = state.last_stable_offset if self.settings.is_read_committed else state.high_watermark
        return max(0, end - state.position.offset) if state.has_position and end >= 0 else None

    def preferred_replica(self, partition: TopicPartition) -> int | None:
        """The follower that this partition is read from, because it is nearer (client.rack); None:
        its leader is."""
        replica = self._engine().subscription.state(partition).preferred_replica
        return None if replica < 0 else replica

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits these, or the positions of all assigned partitions, and waits until it is done.
        Raises CommitFailed where the group has gone on without this member.

        await consumer.commit({TopicPartition("topic", 0): 0})
        print(await consumer.committed([TopicPartition("topic", 0)]))
        """
        engine = self._engine()
        places = engine.consumed() if offsets is None else offsets_of(offsets)
        await engine.commit(places, self._budget(timeout_ms))

    def commit_nowait(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> "asyncio.Future[None]":
        """As `commit`, without waiting; commits keep their order. An error that nobody asks the
        future for is logged."""
        engine = self._engine()
        return engine.commit_nowait(engine.consumed() if offsets is None else offsets_of(offsets))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        engine = self._engine()
        wanted = [partition_of(one) for one in as_iterable(partitions)]
        found = await engine.commits.committed(wanted, self._budget(timeout_ms))
        return {one: found.get(one) for one in wanted}

    # ── by key ───────────────────────────────────────────────────────────────────────────────

    async def get(
        self, topic: str, key: bytes | str, *, partition: int | None = None
    ) -> ConsumerRecord | None:
        """The newest record of a key, from the partition that its hash says; a record whose value
        is None says that the key was deleted, None that there is no record. Reads from the end
        backwards, and so all of the partition if the key is not there. No position changes. With a
        group.id the group must have access to the topic, as for `assign`: another group may read it
        point to point."""
        if partition is not None:
            check_index(partition)
        engine = self._engine()
        name, wanted = check_topic_name(topic), lookup_key_of(key)
        place = (
            await partition_of_key(engine.core, name, wanted)
            if partition is None
            else TopicPartition(name, partition)
        )
        await engine.await_access(place)
        record = await newest(engine.core, place, wanted)
        return None if record is None else engine.decoders.decoded(record)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    async def topics(self) -> dict[str, TopicInfo]:
        """Every topic that this client may see."""
        return await all_topics(self._engine().core)

    async def partitions_for(self, topic: str, timeout_ms: int | None = None) -> TopicInfo:
        """What the topic consists of; waits until it is known.

        print(len((await consumer.partitions_for("topic")).partitions))
        """
        metadata = self._engine().core.metadata
        return topic_info(await metadata.wait_topic(topic, deadline_ms=self._deadline(timeout_ms)))

    def collect_samples(self) -> Iterator[Sample]:
        # Read at once: in the blocking client another thread iterates over them.
        engine = self._engine()
        samples = [
            *engine.fetcher.collect_samples(),
            *engine.core.network.collect_samples(),
            ASSIGNED.sample(len(engine.subscription)),
        ]
        return iter(samples)

    def metrics(self) -> dict[str, float]:
        """The value of each metric by its name, as docs/metrics.md lists them.

        print(consumer.metrics()["lograft_client_partitions_assigned"])
        """
        return values_of(self)

    def _describe_open(self) -> str | None:
        engine = getattr(self, "_parts", None)
        if engine is None or engine.core.is_closed:
            return None
        group_id = engine.group_id
        return "consumer" if group_id is None else f"consumer of group {group_id!r}"

    # ── inside ───────────────────────────────────────────────────────────────────────────────

    def _engine(self) -> Engine:
        if self._parts is None:
            raise WrongUse("the consumer is not open: use `async with`, or await start()")
        self._parts.core.check_open()
        return self._parts

    def _budget(self, timeout_ms: int | None) -> int:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _deadline(self, timeout_ms: int | None) -> int:
        return self._engine().core.now_ms() + self._budget(timeout_ms)

    def _reset(self, partitions: Iterable[TopicPartition], policy: ResetPolicy) -> None:
        subscription = self._engine().subscription
        states = [subscription.state(one) for one in partitions] or list(subscription)
        for state in states:
            state.request_reset(policy)
        self._sought()

    def _sought(self) -> None:
        self._engine().changed()
        self._engine().notifier.notify()

    async def _offsets_at(
        self, timestamp: int, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(map(partition_of, as_iterable(partitions)), timestamp)
        found = await self._engine().lookup.look_up(wanted, self._deadline(timeout_ms))
        return {one: it.offset for one, it in found.items()}
