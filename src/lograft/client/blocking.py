"""Blocking clients, for programs that do not use asyncio: the same methods, without `await`.

    from lograft.client.blocking import Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        acknowledged = producer.send("greetings", b"hello", key=b"world")

Each client runs in a background thread, and a method here waits for the method of the same name
there (`blocking_client.py`). Callbacks run in the client's thread: they must be short, and cannot
call methods that wait.
"""

import asyncio
import atexit
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from weakref import WeakSet

from lograft.client import admin, consumer
from lograft.client import producer as asynchronous
from lograft.client.blocking_client import (
    BlockingClient,
    SingleThreadClient,
    blocking_method,
    context_method,
    direct_method,
)
from lograft.client.consuming.immediate_result import ImmediateResult
from lograft.client.errors import TimedOut
from lograft.client.producing import deliveries as asynchronous_deliveries
from lograft.client.producing.cross_thread_queue import CrossThreadQueue, Promise
from lograft.client.producing.deliveries import run_callback
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.record_parts import Headers
from lograft.client.types import Acknowledged, ConsumerRecord, OffsetRange

if TYPE_CHECKING:
    from lograft.client.columns import table_sender
    from lograft.client.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords

LOGGER: Final = logging.getLogger(__name__)

R = TypeVar("R")

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "TableDelivery"]


class Delivery:
    """The outcome of one record. Any thread may use it."""

    __slots__ = ("_client", "_promise")

    def __init__(
        self,
        client: BlockingClient[Any],
        source: "asynchronous_deliveries.Delivery | Promise",
    ) -> None:
        self._client = client
        if isinstance(source, Promise):
            self._promise = source
        else:
            self._promise = Promise()
            self._promise.settle(source)

    def done(self) -> bool:
        delivery = self._promise.delivery
        return self._promise.error is not None or (delivery is not None and delivery.done())

    def result(self, timeout_ms: int | None = None) -> Acknowledged:
        """Waits for the acknowledgement and returns it. Raises the failure of the record, or
        TimedOut."""
        if not self.done():
            # Does not wait for the queue to be empty: that could take longer than the timeout.
            BlockingClient.run(self._client, _wait(self, timeout_ms))
        promise = self._promise
        if promise.error is not None:
            raise promise.error
        assert promise.delivery is not None
        return promise.delivery.result()

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Calls `callback` with this delivery, in the client's thread, when it is done. If it is
        done already, calls it immediately, in this thread."""
        if self.done():
            run_callback(callback, self)
        else:
            self._client.post(lambda: self._promise.on_settled(lambda: self._on_settled(callback)))

    async def wait(self) -> None:
        """In the client's loop: waits until the record is acknowledged or has failed."""
        promise = self._promise
        if not promise.is_settled:
            settled = asyncio.Event()
            promise.on_settled(settled.set)
            await settled.wait()
        if promise.delivery is not None:
            await promise.delivery.wait()

    def _on_settled(self, callback: "Callable[[Delivery], object]") -> None:
        delivery = self._promise.delivery
        if delivery is None:
            run_callback(callback, self)
        else:
            delivery.add_done_callback(lambda _delivery: run_callback(callback, self))


class TableDelivery:
    """The outcome of a table's rows. Any thread may use it."""

    __slots__ = ("_client", "_delivery")

    def __init__(self, client: BlockingClient[Any], delivery: "table_sender.TableDelivery") -> None:
        self._client = client
        self._delivery = delivery

    def done(self) -> bool:
        return self._delivery.done()

    def result(self, timeout_ms: int | None = None) -> list[OffsetRange]:
        """Waits until all rows are done and returns their offsets. Raises the first failure, or
        TimedOut."""
        if not self._delivery.done():
            BlockingClient.run(self._client, _wait(self._delivery, timeout_ms))
        return self._delivery.result()


