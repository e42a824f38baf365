"""The producer: sends records and reports their acknowledgements.

async with Producer(bootstrap_servers="localhost:9092") as producer:
    acknowledged = await producer.send("greetings", b"hello", key=b"world")
    print(acknowledged.partition, acknowledged.offset)
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Unpack

from lograft.client.arguments import check_index, offsets_of, timestamp_of
from lograft.client.async_resource import AsyncResource
from lograft.client.cluster_view import cluster_notifier
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, TimedOut, WrongUse
from lograft.client.metering.names import ClientMetrics
from lograft.client.producing.accumulator import Accumulator
from lograft.client.producing.cross_thread_queue import CrossThreadQueue
from lograft.client.producing.deliveries import Deliveries, Delivery
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.prepared_transactions import PreparedTransaction
from lograft.client.producing.producer_metrics import ProducerMetrics
from lograft.client.producing.record_parts import Headers
from lograft.client.producing.record_pipeline import RecordPipeline
from lograft.client.producing.sender import Sender
from lograft.client.producing.settings import ProducerSettings
from lograft.client.producing.transactions import Transactions
from lograft.client.types import (
    Acknowledged,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetRange,
    TopicPartition,
)
from lograft.model.seams import Runtime

if TYPE_CHECKING:
    import pyarrow as pa

    from lograft.client.columns.table_sender import TableDelivery
    from lograft.client.keywords import ProducerKeywords

LOGGER: Final = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS: Final = 30_000


class Producer(AsyncResource):
    """Sends records. Settings are Kafka's, in a mapping with dotted names or as keyword arguments;
    `runtime` is for simulations. A producer belongs to the event loop in which it was opened.

        async with Producer(bootstrap_servers="localhost:9092", acks="all") as producer:
            acknowledged = await producer.send("topic", b"value", key=b"key")
            print(acknowledged.partition, acknowledged.offset)

        try:
            Producer(bootstrap_servers="localhost:9092", acks="some")
        except InvalidConfig as error:
            print(error)
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        runtime: Runtime | None = None,
        **keywords: "Unpack[ProducerKeywords]",
    ) -> None:
        self.settings = ProducerSettings.read(settings or {}, **keywords)
        self._runtime = runtime
        self._core: ClientCore[ProducerSettings] | None = None
        self._accepts_plain = False

    async def start(self) -> None:
        """Opens the producer. Sends no requests yet, so it does not detect unavailable brokers."""
        if self._core is not None:
            raise WrongUse("the producer has been started already")
        settings = self.settings
        core = self._core = ClientCore(
            settings,
            creates_topics=True,
            metadata_max_idle_ms=settings.metadata_max_idle_ms,
            runtime=self._runtime,
        )
        self._accumulator = Accumulator(settings, core.runtime.clock, core.runtime.randomness)
        metrics = self._metrics = ProducerMetrics(core, self._accumulator)
        core.metrics.add_source(metrics.collect_readings)
        self._sender = Sender(core, self._accumulator, metrics)
        self._transactions = self._sender.transactions
        self._pipeline = RecordPipeline(
            core, self._accumulator, wake=self._sender.wake, on_record=self._sender.on_record
        )
        self._accepts_plain = self._pipeline.accepts_plain
        notify = cluster_notifier(
            (
                *settings.interceptor_classes,
                settings.key_serializer,
                settings.value_serializer,
                settings.partitioner_class,
            ),
            core.metadata.cache,
        )
        if notify is not None:
            core.metadata.on_update(notify)
        self._wall_ms = core.runtime.clock.wall_ms
        self._sender.start()

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Acknowledged:
        """Sends a record and waits for its acknowledgement.

        acknowledged = await producer.send("topic", b"value", key=b"key", headers=[("a", b"1")])
        assert acknowledged.acks == -1
        """
        delivery = await self.enqueue(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )
        return await delivery

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Waits until the record is in the buffer, and returns its delivery. Waits for metadata and
        buffer space, together at most max.block.ms.

        If the topic does not have the partition, some brokers create it on demand; otherwise the
        delivery fails after max.block.ms, and its error contains the number of partitions.

            delivery = await producer.enqueue("topic", b"value")
            print((await delivery).offset)
        """
        record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
        try:
            self._open_core()
        except Exception as error:
            self._report_rejected(record, error)
            raise
        return await self._pipeline.enqueue(record)

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Adds the record to the buffer without waiting. Raises BufferFull if there is no space,
        and WrongUse if the topic's metadata is not available: `await producer.prepare(topic)`
        first.

            delivery = producer.send_nowait("topic", b"value")
            await producer.flush()
            print(delivery.result().offset)
        """
        try:
            self._open_core()
        except Exception as error:
            record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
            self._report_rejected(record, error)
            raise
        if (
            key is None
            and partition is None
            and not headers
            and type(value) is bytes
            and self._accepts_plain
        ):
            at_ms = self._wall_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
            delivery = self._accumulator.append_plain(topic, at_ms, value)
            if delivery is not None:
                return delivery
        return self._pipeline.put(Outgoing(topic, value, key, partition, timestamp_ms, headers))

    async def prepare(self, topic: str) -> int:
        """Fetches the metadata of a topic, which `send_nowait` needs. Returns the number of its
        partitions.

            assert await producer.prepare("topic") == 2
        """
        core = self._open_core()
        deadline_ms = core.now_ms() + self.settings.max_block_ms
        return len((await core.metadata.wait_topic(topic, deadline_ms=deadline_ms)).partitions)

    async def send_many(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None
    ) -> Deliveries:
        """Adds the records to the buffer, waiting for space as needed, and returns their
        deliveries.

        deliveries = await producer.send_many("topic", (b"%d" % number for number in range(100)))
        assert len(await deliveries) == 100
        """
        await self.prepare(topic)
        return await self._pipeline.put_many(topic, values, keys)

    async def send_arrow(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
        batch_bytes: int | None = None,
    ) -> list[OffsetRange]:
        """Sends the rows of a table, waits for their acknowledgement and returns their offsets.
        Raises the first failure, once all rows are done. See `enqueue_arrow`.

            import pyarrow as pa

            print(await producer.send_arrow("topic", pa.table({"key": ["a"], "value": [b"1"]})))
        """
        return await (
            await self.enqueue_arrow(topic, table, partition=partition, batch_bytes=batch_bytes)
        )

    async def enqueue_arrow(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
        batch_bytes: int | None = None,
    ) -> "TableDelivery":
        """Waits until all rows of a table are in the buffer. Its columns are `value` and optionally
        `key`, `headers` (lists of structs of key and value), `timestamp` and `partition`. Keys and
        values are bytes or text; serializers and interceptors are not called.

        The key of a row without a partition selects it; rows without a key are distributed in
        batches. `batch_bytes` replaces batch.size, whose default is meant for single records."""
        from lograft.client.columns.table_sender import TableSender  # requires the extra `arrow`

        core = self._open_core()
        if partition is not None:
            check_index(partition)
        found = core.metadata.use(topic)
        if found is None or (partition is not None and found.partition(partition) is None):
            deadline_ms = core.now_ms() + self.settings.max_block_ms
            if partition is not None:
                await core.metadata.wait_partition(topic, partition, deadline_ms=deadline_ms)
            found = await core.metadata.wait_topic(topic, deadline_ms=deadline_ms)
        sender = TableSender(
            core, self._accumulator, found, self._sender.wake, self._pipeline.chooser
        )
        return await sender.enqueue(table, partition=partition, batch_bytes=batch_bytes)

    # ── transactions ─────────────────────────────────────────────────────────────────────────

    async def init_transactions(self) -> None:
        """Fences the previous producer with the same transactional id, and aborts its open
        transaction. Optional: the first `begin_transaction` does it too."""
        transactions = self._transactional()
        with self._metrics.initializing.measure():
            await transactions.initialize()

    async def begin_transaction(self) -> None:
        """Begins a transaction. Records that are sent from now on belong to it.

        await transactional.begin_transaction()
        await transactional.send("topic", b"value")
        await transactional.commit_transaction()
        """
        transactions = self._transactional()
        with self._metrics.beginning.measure():
            await transactions.begin()

    async def commit_transaction(self) -> None:
        """Sends the buffered records and commits. Raises TransactionFailed if the transaction must
        be aborted, and TimedOut if the outcome is not known yet: call it again."""
        transactions = self._transactional()
        with self._metrics.committing.measure():
            await transactions.commit()

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Records that have not been sent fail.

        await transactional.begin_transaction()
        await transactional.send("topic", b"never seen")
        await transactional.abort_transaction()
        """
        transactions = self._transactional()
        with self._metrics.aborting.measure():
            await transactions.abort()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Waits until all records are acknowledged, and leaves the transaction open. It outlives
        this producer, until `complete_transactions` (in any process) ends it, its
        transaction.timeout.ms expires, or another producer uses the transactional id."""
        transactions = self._transactional()
        with self._metrics.preparing.measure():
            return await transactions.prepare()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata | str,
    ) -> None:
        """Adds offsets of a group to the transaction: they are committed if and only if the
        transaction is. `group`: `consumer.group_metadata()`, or a group id.

            async with transactional.transaction():
                await transactional.send("topic", b"result")
                await transactional.send_offsets({TopicPartition("topic", 0): 1}, "readers")
        """
        if isinstance(group, str):
            group = GroupMetadata(group)
        transactions = self._transactional()
        with self._metrics.sending_offsets.measure():
            await transactions.send_offsets(offsets_of(offsets), group)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begins a transaction, and commits it at the end of the block or aborts it on an
        exception.

        settings = {"bootstrap.servers": "localhost:9092"}
        async with Producer(settings, transactional_id="copy-1") as producer:
            async with producer.transaction():
                await producer.send("topic", b"result")
                await producer.send_offsets({TopicPartition("topic", 0): 1}, "readers")
        """
        transactions = self._transactional()
        with self._metrics.beginning.measure():
            await transactions.begin()
        try:
            yield
            with self._metrics.committing.measure():
                await transactions.commit()
        except BaseException:
            if transactions.is_unfinished:
                with self._metrics.aborting.measure():
                    await transactions.abort()
            raise

    def _transactional(self) -> Transactions:
        self._open_core()
        if self._transactions is None:
            raise WrongUse("the producer is not transactional: set transactional.id")
        return self._transactions

    # ── flush, metrics, close ────────────────────────────────────────────────────────────────

    async def flush(self) -> None:
        """Waits until every record sent before is acknowledged or has failed. The deliveries
        contain the failures.

            for number in range(10):
                producer.send_nowait("topic", b"%d" % number)
            await producer.flush()
        """
        self._open_core()
        self._sender.wake()
        with self._metrics.flushing.measure():
            await self._accumulator.flush()

    def _open_cross_thread_queue(
        self, post: Callable[[Callable[[], object]], None]
    ) -> CrossThreadQueue:
        """Returns a queue for records of other threads; `post` schedules a call in this loop."""
        core = self._open_core()

        def spawn() -> None:
            core.runtime.spawn(queue.drain_slowly(), name="records of other threads")

        queue = CrossThreadQueue(self._pipeline, post, spawn)
        return queue

    def metrics(self) -> ClientMetrics:
        """Returns the values of all metrics, by Kafka's names; see docs/client-metrics.md.

        print(producer.metrics().value("record-send-total", "producer-metrics"))
        """
        return self._open_core().metrics.metrics()

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Sends the buffered records, and fails those that are not acknowledged within the timeout.
        Aborts an open transaction. Rejects new records immediately."""
        core = self._core
        if core is None or core.is_closed:
            return
        core.is_closing = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if core.failure is None:
                    await self._finish()
        except TimeoutError:
            pass
        finally:
            self._sender.fail(
                TimedOut(
                    f"the producer was closed, and the record was not acknowledged within"
                    f" {timeout_ms} ms"
                )
            )
            self._sender.stop()
            await core.close()

    async def _finish(self) -> None:
        transactions = self._transactions
        if transactions is None or not transactions.is_unfinished:
            self._sender.wake()
            await self._accumulator.flush()
            return
        try:
            await transactions.abort()
        except ClientError as error:
            LOGGER.warning(
                "the open transaction was not aborted and will time out at its coordinator: %s",
                error,
            )

    @property
    def has_pending(self) -> bool:
        """Whether any record is neither acknowledged nor failed."""
        return self._core is not None and bool(self._accumulator.unfinished)

    def _describe_open(self) -> str | None:
        core = getattr(self, "_core", None)
        if core is None or core.is_closed:
            return None
        accumulator = getattr(self, "_accumulator", None)
        count = 0 if accumulator is None else accumulator.count_records()
        return f"producer with {count} pending record{'' if count == 1 else 's'}"

    def _report_rejected(self, record: Outgoing, error: Exception) -> None:
        """Calls the interceptors with the record and its failure, as Kafka does after close."""
        if self._core is not None:
            self._pipeline.intercept(record)
            self._pipeline.report_failure(error)

    def _open_core(self) -> ClientCore[ProducerSettings]:
        core = self._core
        if core is None:
            raise WrongUse("the producer is not open: use `async with`, or await start()")
        core.check_open()
        return core
