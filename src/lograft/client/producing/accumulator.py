"""Records that wait to be sent: per partition a queue of batches, all within buffer.memory.

A batch is ready when it is full, when it has waited for linger.ms, when another waits behind it, or
when somebody cannot wait: a flush, a producer that closes, a record that finds no room.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from lograft.client.errors import BufferFull, RecordTooLargeToSend
from lograft.client.metadata import Topic
from lograft.client.producing.batches import Batch
from lograft.client.producing.buffer_queue import BufferQueue
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.partitioner import StickyChoice
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

#: How well batches compress is learned by this share of every new one.
_RATIO_SHARE: Final = 0.05


class PartitionQueue:
    """The batches of one partition that have not been sent, in order; the last may be open."""

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
        #: The last of `batches`, if it takes more records.
        self.open: Batch | None = None
        #: Sent and not answered, in the order of their sequences.
        self.in_flight: list[Batch] = []
        #: The topic has no such partition: how long that is waited for. None: it has.
        self.missing_until_ms: int | None = None
        self.has_requested_creation = False

    def put_back(self, batch: Batch) -> None:
        """A batch that is to be sent again takes its old place: before all that came after it."""
        # Few have been sent before: the place is near the front.
        at = 0
        for other in self.batches:
            if other.order > batch.order:
                break
            at += 1
        self.batches.insert(at, batch)


class TopicQueues:
    __slots__ = ("choice", "name", "partitions")

    def __init__(self, name: str, randomness: Randomness) -> None:
        self.name = name
        self.partitions: dict[int, PartitionQueue] = {}
        self.choice = StickyChoice(randomness)

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
        #: How much may be used by records that come now: nothing, while others wait for room.
        self._memory = settings.buffer_memory
        self._acks = settings.required_acks
        self._availability_timeout_ms = (
            settings.partitioner_availability_timeout_ms
            if settings.partitioner_adaptive_partitioning_enable
            else 0
        )
        #: What a record may take: one that is larger could never be sent, or never fit.
        self.record_bytes_max = min(settings.max_request_size, settings.buffer_memory) - HEADER_SIZE
        self._compresses = settings.codec != Codec.NONE
        #: Compressed size of what was sent lately, as a share of what it was before.
        self._ratio = 1.0
        self._packed_limit = max(self._batch_size, settings.max_request_size)
        self._batch_number = 0
        #: Queues that hold batches.
        self.active: dict[PartitionQueue, None] = {}
        self.used_bytes = 0
        self._buffer_queue = BufferQueue(settings)
        self._is_offering = False
        #: Unfinished batches, for flush.
        self.unfinished: dict[Batch, None] = {}
        #: Somebody cannot wait for lingering batches: everything is ready.
        self.hurries = 0
        #: Raises if no more records may come in now.
        self.admission: Callable[[], None] | None = None
        self._is_transactional = settings.transactional_id is not None

    # ── in ───────────────────────────────────────────────────────────────────────────────────

    def topic(self, name: str) -> TopicQueues:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicQueues(name, self._randomness)
        return found

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> tuple[Delivery, bool]:
        """The record's delivery, and whether the sender has to know: a batch has been opened or has
        become full. Raises BufferFull: nothing has happened then."""
        size = record_size_max(key, value, headers)
        if size > self.record_bytes_max:
            self.check_size(size)
        if self.used_bytes + size > self._memory:
            self._require_room(size)
        if self.admission is not None:
            self.admission()
        batch = queue.open
        is_news = False
        if batch is None or batch.size_bytes + size > batch.limit_bytes:
            is_news = True
            batch = self._open(queue)
        batch.append(timestamp, key, value, headers)
        batch.reserved_bytes += size
        self.used_bytes += size
        if batch.size_bytes >= batch.limit_bytes:
            queue.open = None
            is_news = True
        return Delivery(batch, batch.count - 1, self._acks), is_news

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
        """A record without key, partition and headers, if there is room for it where the last one
        of the topic went. None: it goes the general way."""
        queues = self._topics.get(topic)
        if queues is None or self.admission is not None:
            return None
        choice = queues.choice
        queue = queues.partitions.get(choice.partition)
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
        choice.add(size, self._batch_size)
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
        """Records without key and headers, as many from `start` on as fit into one batch; returns
        to where. None for one that has to go the general way: not bytes, too large, no room
        for a whole batch."""
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
        queues.choice.add(grown, self._batch_size)
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
        """A batch of records that are bytes already; the sender has to know. Raises BufferFull:
        nothing has happened then."""
        size = HEADER_SIZE + len(payload)
        self._require_room(size)
        if self.admission is not None:
            self.admission()
        batch = self._open(queue)
        queue.open = None
        batch.fill(payload, count, base_timestamp, max_timestamp)
        batch.reserved_bytes = size
        self.used_bytes += size
        return batch

    def check_size(self, size: int) -> None:
        """Raises RecordTooLargeToSend for a record of that many bytes."""
        if size <= self.record_bytes_max:
            return
        settings = self._settings
        name, limit = "max.request.size", settings.max_request_size
        if settings.buffer_memory < limit:
            name, limit = "buffer.memory", settings.buffer_memory
        raise RecordTooLargeToSend(
            f"the record takes {size} bytes, more than {name} ({limit}): raise it, or send less"
        )

    def _require_room(self, size: int) -> None:
        memory = self._settings.buffer_memory
        if self.used_bytes + size > (memory if self._buffer_queue.is_serving else self._memory):
            raise BufferFull(
                f"buffer.memory ({memory} bytes) is used up by records that have not been"
                " acknowledged",
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
        """How large a batch may become that is batch.size when it is compressed."""
        if not self._compresses:
            return self._batch_size
        return min(int(self._batch_size / self._ratio), self._packed_limit)

    async def put_in_turn(
        self, put: Callable[[], T], refused: BufferFull, *, deadline_ms: int
    ) -> T:
        """What `put` returns, which has found no room, when there is room for it and all who came
        before it have theirs. Raises TimedOut."""
        timeout_ms = deadline_ms - self._clock.mono_ms()
        self._memory = 0
        try:
            return await self._buffer_queue.wait(put, refused, timeout_ms=timeout_ms)
        finally:
            # Who gives up may have stood before others who need less.
            self._offer_room()

    def _offer_room(self) -> None:
        """Soon, as it may send: whoever is done with a batch is in the middle of something."""
        if self._memory == 0 and not self._is_offering:
            self._is_offering = True
            asyncio.get_running_loop().call_soon(self._serve_line)

    def _serve_line(self) -> None:
        self._is_offering = False
        self._buffer_queue.serve(lambda: self._settings.buffer_memory - self.used_bytes)
        if not self._buffer_queue:
            self._memory = self._settings.buffer_memory

    def count_records(self) -> int:
        """Records that are neither acknowledged nor failed."""
        return sum(batch.count for batch in self.unfinished)

    # ── partitions for records without a key ─────────────────────────────────────────────────

    def choose(self, topic: Topic, queues: TopicQueues) -> int:
        """A partition that has a leader, if any has."""
        choice = queues.choice
        if choice.partition >= 0:
            return choice.partition
        available = [one.index for one in topic.partitions if one.leader >= 0]
        if not available:
            available = [one.index for one in topic.partitions]
        held = queues.partitions
        if self._availability_timeout_ms:
            prompt = [one for one in available if one not in held or self._is_prompt(held[one])]
            available = prompt or available
        queued = None
        if self._settings.partitioner_adaptive_partitioning_enable:
            queued = [len(held[one].batches) if one in held else 0 for one in available]
        return choice.draw(available, queued)

    def _is_prompt(self, queue: PartitionQueue) -> bool:
        """Whether no batch has been ready for longer than partitioner.availability.timeout.ms."""
        if not queue.batches:
            return True
        ready_ms = self._clock.mono_ms() - queue.batches[0].created_ms - self._settings.linger_ms
        return ready_ms <= self._availability_timeout_ms

    # ── out ──────────────────────────────────────────────────────────────────────────────────

    def ready_at_ms(self, queue: PartitionQueue) -> int:
        """When the first batch of a queue may be sent: 0 is now."""
        first = queue.batches[0]
        if first.attempts:
            return first.retry_at_ms
        if first is not queue.open or self.hurries or self._buffer_queue:
            return 0
        return first.created_ms + self._settings.linger_ms

    def take(self, queue: PartitionQueue) -> Batch:
        """The first batch; it takes no more records."""
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
        """A batch that the broker finds too large goes on in smaller ones, in its place."""
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

    def compressed(self, batch: Batch, size: int) -> None:
        """Learns how well batches compress."""
        if self._compresses and batch.size_bytes:
            self._ratio += _RATIO_SHARE * (size / batch.size_bytes - self._ratio)

    def release(self, batch: Batch) -> None:
        """A batch is done: its memory goes to whoever waits."""
        self.unfinished.pop(batch, None)
        self.used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        self._offer_room()

    def expired(self, now_ms: int) -> Iterator[Batch]:
        """Batches whose delivery.timeout.ms is over while they wait in a queue."""
        oldest_ms = now_ms - self._settings.delivery_timeout_ms
        for queue in list(self.active):
            while queue.batches and queue.batches[0].created_ms <= oldest_ms:
                yield self.take(queue)

    async def flush(self) -> None:
        """Until everything that is here now is acknowledged or has failed."""
        self.hurries += 1
        try:
            for batch in list(self.unfinished):
                await batch.wait()
        finally:
            self.hurries -= 1
