"""Takes records from the application to the buffer: interceptors, serializers, partitioner,
accumulator."""

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
from lograft.client.producing.partitioner import Chooser, UnassignedRecord, murmur2
from lograft.client.producing.record_parts import Headers
from lograft.client.producing.settings import ProducerSettings
from lograft.client.serializers import plain_serializer, serialize

#: Values that are read from an iterator at once.
_VALUES_AT_ONCE: Final = 1_000
#: Batches after which `send_many` yields to the sender and to responses.
_BATCHES_PER_YIELD: Final = 4
#: The same for records that are added one by one.
_RECORDS_PER_YIELD: Final = 500


class RecordPipeline:
    def __init__(
        self,
        core: ClientCore[ProducerSettings],
        accumulator: Accumulator,
        *,
        wake: Callable[[], None],
        on_record: Callable[[], None],
    ) -> None:
        """`wake`: wakes the sender; `on_record`: the same, for a single record."""
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
        #: Calls the application's partitioner, if one is set.
        self.chooser: Chooser | None = None
        if partitioner is not None:
            self.chooser = Chooser(partitioner, ClusterView(core.metadata.cache))
        #: Keys and values of type bytes need no serializer.
        self._accepts_bytes = (
            self._key_serializer is plain_serializer and self._value_serializer is plain_serializer
        )
        #: Values of type bytes without a key may bypass serializer, interceptors and partitioner.
        self.accepts_plain = (
            self._accepts_bytes and not self._has_interceptors and self.chooser is None
        )

    def put(self, record: Outgoing) -> Delivery:
        """Adds the record to the buffer without waiting. Raises BufferFull, or WrongUse if the
        topic or partition is not in the metadata."""
        record = self.intercept(record)
        try:
            return self._put_now(record)
        except Exception as error:
            if isinstance(error, BufferFull):
                self._accumulator.rejected_records += 1
            self.report_failure(error)
            raise

    def _put_now(self, record: Outgoing) -> Delivery:
        delivery = self.put_if_known(record)
        if delivery is not None:
            return delivery
        topic = record.topic
        known = self._metadata.cache.topic(topic)
        if known is None:
            raise WrongUse(
                f"no metadata of topic {topic!r} yet: call producer.prepare({topic!r}) first"
            )
        raise WrongUse(
            f"topic {topic!r} has {len(known.partitions)} partitions, so there is no partition"
            f" {record.partition}"
        )

    def is_known(self, topic: str, partition: int | None) -> bool:
        """Whether the topic and partition are in the metadata. For any thread."""
        known = self._metadata.cache.topic(topic)
        return known is not None and (partition is None or _has(known, partition))

    def intercept(self, record: Outgoing) -> Outgoing:
        """Returns the record that the interceptors return: the first step, once for each record."""
        return self._interceptors.on_send(record) if self._has_interceptors else record

    def report_failure(self, error: Exception) -> None:
        """Reports to the interceptors the failure of a record that was not buffered, and so has no
        delivery."""
        if self._has_interceptors:
            self._interceptors.on_acknowledgement(None, error)

    def put_if_known(self, record: Outgoing) -> Delivery | None:
        """Adds the record to the buffer without waiting, and returns its delivery; None if its
        topic or partition is not in the metadata. Raises BufferFull."""
        topic = self._metadata.use(record.topic)
        if topic is None:
            return None
        if record.partition is not None and not _has(topic, record.partition):
            return None
        return self._put(topic, record)

    async def enqueue(self, record: Outgoing) -> Delivery:
        """Waits for metadata and buffer space, together at most max.block.ms."""
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
        partition = record.partition
        topic = self._metadata.use(record.topic)
        if topic is None:
            topic = await self._metadata.wait_topic(record.topic, deadline_ms=deadline_ms)
        if partition is not None and not _has(topic, partition):
            self._expect(topic, partition, deadline_ms)
        try:
            return self._put(topic, record)
        except BufferFull as rejection:
            return await self._put_in_turn(topic, record, rejection, deadline_ms)

    async def _put_in_turn(
        self, topic: Topic, record: Outgoing, rejection: BufferFull, deadline_ms: int
    ) -> Delivery:
        def put() -> Delivery:
            self._core.check_open()
            return self._put(self._metadata.use(record.topic) or topic, record)

        self._wake()
        return await self._accumulator.put_in_turn(put, rejection, deadline_ms=deadline_ms)

    async def put_many(
        self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None
    ) -> Deliveries:
        """Adds all records to the buffer, waiting for space as needed."""
        if isinstance(values, str | bytes | bytearray):
            raise WrongUse("send_many needs an iterable of values, not one value: use send()")
        deliveries = Deliveries(self._acks)
        if keys is None and self.accepts_plain:
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
            if not number % _RECORDS_PER_YIELD:
                await asyncio.sleep(0)
                self._core.check_open()
        return deliveries

    async def _put_plain(self, topic: str, values: Sequence[Any], deliveries: Deliveries) -> None:
        """Adds values without keys, one batch at a time."""
        accumulator = self._accumulator
        queues = accumulator.topic(topic)
        at, batches = 0, 0
        while at < len(values):
            known = self._metadata.use(topic)
            end = at
            if known is not None:
                end = accumulator.extend(known, queues, self._wall_ms(), values, at, deliveries)
            if end == at:
                deliveries.add_one(await self.enqueue(Outgoing(topic, values[at])))
                end += 1
            at = end
            batches += 1
            self._wake()
            if not batches % _BATCHES_PER_YIELD:
                await asyncio.sleep(0)
                self._core.check_open()

    def _expect(self, topic: Topic, partition: int, deadline_ms: int) -> None:
        """Prepares for a partition that the metadata does not contain: it may be new, or be
        created."""
        check_index(partition)
        queue = self._accumulator.topic(topic.name).partition(partition)
        queue.missing_until_ms = max(deadline_ms, queue.missing_until_ms or 0)
        self._metadata.request_update()

    def _put(self, topic: Topic, record: Outgoing) -> Delivery:
        name, value, key, partition, timestamp, headers = record
        if key is not None and not (self._accepts_bytes and type(key) is bytes):
            key = serialize(self._key_serializer, name, key, "key")
        if not (self._accepts_bytes and type(value) is bytes):
            value = serialize(self._value_serializer, name, value, "value")
        accumulator = self._accumulator
        queues = accumulator.topic(name)
        is_sticky = False
        if partition is None:
            count = len(topic.partitions)
            if self.chooser is not None:
                unassigned = UnassignedRecord(name, record.key, key, record.value, value)
                partition = self._choose(queues, unassigned, headers, count)
            elif key is not None and not self._ignores_keys:
                partition = murmur2(key) % count
            else:
                partition = accumulator.choose(topic, queues)
                is_sticky = True
        timestamp = self._wall_ms() if timestamp is None else timestamp_of(timestamp)
        if headers:
            check_headers(headers)
        before = accumulator.used_bytes
        delivery, needs_sender = accumulator.append(
            queues.partition(partition), timestamp, key, value, headers
        )
        if is_sticky:
            queues.sticky.add(accumulator.used_bytes - before, self._batch_size)
        if needs_sender:
            self._on_record()
        if self._has_interceptors:
            delivery.add_done_callback(self._report_outcome)
        return delivery

    def _choose(
        self, queues: TopicQueues, record: UnassignedRecord, headers: Headers, partition_count: int
    ) -> int:
        assert self.chooser is not None
        partition = self.chooser.choose(record, partition_count)
        if self.chooser.handles_new_batches and self._accumulator.opens_batch(
            queues.partition(partition), record.key_bytes, record.value_bytes, headers
        ):
            partition = self.chooser.choose_again(record, partition_count, partition)
        return partition

    def _report_outcome(self, delivery: Delivery) -> None:
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
