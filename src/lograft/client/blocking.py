"""The clients for programs that do not await: the same words, without `await`.

    from lograft.client.blocking import Producer

    with Producer(bootstrap_servers="localhost:9092") as producer:
        acknowledged = producer.send("greetings", b"hello", key=b"world")

Each client runs in a thread of its own, and a method here waits for the method of the same name
there (`faces.py`). Callbacks run in the client's thread: they must be short, and cannot call what
waits.
"""

import asyncio
import atexit
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack
from weakref import WeakSet

from lograft.client import admin, consumer
from lograft.client import producer as asynchronous
from lograft.client.consuming.immediate_result import ImmediateResult
from lograft.client.errors import TimedOut
from lograft.client.faces import Face, OwnedFace, awaited, called, entered
from lograft.client.producing import deliveries as sent
from lograft.client.producing.handover import Handover, Promise
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.record_parts import Headers
from lograft.client.types import Acknowledged, ConsumerRecord, OffsetRange
from lograft.model.metrics import value_of

if TYPE_CHECKING:
    from lograft.client.columns import sending
    from lograft.client.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords

LOGGER: Final = logging.getLogger(__name__)

R = TypeVar("R")

__all__ = ["Admin", "Consumer", "Delivery", "Producer", "TableDelivery"]


class Delivery:
    """The fate of one record; any thread may ask."""

    __slots__ = ("_face", "_promise")

    def __init__(self, face: Face[Any], given: "sent.Delivery | Promise") -> None:
        self._face = face
        if isinstance(given, sent.Delivery):
            self._promise = Promise()
            self._promise.settle(given)
        else:
            self._promise = given

    def done(self) -> bool:
        delivery = self._promise.delivery
        return self._promise.error is not None or (delivery is not None and delivery.done())

    def result(self, timeout_ms: int | None = None) -> Acknowledged:
        """Waits for it; raises what the record failed with, or TimedOut."""
        if not self.done():
            # Not after all that was handed over before: that may take longer than the caller has.
            Face.run(self._face, _wait(self, timeout_ms))
        promise = self._promise
        if promise.error is not None:
            raise promise.error
        assert promise.delivery is not None
        return promise.delivery.result()

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Called with this delivery in the client's thread when its fate is known; at once, and
        here, if it is."""
        if self.done():
            sent.tell(callback, self)
        else:
            self._face.post(lambda: self._promise.on_settled(lambda: self._when_done(callback)))

    async def wait(self) -> None:
        """In the client's loop: until its fate is known, whatever it is."""
        promise = self._promise
        if not promise.is_settled:
            settled = asyncio.Event()
            promise.on_settled(settled.set)
            await settled.wait()
        if promise.delivery is not None:
            await promise.delivery.wait()

    def _when_done(self, callback: "Callable[[Delivery], object]") -> None:
        delivery = self._promise.delivery
        if delivery is None:
            sent.tell(callback, self)
        else:
            delivery.add_done_callback(lambda _delivery: sent.tell(callback, self))


class TableDelivery:
    """The fate of a table's rows; any thread may ask."""

    __slots__ = ("_delivery", "_face")

    def __init__(self, face: Face[Any], delivery: "sending.TableDelivery") -> None:
        self._face = face
        self._delivery = delivery

    def done(self) -> bool:
        return self._delivery.done()

    def result(self, timeout_ms: int | None = None) -> list[OffsetRange]:
        """Waits for it; raises what the first row failed with, or TimedOut."""
        if not self._delivery.done():
            Face.run(self._face, _wait(self._delivery, timeout_ms))
        return self._delivery.result()


async def _wait(delivery: "Delivery | sending.TableDelivery", timeout_ms: int | None) -> None:
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            await delivery.wait()
    except TimeoutError:
        raise TimedOut(f"what was sent has no known fate after {timeout_ms} ms") from None


def _deliveries(face: Face[Any], deliveries: sent.Deliveries) -> list[Delivery]:
    return [Delivery(face, delivery) for delivery in deliveries]


async def _after(handover: Handover, work: Coroutine[Any, Any, R]) -> R:
    try:
        await handover.wait_empty()
    except BaseException:
        work.close()
        raise
    return await work