async def _wait(delivery: "Delivery | table_sender.TableDelivery", timeout_ms: int | None) -> None:
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            await delivery.wait()
    except TimeoutError:
        raise TimedOut(
            f"the delivery was still pending after {timeout_ms} ms: call result() again to keep"
            " waiting"
        ) from None


def _deliveries(
    client: BlockingClient[Any], deliveries: asynchronous_deliveries.Deliveries
) -> list[Delivery]:
    return [Delivery(client, delivery) for delivery in deliveries]


async def _run_after(queue: CrossThreadQueue, work: Coroutine[Any, Any, R]) -> R:
    try:
        await queue.wait_empty()
    except BaseException:
        work.close()
        raise
    return await work


class Producer(BlockingClient[asynchronous.Producer]):
    """See the asynchronous `Producer`. Threads may share it."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[ProducerKeywords]"
    ) -> None:
        super().__init__(asynchronous.Producer(settings, **keywords), "producer")
        self._record_queue: CrossThreadQueue | None = None

    def start(self) -> None:
        """Opens the producer. `with` calls it."""
        super().start()
        self._record_queue = self.call(lambda: self._client._open_cross_thread_queue(self.post))
        _open_producers.add(self)

    def enqueue(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Passes the record to the client's thread, and waits only if its queue is full. If the
        topic or buffer space is not available within max.block.ms, the delivery fails."""
        self.check_usable(None)
        queue = self._record_queue
        assert queue is not None
        if queue.is_full:
            self.run(queue.wait_empty())
        record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
        return Delivery(self, queue.put(record))

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
        """Passes the record to the client's thread without waiting for brokers. Raises BufferFull
        if the buffer is full, and WrongUse if the topic's metadata is not available yet: call
        `producer.prepare(topic)` first."""
        self.check_usable(None)
        queue = self._record_queue
        assert queue is not None
        record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
        if queue.takes_at_once(record):
            return Delivery(self, queue.put(record))
        # The client raises the reason, once it has taken the records before this one.
        return Delivery(
            self,
            self.call(
                lambda: self._client.send_nowait(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
            ),
        )

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine in the client's loop once all queued records have been taken."""
        self.check_may_wait(work)
        queue = self._record_queue
        return super().run(work if queue is None else _run_after(queue, work))

    send = blocking_method(asynchronous.Producer.send)
    send_many = blocking_method(asynchronous.Producer.send_many, _deliveries)
    send_arrow = blocking_method(asynchronous.Producer.send_arrow)
    enqueue_arrow = blocking_method(asynchronous.Producer.enqueue_arrow, TableDelivery)
    prepare = blocking_method(asynchronous.Producer.prepare)
    flush = blocking_method(asynchronous.Producer.flush)
    init_transactions = blocking_method(asynchronous.Producer.init_transactions)
    begin_transaction = blocking_method(asynchronous.Producer.begin_transaction)
    prepare_transaction = blocking_method(asynchronous.Producer.prepare_transaction)
    commit_transaction = blocking_method(asynchronous.Producer.commit_transaction)
    abort_transaction = blocking_method(asynchronous.Producer.abort_transaction)
    send_offsets = blocking_method(asynchronous.Producer.send_offsets)
    transaction = context_method(asynchronous.Producer.transaction)
    metrics = direct_method(asynchronous.Producer.metrics)

    def close(self, timeout_ms: int = asynchronous.CLOSE_TIMEOUT_MS) -> None:
        """Sends the buffered records, and fails those that are not acknowledged in time."""
        self.finish(self._close(timeout_ms))

    async def _close(self, timeout_ms: int) -> None:
        if self._record_queue is not None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._record_queue.wait_empty()
            except TimeoutError:
                pass
            self._record_queue.close()
        await self._client.close(timeout_ms)

    def _has_pending(self) -> bool:
        """Whether any record is neither acknowledged nor failed."""
        has_queued = self._record_queue is not None and not self._record_queue.is_empty
        return has_queued or self._client.has_pending


_open_producers: Final[WeakSet[Producer]] = WeakSet()


@atexit.register
def _warn_of_pending_records() -> None:
    """Logs a warning for producers that are open when the program exits. Does not wait for them."""
    for producer in list(_open_producers):
        if producer._loop.is_running and producer._has_pending():
            LOGGER.warning(
                "the program exits without closing its producer: records that are not acknowledged"
                " yet may be lost; use `with`, or call flush() or close() before exiting"
            )


class Consumer(SingleThreadClient[consumer.Consumer]):
    """See the asynchronous `Consumer`. Only the thread that opened it may use it. Rebalance
    listeners are called in the client's thread."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[ConsumerKeywords]"
    ) -> None:
        super().__init__(consumer.Consumer(settings, **keywords), "consumer")

    subscribe = direct_method(consumer.Consumer.subscribe)
    subscribe_pattern = direct_method(consumer.Consumer.subscribe_pattern)
    unsubscribe = blocking_method(consumer.Consumer.unsubscribe)
    subscription = direct_method(consumer.Consumer.subscription)
    assign = direct_method(consumer.Consumer.assign)
    assignment = direct_method(consumer.Consumer.assignment)
    pause = direct_method(consumer.Consumer.pause)
    resume = direct_method(consumer.Consumer.resume)
    paused = direct_method(consumer.Consumer.paused)
    group_metadata = direct_method(consumer.Consumer.group_metadata)
    enforce_rebalance = direct_method(consumer.Consumer.enforce_rebalance)
    poll = blocking_method(consumer.Consumer.poll)
    fetch_arrow = blocking_method(consumer.Consumer.fetch_arrow)
    seek = direct_method(consumer.Consumer.seek)
    seek_to_beginning = direct_method(consumer.Consumer.seek_to_beginning)
    seek_to_end = direct_method(consumer.Consumer.seek_to_end)
    position = blocking_method(consumer.Consumer.position)
    beginning_offsets = blocking_method(consumer.Consumer.beginning_offsets)
    end_offsets = blocking_method(consumer.Consumer.end_offsets)
    offsets_for_times = blocking_method(consumer.Consumer.offsets_for_times)
    lag = direct_method(consumer.Consumer.lag)
    preferred_replica = direct_method(consumer.Consumer.preferred_replica)
    commit = blocking_method(consumer.Consumer.commit)
    commit_nowait = direct_method(consumer.Consumer.commit_nowait)
    committed = blocking_method(consumer.Consumer.committed)
    get = blocking_method(consumer.Consumer.get)
    topics = blocking_method(consumer.Consumer.topics)
    partitions_for = blocking_method(consumer.Consumer.partitions_for)
    metrics = direct_method(consumer.Consumer.metrics)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Returns the next record. Takes records that are ready without calling the client's
        thread, which does not change them while the application does not wait."""
        self.check_usable(None)
        found = self._client.__anext__()
        if isinstance(found, ImmediateResult):
            record: ConsumerRecord = found.value
            return record

        async def next_one() -> ConsumerRecord:
            return await found

        try:
            return self.run(next_one())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self, timeout_ms: int = consumer.CLOSE_TIMEOUT_MS) -> None:
        """Leaves the group, after a last commit if enable.auto.commit is set."""
        self.finish(self._client.close(timeout_ms))


