"""From a record as the program gives it to a place in the buffer: interceptors, serializers,
partitioner, accumulator."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from typing import Any, Final

from lograft.client.arguments import check_headers, check_index, timestamp_of
from lograft.client.cluster_view import ClusterView
from lograft.client.core import ClientCore
from lograft.client.errors import BufferFull, Closed, WrongUse
from lograft.client.metadata import Topic
from lograft.client.producing.accumulator import Accumulator, TopicQueues
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.interceptors import Interceptors, Outgoing
from lograft.client.producing.partitioner import Chooser, Unplaced, murmur2
from lograft.client.producing.record_parts import Headers
from lograft.client.producing.settings import ProducerSettings
from lograft.client.serializers import plain_serializer, serialized

#: Of an iterable, looked at together.
_VALUES_AT_ONCE: Final = 1_000
#: After so many batches the sender and the answers get their turn.
_BATCHES_PER_TURN: Final = 4
#: Likewise, records that go one by one.
_RECORDS_PER_TURN: Final = 500


class RecordPipeline:
    def __init__(
        self,
        core: ClientCore[ProducerSettings],
        accumulator: Accumulator,
        *,
        wake: Callable[[], None],
        on_record: Callable[[], None],
    ) -> None:
        """`wake`: the sender has something new; `on_record`: it is a single record."""
        settings = core.settings
        self._core = core
        self._accumulator = accumulator
        self._metadata = core.metadata
        self._wake = wake
        self._on_record = on_record
        self._wall_ms = core.runtime.clock.wall_ms
        self._max_block_ms = settings.max_block_ms
        self._batch_size = settings.batch_size
        self._acks = settings.required_acks
        self._interceptors = Interceptors(settings.interceptor_classes)
        self._has_interceptors = bool(settings.interceptor_classes)
        self._key_serializer = settings.key_serializer or plain_serializer
        self._value_serializer = settings.value_serializer or plain_serializer
        self._ignores_keys = settings.partitioner_ignore_keys
        partitioner = settings.partitioner_class
        #: Asks the program's own partitioner, if it has one.
        self.chooser: Chooser | None = None
        if partitioner is not None:
            self.chooser = Chooser(partitioner, ClusterView(core.metadata.cache))
        #: Nothing needs to be serialized that is bytes already.
        self._takes_bytes = (
            self._key_serializer is plain_serializer and self._value_serializer is plain_serializer
        )
        #: Bytes without a key go where the last ones went, and nobody looks at them.
        self.takes_plain = self._takes_bytes and not self._has_interceptors and self.chooser is None

    def put(self, record: Outgoing) -> Delivery:
        """Puts it into the buffer now, or raises BufferFull, or WrongUse for a place that is not
        known."""
        record = self.intercept(record)
        try:
            return self._put_now(record)
        except Exception as error:
            self.report_failure(error)
            raise

    def _put_now(self, record: Outgoing) -> Delivery:
        delivery = self.put_if_known(record)
        if delivery is not None:
            return delivery
        topic = record.topic
        found = self._metadata.cache.topic(topic)
        if found is None:
            raise WrongUse(f"topic {topic!r} is not known yet: await producer.prepare({topic!r})")
        raise WrongUse(
            f"topic {topic!r} has {len(found.partitions)} partitions, so there is no partition"
            f" {record.partition}"
        )

    def is_known(self, topic: str, partition: int | None) -> bool:
        """Whether the place has been in the cluster; any thread may ask."""
        found = self._metadata.cache.topic(topic)
        return found is not None and (partition is None or _has(found, partition))

    def intercept(self, record: Outgoing) -> Outgoing:
        """What the interceptors make of it: the first step, taken once for a record."""
        return self._interceptors.on_send(record) if self._has_interceptors else record

    def report_failure(self, error: Exception) -> None:
        """Tells the interceptors that a record which they have seen does not come into the buffer:
        it has no delivery that could tell them."""
        if self._has_interceptors:
            self._interceptors.on_acknowledgement(None, error)

    def put_if_known(self, record: Outgoing) -> Delivery | None:
        """Puts it into the buffer now, or raises BufferFull; None: its topic or partition is not
        known."""
        found = self._metadata.use(record.topic)
        if found is None:
            return None
        if record.partition is not None and not _has(found, record.partition):
            return None
        return self._put(found, record)

    async def enqueue(self, record: Outgoing) -> Delivery:
        """Waits for metadata and for room, together at most max.block.ms."""
        return await self.enqueue_intercepted(self.intercept(record))

    async def enqueue_intercepted(self, record: Outgoing) -> Delivery:
        try:
            return await self._enqueue(record)
        except Exception as error:
            self.report_failure(error)
            raise
        except asyncio.CancelledError:
            self.report_failure(Closed("the call was cancelled before the record was buffered"))
            raise

    async def _enqueue(self, record: Outgoing) -> Delivery:
        deadline_ms = self._core.now_ms() + self._max_block_ms
        wanted = record.partition
        found = self._metadata.use(record.topic)
        if found is None:
            found = await self._metadata.wait_topic(record.topic, deadline_ms=deadline_ms)
        if wanted is not None and not _has(found, wanted):
            self._expect(found, wanted, deadline_ms)
        try:
            return self._put(found, record)
        except BufferFull as refused:
            return await self._put_in_turn(found, record, refused, deadline_ms)

    async def _put_in_turn(
        self, found: Topic, record: Outgoing, refused: BufferFull, deadline_ms: int
    ) -> Delivery:
        def put() -> Delivery:
            self._core.check_open()
            return self._put(self._metadata.use(record.topic) or found, record)

        self._wake()
        return await self._accumulator.put_in_turn(put, refused, deadline_ms=deadline_ms)

    async def put_many(
        self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None
    ) -> Deliveries:
        """Waits for room as needed."""
        if isinstance(values, str | bytes | bytearray):
            raise WrongUse("send_many needs an iterable of values, not one value: use send()")
        deliveries = Deliveries(self._acks)
        if keys is None and self.takes_plain:
            if isinstance(values, list | tuple):
                await self._put_plain(topic, values, deliveries)
                return deliveries
            iterator = iter(values)
            while chunk := list(islice(iterator, _VALUES_AT_ONCE)):
                await self._put_plain(topic, chunk, deliveries)
            return deliveries
        pairs: Iterable[tuple[Any, Any]]
        pairs = zip(repeat(None), values) if keys is None else zip(keys, values, strict=True)
        for number, (key, value) in enumerate(pairs, 1):
            deliveries.add_one(await self.enqueue(Outgoing(topic, value, key)))
            if not number % _RECORDS_PER_TURN:
                await asyncio.sleep(0)
                self._core.check_open()
        return deliveries

    async def _put_plain(self, topic: str, values: Sequence[Any], deliveries: Deliveries) -> None:
        """Values without keys: a batch at a time."""
        accumulator = self._accumulator
        queues = accumulator.topic(topic)
        at, batches = 0, 0
        while at < len(values):
            found = self._metadata.use(topic)
            end = at
            if found is not None:
                end = accumulator.extend(found, queues, self._wall_ms(), values, at, deliveries)
            if end == at:
                deliveries.add_one(await self.enqueue(Outgoing(topic, values[at])))
                end += 1
            at = end
            batches += 1
            self._wake()
            if not batches % _BATCHES_PER_TURN:
                await asyncio.sleep(0)
                self._core.check_open()

    def _expect(self, topic: Topic, partition: int, deadline_ms: int) -> None:
        """The topic may grow to the partition that the program names, or have grown to it."""
        check_index(partition)
        queue = self._accumulator.topic(topic.name).partition(partition)
        queue.missing_until_ms = max(deadline_ms, queue.missing_until_ms or 0)
        self._metadata.request_update()

    def _put(self, topic: Topic, record: Outgoing) -> Delivery:
        name, value, key, partition, timestamp, headers = record
        if key is not None and not (self._takes_bytes and type(key) is bytes):
            key = serialized(self._key_serializer, name, key, "key")
        if not (self._takes_bytes and type(value) is bytes):
            value = serialized(self._value_serializer, name, value, "value")
        accumulator = self._accumulator
        queues = accumulator.topic(name)
        is_sticky = False
        if partition is None:
            count = len(topic.partitions)
            if self.chooser is not None:
                unplaced = Unplaced(name, record.key, key, record.value, value)
                partition = self._chosen(queues, unplaced, headers, count)
            elif key is not None and not self._ignores_keys:
                partition = murmur2(key) % count
            else:
                partition = accumulator.choose(topic, queues)
                is_sticky = True
        timestamp = self._wall_ms() if timestamp is None else timestamp_of(timestamp)
        if headers:
            check_headers(headers)
        before = accumulator.used_bytes
        delivery, is_news = accumulator.append(
            queues.partition(partition), timestamp, key, value, headers
        )
        if is_sticky:
            queues.choice.add(accumulator.used_bytes - before, self._batch_size)
        if is_news:
            self._on_record()
        if self._has_interceptors:
            delivery.add_done_callback(self._tell_interceptors)
        return delivery

    def _chosen(
        self, queues: TopicQueues, record: Unplaced, headers: Headers, partition_count: int
    ) -> int:
        assert self.chooser is not None
        partition = self.chooser.choose(record, partition_count)
        if self.chooser.minds_batches and self._accumulator.opens_batch(
            queues.partition(partition), record.key_bytes, record.value_bytes, headers
        ):
            partition = self.chooser.choose_again(record, partition_count, partition)
        return partition

    def _tell_interceptors(self, delivery: Delivery) -> None:
        try:
            acknowledged = delivery.result()
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
        else:
            self._interceptors.on_acknowledgement(acknowledged, None)


def _has(topic: Topic, partition: int) -> bool:
    if type(partition) is not int:
        check_index(partition)
    return topic.partition(partition) is not None
