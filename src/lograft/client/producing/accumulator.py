"""Buffers records until they are sent: a queue of batches for each partition, all within
buffer.memory.

A batch is ready when it is full, when it has waited for linger.ms, when another one is queued
behind it, or when lingering would block a caller: a flush, a close, or a record that waits for free
space.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from lograft.client.errors import BufferFull, RecordTooLargeToSend, TimedOut
from lograft.client.metadata import Topic
from lograft.client.metering.stopwatch import Stopwatch
from lograft.client.producing.batches import Batch
from lograft.client.producing.buffer_queue import BufferQueue
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.partitioner import StickyPartition
from lograft.client.producing.record_parts import (
    RECORD_OVERHEAD_MAX,
    Headers,
    record_size_max,
)
from lograft.client.producing.settings import ProducerSettings
from lograft.model.seams import Buffer, Clock, Randomness
from lograft.wire.batches import HEADER_SIZE
from lograft.wire.compression import Codec

T = TypeVar("T")

#: Weight of each new batch in the moving average of the compression ratio.
_RATIO_SHARE: Final = 0.05


class PartitionQueue:
    """The unsent batches of one partition, in order; the last may be open."""

    __slots__ = (
        "batches",
        "has_requested_creation",
        "in_flight",
        "missing_until_ms",
        "open",
        "partition",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[Batch] = deque()
        #: The last of `batches`, if it accepts more records.
        self.open: Batch | None = None
        #: Sent batches without a response, in the order of their sequences.
        self.in_flight: list[Batch] = []
        #: If the topic does not have the partition: until when to wait for it. None if it has.
        self.missing_until_ms: int | None = None
        self.has_requested_creation = False

    def put_back(self, batch: Batch) -> None:
        """Inserts a batch to retry at its old position: before all batches created after it."""
        # Few batches are retried: the position is near the front.
        at = 0
        for other in self.batches:
            if other.order > batch.order:
                break
            at += 1
        self.batches.insert(at, batch)


class TopicQueues:
    __slots__ = ("name", "partitions", "sticky")

    def __init__(self, name: str, randomness: Randomness) -> None:
        self.name = name
        self.partitions: dict[int, PartitionQueue] = {}
        self.sticky = StickyPartition(randomness)

    def partition(self, index: int) -> PartitionQueue:
        queue = self.partitions.get(index)
        if queue is None:
            queue = self.partitions[index] = PartitionQueue(self.name, index)
        return queue


class Accumulator:
    def __init__(self, settings: ProducerSettings, clock: Clock, randomness: Randomness) -> None:
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._topics: dict[str, TopicQueues] = {}
        self._batch_size = max(settings.batch_size, HEADER_SIZE)
        #: The memory that a new record may use: 0 while others wait for free space.
        self._memory = settings.buffer_memory
        self._acks = settings.required_acks
        self._availability_timeout_ms = (
            settings.partitioner_availability_timeout_ms
            if settings.partitioner_adaptive_partitioning_enable
            else 0
        )
        #: The limit of a record: a larger one could never be sent or buffered.
        self.record_bytes_max = min(settings.max_request_size, settings.buffer_memory) - HEADER_SIZE
        self._compresses = settings.codec != Codec.NONE
        #: Moving average of compressed size divided by uncompressed size.
        self._ratio = 1.0
        self._packed_limit = max(self._batch_size, settings.max_request_size)
        self._batch_number = 0
        #: Queues that contain batches.
        self.active: dict[PartitionQueue, None] = {}
        self.used_bytes = 0
        self._buffer_queue = BufferQueue(settings)
        #: Time that callers wait for free space.
        self.waiting = Stopwatch(clock)
        #: Records that were rejected because there was no space.
        self.rejected_records = 0
        self._is_serving_scheduled = False
        #: Unfinished batches, for flush.
        self.unfinished: dict[Batch, None] = {}
        #: The number of flushes in progress: while it is not 0, all batches are ready.
        self.flushes_in_progress = 0
        #: Raises an exception if no records may be added now.
        self.admission: Callable[[], None] | None = None
        self._is_transactional = settings.transactional_id is not None

    # ── adding records ───────────────────────────────────────────────────────────────────────

    def topic(self, name: str) -> TopicQueues:
        queues = self._topics.get(name)
        if queues is None:
            queues = self._topics[name] = TopicQueues(name, self._randomness)
        return queues

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> tuple[Delivery, bool]:
        """Returns the record's delivery, and whether to wake the sender, because a batch was opened
        or became full. Raises BufferFull without any effect."""
        size = record_size_max(key, value, headers)
        if size > self.record_bytes_max:
            self.check_size(size)
        if self.used_bytes + size > self._memory:
            self._require_space(size)
        if self.admission is not None:
            self.admission()
        batch = queue.open
        needs_sender = False
        if batch is None or batch.size_bytes + size > batch.limit_bytes:
            needs_sender = True
            batch = self._open(queue)
        batch.append(timestamp, key, value, headers)
        batch.reserved_bytes += size
        self.used_bytes += size
        if batch.size_bytes >= batch.limit_bytes:
            queue.open = None
            needs_sender = True
        return Delivery(batch, batch.count - 1, self._acks), needs_sender

    def opens_batch(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> bool:
        """Whether `append` would open a batch for this record."""
        batch = queue.open
        size = record_size_max(key, value, headers)
        return batch is None or batch.size_bytes + size > batch.limit_bytes

    def append_plain(self, topic: str, timestamp: int, value: bytes) -> Delivery | None:
        """Appends a record without key, partition and headers to the open batch to which the last
        one of the topic was appended. Returns None if `append` is needed."""
        queues = self._topics.get(topic)
        if queues is None or self.admission is not None:
            return None
        sticky = queues.sticky
        queue = queues.partitions.get(sticky.partition)
        batch = None if queue is None else queue.open
        if batch is None:
            return None
        size = len(value) + RECORD_OVERHEAD_MAX
        if batch.size_bytes + size > batch.limit_bytes or self.used_bytes + size > self._memory:
            return None
        index = batch.count
        batch.append(timestamp, None, value)
        batch.reserved_bytes += size
        self.used_bytes += size
        sticky.add(size, self._batch_size)
        return Delivery(batch, index, self._acks)

    def extend(
        self,
        topic: Topic,
        queues: TopicQueues,
        timestamp: int,
        values: Sequence[Any],
        start: int,
        deliveries: Deliveries,
    ) -> int:
        """Appends records without key and headers, from `start` on, as many as fit into one batch,
        and returns the index of the first one left. That is `start` if the first record needs
        `append`: it is not bytes, too large, or there is no space for a whole batch."""
        value = values[start]
        if type(value) is not bytes:
            return start
        size = len(value) + RECORD_OVERHEAD_MAX
        queue = queues.partition(self.choose(topic, queues))
        batch = queue.open
        if batch is not None and batch.size_bytes + size > batch.limit_bytes:
            batch = queue.open = None
        limit = self._limit_bytes() if batch is None else batch.limit_bytes
        if HEADER_SIZE + size > limit or self.used_bytes + limit > self._memory:
            return start
        if self.admission is not None:
            self.admission()
        if batch is None:
            batch = self._open(queue)
        before, index = batch.size_bytes, batch.count
        end = batch.extend(timestamp, values, start)
        grown = batch.size_bytes - before
        batch.reserved_bytes += grown
        self.used_bytes += grown
        queues.sticky.add(grown, self._batch_size)
        deliveries.add(batch, index, end - start)
        return end

    def add(
        self,
        queue: PartitionQueue,
        payload: Buffer,
        *,
        count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> Batch:
        """Adds a batch of encoded records. The caller wakes the sender. Raises BufferFull without
        any effect."""
        size = HEADER_SIZE + len(payload)
        self._require_space(size)
        if self.admission is not None:
            self.admission()
        batch = self._open(queue)
        queue.open = None
        batch.fill(payload, count, base_timestamp, max_timestamp)
        batch.reserved_bytes = size
        self.used_bytes += size
        return batch

    def check_size(self, size: int) -> None:
        """Raises RecordTooLargeToSend if a record of that size cannot be sent."""
        if size <= self.record_bytes_max:
            return
        settings = self._settings
        name, limit = "max.request.size", settings.max_request_size
        if settings.buffer_memory < limit:
            name, limit = "buffer.memory", settings.buffer_memory
        raise RecordTooLargeToSend(
            f"the record has {size} bytes, more than {name} ({limit}): increase it, or send smaller"
            " records"
        )

    def _require_space(self, size: int) -> None:
        memory = self._settings.buffer_memory
        if self.used_bytes + size > (memory if self._buffer_queue.is_serving else self._memory):
            raise BufferFull(
                f"the buffer (buffer.memory={memory}) is full of records that are not acknowledged"
                " yet: retry later, or use send(), which waits",
                size,
            )

    def _open(self, queue: PartitionQueue) -> Batch:
        number = self._batch_number
        batch = Batch(
            queue.topic, queue.partition, self._clock.mono_ms(), (number,), self._limit_bytes()
        )
        self._batch_number = number + 1
        batch.is_transactional = self._is_transactional
        queue.batches.append(batch)
        queue.open = batch
        self.active[queue] = None
        self.unfinished[batch] = None
        return batch

    def _limit_bytes(self) -> int:
        """Returns the uncompressed size at which a batch probably has batch.size when
        compressed."""
        if not self._compresses:
            return self._batch_size
        return min(int(self._batch_size / self._ratio), self._packed_limit)

    async def put_in_turn(
        self, put: Callable[[], T], rejection: BufferFull, *, deadline_ms: int
    ) -> T:
        """Waits until there is free space and all earlier callers have been served, then calls
        `put`, which has raised `rejection`, again and returns its result. Raises TimedOut."""
        timeout_ms = deadline_ms - self._clock.mono_ms()
        self._memory = 0
        try:
            with self.waiting.measure():
                return await self._buffer_queue.wait(put, rejection, timeout_ms=timeout_ms)
        except TimedOut:
            self.rejected_records += 1
            raise
        finally:
            # A caller that gives up may have blocked others that need less space.
            self._schedule_serving()

    def _schedule_serving(self) -> None:
        """Serves the waiting records in the next iteration of the event loop: it may send, and the
        caller that releases a batch is in the middle of its work."""
        if self._memory == 0 and not self._is_serving_scheduled:
            self._is_serving_scheduled = True
            asyncio.get_running_loop().call_soon(self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._is_serving_scheduled = False
        self._buffer_queue.serve(lambda: self._settings.buffer_memory - self.used_bytes)
        if not self._buffer_queue:
            self._memory = self._settings.buffer_memory

    @property
    def size_bytes(self) -> int:
        """Returns buffer.memory."""
        return self._settings.buffer_memory

    @property
    def free_bytes(self) -> int:
        return max(0, self._settings.buffer_memory - self.used_bytes)

    @property
    def waiter_count(self) -> int:
        """Returns the number of calls that wait for free space."""
        return len(self._buffer_queue)

    def count_records(self) -> int:
        """Returns the number of records that are neither acknowledged nor failed."""
        return sum(batch.count for batch in self.unfinished)

    # ── partitions for records without a key ─────────────────────────────────────────────────

    def choose(self, topic: Topic, queues: TopicQueues) -> int:
        """Returns the sticky partition of the topic, drawing a new one with a leader if needed."""
        sticky = queues.sticky
        if sticky.partition >= 0:
            return sticky.partition
        available = [partition.index for partition in topic.partitions if partition.leader >= 0]
        if not available:
            available = [partition.index for partition in topic.partitions]
        used = queues.partitions
        if self._availability_timeout_ms:
            prompt = [
                index for index in available if index not in used or self._is_prompt(used[index])
            ]
            available = prompt or available
        queue_sizes = None
        if self._settings.partitioner_adaptive_partitioning_enable:
            queue_sizes = [len(used[index].batches) if index in used else 0 for index in available]
        return sticky.draw(available, queue_sizes)

    def _is_prompt(self, queue: PartitionQueue) -> bool:
        """Whether no batch has been ready for longer than partitioner.availability.timeout.ms."""
        if not queue.batches:
            return True
        ready_ms = self._clock.mono_ms() - queue.batches[0].created_ms - self._settings.linger_ms
        return ready_ms <= self._availability_timeout_ms

    # ── sending batches ──────────────────────────────────────────────────────────────────────

    def ready_at_ms(self, queue: PartitionQueue) -> int:
        """Returns the time from which the first batch of a queue may be sent; 0 is now."""
        first = queue.batches[0]
        if first.attempts:
            return first.retry_at_ms
        if first is not queue.open or self.flushes_in_progress or self._buffer_queue:
            return 0
        return first.created_ms + self._settings.linger_ms

    def take(self, queue: PartitionQueue) -> Batch:
        """Removes and returns the first batch, and closes it."""
        batch = queue.batches.popleft()
        if queue.open is batch:
            queue.open = None
        if not queue.batches:
            self.active.pop(queue, None)
        return batch

    def put_back(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.put_back(batch)
        self.active[queue] = None

    def split(self, queue: PartitionQueue, batch: Batch) -> None:
        """Replaces a batch that the broker rejected as too large with smaller ones."""
        target = max(batch.size_bytes // 2, 1)
        children: list[Batch] = []
        for record in batch.records():
            child = children[-1] if children else None
            if child is None or child.size_bytes >= target:
                order = (*batch.order, len(children))
                child = Batch(batch.topic, batch.partition, batch.created_ms, order)
                child.is_transactional = batch.is_transactional
                children.append(child)
            child.append(record.timestamp, record.key, record.value, record.headers)
        children[0].reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        for child in children:
            self.unfinished[child] = None
            queue.put_back(child)
        self.active[queue] = None
        batch.replace(children)
        self.unfinished.pop(batch, None)

    def record_compression(self, batch: Batch, size: int) -> None:
        """Updates the average compression ratio."""
        if self._compresses and batch.size_bytes:
            self._ratio += _RATIO_SHARE * (size / batch.size_bytes - self._ratio)

    def release(self, batch: Batch) -> None:
        """Frees the memory of a batch that is done, for the records that wait for space."""
        self.unfinished.pop(batch, None)
        self.used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        self._schedule_serving()

    def take_expired(self, now_ms: int) -> Iterator[Batch]:
        """Removes and yields queued batches whose delivery.timeout.ms has expired."""
        oldest_ms = now_ms - self._settings.delivery_timeout_ms
        for queue in list(self.active):
            while queue.batches and queue.batches[0].created_ms <= oldest_ms:
                yield self.take(queue)

    async def flush(self) -> None:
        """Waits until all records that are buffered now are acknowledged or have failed."""
        self.flushes_in_progress += 1
        try:
            for batch in list(self.unfinished):
                await batch.wait()
        finally:
            self.flushes_in_progress -= 1