class Producer(Face[asynchronous.Producer]):
    """May be shared by threads."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[ProducerKeywords]"
    ) -> None:
        super().__init__(asynchronous.Producer(settings, **keywords), "producer")
        self._handover: Handover | None = None

    def start(self) -> None:
        """Opens the producer; `with` does it too."""
        super().start()
        self._handover = self.call(lambda: self._client._handover(self.post))
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
        """Hands the record to the client's thread, and waits only if many wait there already. The
        delivery tells the rest, also that there was no such topic or no room in max.block.ms."""
        self.check_caller(None)
        handover = self._handover
        assert handover is not None
        if handover.is_full:
            self.run(handover.wait_empty())
        record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
        return Delivery(self, handover.put(record))

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
        """Hands the record to the client's thread, and never waits for brokers. Raises BufferFull
        when there is no room, and WrongUse while the topic is not known: `producer.prepare(topic)`
        first. The delivery tells the rest."""
        self.check_caller(None)
        handover = self._handover
        assert handover is not None
        record = Outgoing(topic, value, key, partition, timestamp_ms, headers)
        if handover.takes_at_once(record):
            return Delivery(self, handover.put(record))
        # The client itself knows what is the matter, once it has taken what came before.
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
        """Waits for something in the client's loop, after all that was handed over before."""
        self.check_waiter(work)
        handover = self._handover
        return super().run(work if handover is None else _after(handover, work))

    send = awaited(asynchronous.Producer.send)
    send_many = awaited(asynchronous.Producer.send_many, _deliveries)
    send_arrow = awaited(asynchronous.Producer.send_arrow)
    enqueue_arrow = awaited(asynchronous.Producer.enqueue_arrow, TableDelivery)
    prepare = awaited(asynchronous.Producer.prepare)
    flush = awaited(asynchronous.Producer.flush)
    init_transactions = awaited(asynchronous.Producer.init_transactions)
    begin_transaction = awaited(asynchronous.Producer.begin_transaction)
    prepare_transaction = awaited(asynchronous.Producer.prepare_transaction)
    commit_transaction = awaited(asynchronous.Producer.commit_transaction)
    abort_transaction = awaited(asynchronous.Producer.abort_transaction)
    send_offsets = awaited(asynchronous.Producer.send_offsets)
    transaction = entered(asynchronous.Producer.transaction)
    metrics = called(asynchronous.Producer.metrics)
    collect_samples = called(asynchronous.Producer.collect_samples)

    def close(self, timeout_ms: int = asynchronous.CLOSE_TIMEOUT_MS) -> None:
        """Sends what is there, and fails what is not acknowledged when the time is up."""
        self.finish(self._close(timeout_ms))

    async def _close(self, timeout_ms: int) -> None:
        if self._handover is not None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._handover.wait_empty()
            except TimeoutError:
                pass
            self._handover.end()
        await self._client.close(timeout_ms)

    def _has_unfinished(self) -> bool:
        """Whether something that was handed over has no known fate."""
        waits = self._handover is not None and not self._handover.is_empty
        return waits or value_of(self._client, asynchronous.BATCHES_UNFINISHED) > 0


_open_producers: Final[WeakSet[Producer]] = WeakSet()


@atexit.register
def _tell_of_unfinished() -> None:
    """A program that ends does not wait for clients that it has not closed, but is told."""
    for producer in list(_open_producers):
        if producer._loop.is_running and producer._has_unfinished():
            LOGGER.warning(
                "the program ends without closing its producer: records that are not acknowledged"
                " yet may be lost; use `with`, or call flush() or close() before the end"
            )