class Admin(BlockingClient[admin.Admin]):
    """See the asynchronous `Admin`. Threads may share it."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[AdminKeywords]"
    ) -> None:
        super().__init__(admin.Admin(settings, **keywords), "admin client")

    list_offsets = blocking_method(admin.Admin.list_offsets)
    delete_records = blocking_method(admin.Admin.delete_records)
    describe_producers = blocking_method(admin.Admin.describe_producers)
    elect_leaders = blocking_method(admin.Admin.elect_leaders)
    reassign = blocking_method(admin.Admin.reassign)
    list_reassignments = blocking_method(admin.Admin.list_reassignments)
    list_transactions = blocking_method(admin.Admin.list_transactions)
    describe_transactions = blocking_method(admin.Admin.describe_transactions)
    fence_producers = blocking_method(admin.Admin.fence_producers)
    find_hanging_transactions = blocking_method(admin.Admin.find_hanging_transactions)
    abort_transaction = blocking_method(admin.Admin.abort_transaction)
    list_groups = blocking_method(admin.Admin.list_groups)
    describe_groups = blocking_method(admin.Admin.describe_groups)
    delete_groups = blocking_method(admin.Admin.delete_groups)
    remove_members = blocking_method(admin.Admin.remove_members)
    list_group_offsets = blocking_method(admin.Admin.list_group_offsets)
    list_offsets_of_groups = blocking_method(admin.Admin.list_offsets_of_groups)
    list_topic_groups = blocking_method(admin.Admin.list_topic_groups)
    alter_group_offsets = blocking_method(admin.Admin.alter_group_offsets)
    delete_group_offsets = blocking_method(admin.Admin.delete_group_offsets)
    describe_user_scram_credentials = blocking_method(admin.Admin.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking_method(admin.Admin.alter_user_scram_credentials)
    list_acls = blocking_method(admin.Admin.list_acls)
    create_acls = blocking_method(admin.Admin.create_acls)
    delete_acls = blocking_method(admin.Admin.delete_acls)
    explain_access = blocking_method(admin.Admin.explain_access)
    describe_client_quotas = blocking_method(admin.Admin.describe_client_quotas)
    alter_client_quotas = blocking_method(admin.Admin.alter_client_quotas)
    create_delegation_token = blocking_method(admin.Admin.create_delegation_token)
    renew_delegation_token = blocking_method(admin.Admin.renew_delegation_token)
    expire_delegation_token = blocking_method(admin.Admin.expire_delegation_token)
    describe_delegation_tokens = blocking_method(admin.Admin.describe_delegation_tokens)
    list_retention_holds = blocking_method(admin.Admin.list_retention_holds)
    plan_reset = blocking_method(admin.Admin.plan_reset)
    plan_undo = blocking_method(admin.Admin.plan_undo)
    reset_offsets = blocking_method(admin.Admin.reset_offsets)
    undo_reset = blocking_method(admin.Admin.undo_reset)
    execute_reset = blocking_method(admin.Admin.execute_reset)
    describe_cluster = blocking_method(admin.Admin.describe_cluster)
    describe_features = blocking_method(admin.Admin.describe_features)
    update_features = blocking_method(admin.Admin.update_features)
    describe_log_dirs = blocking_method(admin.Admin.describe_log_dirs)
    alter_replica_log_dirs = blocking_method(admin.Admin.alter_replica_log_dirs)
    unregister_broker = blocking_method(admin.Admin.unregister_broker)
    describe_quorum = blocking_method(admin.Admin.describe_quorum)
    add_voter = blocking_method(admin.Admin.add_voter)
    remove_voter = blocking_method(admin.Admin.remove_voter)
    describe_configs = blocking_method(admin.Admin.describe_configs)
    describe_skipped_configs = blocking_method(admin.Admin.describe_skipped_configs)
    alter_configs = blocking_method(admin.Admin.alter_configs)
    list_config_resources = blocking_method(admin.Admin.list_config_resources)
    alter_replication = blocking_method(admin.Admin.alter_replication)
    create_topics = blocking_method(admin.Admin.create_topics)
    delete_topics = blocking_method(admin.Admin.delete_topics)
    create_partitions = blocking_method(admin.Admin.create_partitions)
    list_topics = blocking_method(admin.Admin.list_topics)
    describe_topics = blocking_method(admin.Admin.describe_topics)
    connect = blocking_method(admin.Admin.connect)
    probe = blocking_method(admin.Admin.probe)
    metrics = direct_method(admin.Admin.metrics)

    def close(self) -> None:
        self.finish(self._client.close())
