"""Sends the rows of tables through the producer's buffer."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lograft.client.columns.encoder import Encoded, encode
from lograft.client.columns.tables import (
    NO_PARTITION,
    check_table,
    choose_partitions,
    group_by_partition,
    row_sizes,
    split_table,
)
from lograft.client.core import ClientCore
from lograft.client.errors import BufferFull, WrongUse
from lograft.client.metadata import Topic
from lograft.client.producing.accumulator import Accumulator
from lograft.client.producing.batches import Batch
from lograft.client.producing.partitioner import Chooser
from lograft.client.producing.settings import ProducerSettings
from lograft.client.types import OffsetRange


class TableDelivery:
    """The outcome of a table's rows: await it, or poll it with `done` and `result`.

    import pyarrow as pa

    delivery = await producer.enqueue_arrow("topic", pa.table({"value": [b"a", b"b"]}))
    assert isinstance(delivery, TableDelivery)
    print(await delivery)
    """

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __await__(self) -> Generator[Any, None, list[OffsetRange]]:
        yield from self.wait().__await__()
        return self.result()

    async def wait(self) -> None:
        """Waits until every row is acknowledged or has failed. Does not raise failures."""
        for batch in self._batches:
            if not batch.is_done:
                await batch.wait()

    def done(self) -> bool:
        return all(batch.is_done for batch in self._batches)

    def result(self) -> list[OffsetRange]:
        """Returns the offsets of the rows, sorted by partition and offset. Raises the first
        failure, or WrongUse if rows are still pending."""
        if not self.done():
            raise WrongUse("rows are still pending: await the delivery, or check done()")
        by_partition: dict[tuple[str, int], list[OffsetRange]] = {}
        for batch in self._batches:
            ranges = by_partition.setdefault((batch.topic, batch.partition), [])
            for first_offset, count in batch.offsets():
                last = ranges[-1] if ranges else None
                if last is not None and first_offset in (-1, last.first_offset + last.count):
                    ranges[-1] = replace(last, count=last.count + count)
                    continue
                ranges.append(OffsetRange(batch.topic, batch.partition, first_offset, count))
        return [offsets for _, ranges in sorted(by_partition.items()) for offsets in ranges]


class TableSender:
    """Adds tables for one topic to the buffer."""

    def __init__(
        self,
        core: ClientCore[ProducerSettings],
        accumulator: Accumulator,
        topic: Topic,
        wake: Callable[[], None],
        chooser: Chooser | None,
    ) -> None:
        """`chooser`: calls the application's partitioner, if one is set."""
        self._core = core
        self._settings = core.settings
        self._accumulator = accumulator
        self._topic = topic
        self._queues = accumulator.topic(topic.name)
        self._wake = wake
        self._chooser = chooser

    async def enqueue(
        self,
        table: pa.Table | pa.RecordBatch,
        *,
        partition: int | None = None,
        batch_bytes: int | None = None,
    ) -> TableDelivery:
        table = check_table(table)
        sizes = row_sizes(table)
        if len(sizes):
            self._accumulator.check_size(int(sizes.max()))
        limit = self._settings.batch_size if batch_bytes is None else batch_bytes
        limit = min(limit, self._accumulator.record_bytes_max)
        batches: list[Batch] = []
        for chunk in split_table(table, sizes, self._core.runtime.clock.wall_ms()):
            partitions = choose_partitions(
                chunk,
                topic=self._topic.name,
                partition=partition,
                partition_count=len(self._topic.partitions),
                by_keys=not self._settings.partitioner_ignore_keys,
                chooser=self._chooser,
            )
            for place, rows in group_by_partition(chunk, partitions):
                for encoded in encode(rows, limit):
                    batches.append(await self._put(place, encoded))
                # Lets the sender start while the rest is encoded.
                await asyncio.sleep(0)
        return TableDelivery(batches)

    async def _put(self, partition: int, encoded: Encoded) -> Batch:
        try:
            return self._add(partition, encoded)
        except BufferFull as rejection:
            self._wake()
            deadline_ms = self._core.now_ms() + self._settings.max_block_ms

            def add() -> Batch:
                self._core.check_open()
                return self._add(partition, encoded)

            return await self._accumulator.put_in_turn(add, rejection, deadline_ms=deadline_ms)
        finally:
            self._wake()

    def _add(self, partition: int, encoded: Encoded) -> Batch:
        chosen = partition
        if partition == NO_PARTITION:
            chosen = self._accumulator.choose(self._topic, self._queues)
        batch = self._accumulator.add(
            self._queues.partition(chosen),
            encoded.payload,
            count=encoded.count,
            base_timestamp=encoded.base_timestamp,
            max_timestamp=encoded.max_timestamp,
        )
        if partition == NO_PARTITION:
            self._queues.sticky.reset()
        return batch