class Consumer(OwnedFace[consumer.Consumer]):
    """Belongs to the thread that opened it. Listeners are called in the client's thread."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[ConsumerKeywords]"
    ) -> None:
        super().__init__(consumer.Consumer(settings, **keywords), "consumer")

    subscribe = called(consumer.Consumer.subscribe)
    subscribe_pattern = called(consumer.Consumer.subscribe_pattern)
    unsubscribe = awaited(consumer.Consumer.unsubscribe)
    subscription = called(consumer.Consumer.subscription)
    assign = called(consumer.Consumer.assign)
    assignment = called(consumer.Consumer.assignment)
    pause = called(consumer.Consumer.pause)
    resume = called(consumer.Consumer.resume)
    paused = called(consumer.Consumer.paused)
    group_metadata = called(consumer.Consumer.group_metadata)
    enforce_rebalance = called(consumer.Consumer.enforce_rebalance)
    poll = awaited(consumer.Consumer.poll)
    fetch_arrow = awaited(consumer.Consumer.fetch_arrow)
    seek = called(consumer.Consumer.seek)
    seek_to_beginning = called(consumer.Consumer.seek_to_beginning)
    seek_to_end = called(consumer.Consumer.seek_to_end)
    position = awaited(consumer.Consumer.position)
    beginning_offsets = awaited(consumer.Consumer.beginning_offsets)
    end_offsets = awaited(consumer.Consumer.end_offsets)
    offsets_for_times = awaited(consumer.Consumer.offsets_for_times)
    lag = called(consumer.Consumer.lag)
    preferred_replica = called(consumer.Consumer.preferred_replica)
    commit = awaited(consumer.Consumer.commit)
    commit_nowait = called(consumer.Consumer.commit_nowait)
    committed = awaited(consumer.Consumer.committed)
    get = awaited(consumer.Consumer.get)
    topics = awaited(consumer.Consumer.topics)
    partitions_for = awaited(consumer.Consumer.partitions_for)
    metrics = called(consumer.Consumer.metrics)
    collect_samples = called(consumer.Consumer.collect_samples)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """Records that lie ready are taken without a word to the client's thread, which moves
        nothing of theirs while the program does not wait."""
        self.check_caller(None)
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
        """Leaves the group, after a last commit where positions are committed by themselves."""
        self.finish(self._client.close(timeout_ms))


class Admin(Face[admin.Admin]):
    """May be shared by threads."""

    def __init__(
        self, settings: Mapping[str, Any] | None = None, /, **keywords: "Unpack[AdminKeywords]"
    ) -> None:
        super().__init__(admin.Admin(settings, **keywords), "administrator")

    list_offsets = awaited(admin.Admin.list_offsets)
    delete_records = awaited(admin.Admin.delete_records)
    describe_producers = awaited(admin.Admin.describe_producers)
    elect_leaders = awaited(admin.Admin.elect_leaders)
    reassign = awaited(admin.Admin.reassign)
    list_reassignments = awaited(admin.Admin.list_reassignments)
    list_transactions = awaited(admin.Admin.list_transactions)
    describe_transactions = awaited(admin.Admin.describe_transactions)
    fence_producers = awaited(admin.Admin.fence_producers)
    find_hanging_transactions = awaited(admin.Admin.find_hanging_transactions)
    abort_transaction = awaited(admin.Admin.abort_transaction)
    list_groups = awaited(admin.Admin.list_groups)
    describe_groups = awaited(admin.Admin.describe_groups)
    delete_groups = awaited(admin.Admin.delete_groups)
    remove_members = awaited(admin.Admin.remove_members)
    list_group_offsets = awaited(admin.Admin.list_group_offsets)
    list_offsets_of_groups = awaited(admin.Admin.list_offsets_of_groups)
    list_topic_groups = awaited(admin.Admin.list_topic_groups)
    alter_group_offsets = awaited(admin.Admin.alter_group_offsets)
    delete_group_offsets = awaited(admin.Admin.delete_group_offsets)
    list_retention_holds = awaited(admin.Admin.list_retention_holds)
    plan_reset = awaited(admin.Admin.plan_reset)
    plan_undo = awaited(admin.Admin.plan_undo)
    reset_offsets = awaited(admin.Admin.reset_offsets)
    undo_reset = awaited(admin.Admin.undo_reset)
    execute_reset = awaited(admin.Admin.execute_reset)
    describe_cluster = awaited(admin.Admin.describe_cluster)
    describe_features = awaited(admin.Admin.describe_features)
    update_features = awaited(admin.Admin.update_features)
    describe_log_dirs = awaited(admin.Admin.describe_log_dirs)
    alter_replica_log_dirs = awaited(admin.Admin.alter_replica_log_dirs)
    unregister_broker = awaited(admin.Admin.unregister_broker)
    describe_quorum = awaited(admin.Admin.describe_quorum)
    add_voter = awaited(admin.Admin.add_voter)
    remove_voter = awaited(admin.Admin.remove_voter)
    describe_configs = awaited(admin.Admin.describe_configs)
    describe_skipped_configs = awaited(admin.Admin.describe_skipped_configs)
    alter_configs = awaited(admin.Admin.alter_configs)
    list_config_resources = awaited(admin.Admin.list_config_resources)
    alter_replication = awaited(admin.Admin.alter_replication)
    create_topics = awaited(admin.Admin.create_topics)
    delete_topics = awaited(admin.Admin.delete_topics)
    create_partitions = awaited(admin.Admin.create_partitions)
    list_topics = awaited(admin.Admin.list_topics)
    describe_topics = awaited(admin.Admin.describe_topics)
    connect = awaited(admin.Admin.connect)
    probe = awaited(admin.Admin.probe)
    metrics = called(admin.Admin.metrics)
    collect_samples = called(admin.Admin.collect_samples)

    def close(self) -> None:
        self.finish(self._client.close())
