"""Sends what is ready: a request per broker with a batch of each of its partitions, up to the limit
in flight; deals with the answers.

Order. A partition's batches are taken in order. Without idempotence a retry may overtake only if
more than one request may be in flight. With it, a batch that is sent again goes alone: nothing of
its partition is sent until it is resolved, and brokers refuse what comes out of order meanwhile.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from lograft.client.backoff import backoff_ms
from lograft.client.broker_connection import BrokerConnection
from lograft.client.core import ClientCore
from lograft.client.errors import (
    STALE_METADATA,
    ClientError,
    OutcomeUnknown,
    TimedOut,
    broker_error,
)
from lograft.client.network import Broker
from lograft.client.producing.accumulator import Accumulator, PartitionQueue
from lograft.client.producing.batches import Batch
from lograft.client.producing.missing_partitions import MissingPartitions
from lograft.client.producing.producer_identity import IdempotentIdentity, ProducerIdentity
from lograft.client.producing.record_errors import RecordErrors, record_errors_of
from lograft.client.producing.requests import Content, ProduceRequests
from lograft.client.producing.sequences import Sequences
from lograft.client.producing.settings import ProducerSettings
from lograft.client.producing.transactions import Transactions
from lograft.client.work_scheduler import NO_DEADLINE_MS, WorkScheduler
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Address
from lograft.model.types import NO_SEQUENCE
from lograft.wire.apis import PRODUCE_KEY
from lograft.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
)

LOGGER: Final = logging.getLogger(__name__)

_OUT_OF_ORDER: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


_Outcome: TypeAlias = ProduceResponse | OutcomeUnknown

BATCHES_SENT: Final = Counter(
    "lograft_client_batches_sent_total", "Batches that the producer sent, including retries."
)
RECORDS_ACKNOWLEDGED: Final = Counter(
    "lograft_client_records_acknowledged_total",
    "Records of the producer that brokers acknowledged.",
)
RETRIES: Final = Counter(
    "lograft_client_batch_retries_total", "Batches that failed and were queued for a retry."
)
BATCHES_FAILED: Final = Counter(
    "lograft_client_batches_failed_total", "Batches that failed for good."
)


class Sent(NamedTuple):
    queue: PartitionQueue
    batch: Batch


class Sender:
    def __init__(self, core: ClientCore[ProducerSettings], accumulator: Accumulator) -> None:
        self._core = core
        self._settings = core.settings
        self._clock = core.runtime.clock
        self._loop = asyncio.get_running_loop()
        self._accumulator = accumulator
        self.transactions: Transactions | None = None
        #: Who the producer is for the brokers; None: nobody, batches may come twice.
        self._identity: ProducerIdentity | None = None
        if core.settings.transactional_id is not None:
            self.transactions = self._identity = Transactions(core, accumulator, self)
        elif core.settings.is_idempotent:
            self._identity = IdempotentIdentity(core, accumulator, self)
        self.sequences = None if self._identity is None else self._identity.sequences
        self._missing_partitions = MissingPartitions(core)
        self._scheduler = WorkScheduler(self._send_what_is_ready, self._on_failure)
        self._in_flight: dict[int, int] = {}
        #: Of requests, in their order, and not yet dealt with.
        self._outcomes: list[tuple[int, list[Sent], _Outcome]] = []
        self._connecting: set[int] = set()
        self._is_fatal: Exception | None = None
        self._requests = ProduceRequests(core)
        self._acks = core.settings.required_acks
        self._codec, self._level = core.settings.codec, core.settings.compression_level
        #: Not with acks=0: nobody would ever be in flight, and no batch be gathered.
        self._goes_at_once = not core.settings.linger_ms and self._acks != 0
        self._batches_sent = 0
        self._records_acknowledged = 0
        self._retries = 0
        self._batches_failed = 0

    def start(self) -> None:
        self._core.metadata.on_update(self.wake)

    def wake(self) -> None:
        """There may be something to send: looked at in the loop's next turn."""
        self._scheduler.wake()

    def on_record(self) -> None:
        """A batch has been begun or filled by a single record. One that need not linger goes at
        once if nothing is in flight; what comes while it is gathers in a batch."""
        if self._goes_at_once and not any(self._in_flight.values()):
            self._scheduler.run_now()
        else:
            self._scheduler.wake()

    def stop(self) -> None:
        self._scheduler.stop()

    def collect_samples(self) -> Iterator[Sample]:
        yield BATCHES_SENT.sample(self._batches_sent)
        yield RECORDS_ACKNOWLEDGED.sample(self._records_acknowledged)
        yield RETRIES.sample(self._retries)
        yield BATCHES_FAILED.sample(self._batches_failed)

    def fail(self, error: Exception) -> None:
        """Nothing will be sent any more: everything that waits fails with this."""
        self._is_fatal = error
        self.fail_unsent(error)

    def fail_unsent(self, error: Exception) -> None:
        """What has not been sent fails with this."""
        for queue in list(self._accumulator.active):
            self._fail_all(queue, error)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def _on_failure(self, error: BaseException) -> None:
        self._core.fail(error)
        self.fail(error if isinstance(error, Exception) else ClientError(repr(error)))

    def _send_what_is_ready(self) -> int:
        """How long until something else becomes ready by itself."""
        now_ms = self._clock.mono_ms()
        if self._has_sent_alone(now_ms):
            return NO_DEADLINE_MS
        self._expire(now_ms)
        if self._identity is not None and not self._identity.is_ready():
            return self._next_expiry_ms(now_ms)
        wait_ms = NO_DEADLINE_MS
        by_leader: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.active:
            ready_ms = self._accumulator.ready_at_ms(queue) - now_ms
            if ready_ms > 0:
                wait_ms = min(wait_ms, ready_ms)
                continue
            if not self._may_send(queue):
                continue
            if queue.missing_until_ms is not None:
                wait_ms = min(wait_ms, max(1, queue.missing_until_ms - now_ms))
            leader = self._missing_partitions.leader_of(queue)
            if leader is None:
                self._core.metadata.use(queue.topic)
                self._core.metadata.request_update()
                continue
            by_leader.setdefault(leader, []).append(queue)
        for leader, queues in by_leader.items():
            self._send_to(leader, queues)
        return min(wait_ms, self._next_expiry_ms(now_ms))

    def _has_sent_alone(self, now_ms: int) -> bool:
        """The short way of a batch that nothing waits beside. False: there is more to see to."""
        active = self._accumulator.active
        if len(active) != 1:
            return False
        (queue,) = active
        first = queue.batches[0]
        waited_ms = now_ms - first.created_ms
        if (
            len(queue.batches) > 1
            or queue.in_flight
            or first.attempts
            or queue.missing_until_ms is not None
            or not self._settings.linger_ms <= waited_ms < self._settings.delivery_timeout_ms
            or (self._identity is not None and not self._identity.is_ready())
            or not self._may_send(queue)
        ):
            return False
        leader = self._missing_partitions.leader_of(queue)
        link = None if leader is None else self._core.network.ready_connection(leader)
        if leader is None or link is None or self._in_flight.get(leader):
            return False
        self._send_request(leader, link, self._drain([queue]))
        return True

    def _next_expiry_ms(self, now_ms: int) -> int:
        if not self._accumulator.active:
            return NO_DEADLINE_MS
        created = [queue.batches[0].created_ms for queue in self._accumulator.active]
        return max(1, min(created) + self._settings.delivery_timeout_ms - now_ms)

    def _expire(self, now_ms: int) -> None:
        for queue in self._missing_partitions.find_expired(self._accumulator.active, now_ms):
            self._fail_all(queue, self._missing_partitions.expiry_error(queue))
        for batch in self._accumulator.expired(now_ms):
            waited_ms = now_ms - batch.created_ms
            self._fail(
                batch,
                TimedOut(
                    f"{batch.count} records for {batch.topic}-{batch.partition} were not"
                    f" acknowledged within delivery.timeout.ms: {waited_ms} ms and"
                    f" {batch.attempts} attempts"
                    + (f"; the last: {batch.last_error}" if batch.last_error else "")
                ),
            )

    def _may_send(self, queue: PartitionQueue) -> bool:
        first = queue.batches[0]
        in_flight = queue.in_flight
        if self._identity is None or self.sequences is None:
            only_one = self._settings.max_in_flight_requests_per_connection == 1
            return not (only_one and in_flight)
        if first.sequence == NO_SEQUENCE:
            # What has no sequence yet waits while others of its partition are being sent again.
            return (
                self.sequences.may_assign
                and (not in_flight or all(one.attempts <= 1 for one in in_flight))
                and self._identity.admits(queue)
            )
        return not in_flight

    def _send_to(self, leader: int, queues: list[PartitionQueue]) -> None:
        while queues:
            if (
                self._in_flight.get(leader, 0)
                >= self._settings.max_in_flight_requests_per_connection
            ):
                return
            link = self._core.network.ready_connection(leader)
            if link is None:
                self._connect(leader)
                return
            self._send_request(leader, link, self._drain(queues))
            now_ms = self._clock.mono_ms()
            queues = [
                queue
                for queue in queues
                if queue.batches
                and self._accumulator.ready_at_ms(queue) <= now_ms
                and self._may_send(queue)
            ]

    def _drain(self, queues: Sequence[PartitionQueue]) -> list[Sent]:
        """One batch of each, up to max.request.size; at least one."""
        taken: list[Sent] = []
        size = 0
        for queue in queues:
            if taken and size + queue.batches[0].size_bytes > self._settings.max_request_size:
                break
            size += queue.batches[0].size_bytes
            batch = self._accumulator.take(queue)
            if self._identity is not None:
                self._identity.on_sending(batch)
            batch.attempts += 1
            queue.in_flight.append(batch)
            queue.has_requested_creation = queue.missing_until_ms is not None
            taken.append(Sent(queue, batch))
        return taken

    def _connect(self, leader: int) -> None:
        if leader in self._connecting:
            return
        self._connecting.add(leader)

        async def connect() -> None:
            try:
                await self._core.network.connect(leader)
            except ClientError as error:
                LOGGER.debug("no connection to broker %d: %s", leader, error)
                self._note_obstacle(leader, error)
                self._core.metadata.request_update()
                if not error.is_retriable:
                    self.fail(error)
            # Not after a cancellation: the client or its loop is being closed.
            self._connecting.discard(leader)
            self.wake()

        self._core.runtime.spawn(connect(), name=f"connect to broker {leader}")

    def _note_obstacle(self, leader: int, error: ClientError) -> None:
        """What waits for a broker can say why when its time is up."""
        for queue in self._accumulator.active:
            known = self._core.metadata.cache.partition(queue.topic, queue.partition)
            if known is not None and known.leader == leader:
                queue.batches[0].last_error = error

    # ── one request ──────────────────────────────────────────────────────────────────────────

    def _send_request(self, leader: int, link: BrokerConnection, sent: list[Sent]) -> None:
        identity = self._identity
        at_most = None if identity is None else identity.produce_version_max
        contents = [self._content(batch) for _, batch in sent]
        self._batches_sent += len(sent)
        if not self._acks:
            version = link.version_of(PRODUCE_KEY, at_most=at_most)
            link.send_oneway(self._requests.of(contents, version), version)
            for queue, batch in sent:
                queue.in_flight.remove(batch)
                self._acknowledge(batch, -1)
            return
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        on_outcome = partial(self._on_outcome, leader, sent)
        timeout_ms = self._settings.request_timeout_ms
        if len(contents) == 1:
            topic, partition, records = contents[0]
            lone = self._requests.lone(topic, partition, link, at_most)
            if lone is not None:
                link.send_packed(
                    lone.parts,
                    records,
                    ProduceResponse,
                    on_outcome,
                    version=lone.version,
                    timeout_ms=timeout_ms,
                )
                return
        version = link.version_of(PRODUCE_KEY, at_most=at_most)
        request = self._requests.of(contents, version)
        link.send(request, ProduceResponse, on_outcome, version=version, timeout_ms=timeout_ms)

    def _content(self, batch: Batch) -> Content:
        data = batch.data(self._codec, self._level)
        self._accumulator.compressed(batch, len(data))
        return Content(batch.topic, batch.partition, data)

    # ── answers ──────────────────────────────────────────────────────────────────────────────

    def _on_outcome(self, leader: int, sent: list[Sent], outcome: _Outcome) -> None:
        """Dealt with a turn later: records that have come to a consumer in the same turn go before
        news of records that have gone, and a program that waits for both asks for more of the
        first while it waits for the second."""
        if not self._outcomes:
            self._loop.call_soon(self._deal_with_outcomes)
        self._outcomes.append((leader, sent, outcome))

    def _deal_with_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for leader, sent, outcome in outcomes:
            self._deal_with(leader, sent, outcome)

    def _deal_with(self, leader: int, sent: list[Sent], outcome: _Outcome) -> None:
        for queue, batch in sent:
            queue.in_flight.remove(batch)
        if isinstance(outcome, OutcomeUnknown):
            self._core.metadata.request_update()
            for queue, batch in sent:
                self._retry(queue, batch, outcome)
        else:
            self._on_response(sent, outcome)
        # Now only: what a callback sends must not pass a batch that is to be sent again.
        self._in_flight[leader] -= 1
        if self._accumulator.active:
            self.wake()

    def _on_response(self, sent: list[Sent], answer: ProduceResponse) -> None:
        found: dict[tuple[str, int], PartitionProduceResponse] = {}
        cache = self._core.metadata.cache
        for topic in answer.responses:
            known = None if topic.name else cache.topic_by_id(topic.topic_id)
            name = topic.name or ("" if known is None else known.name)
            for partition in topic.partition_responses:
                found[name, partition.index] = partition
        brokers = [
            Broker(one.node_id, Address(one.host, one.port), one.rack)
            for one in answer.node_endpoints
        ]
        for queue, batch in sent:
            told = found.get((batch.topic, batch.partition))
            if told is None:
                self._core.metadata.request_update()
                self._retry(queue, batch, OutcomeUnknown("the broker's answer leaves it out"))
            else:
                self._on_told(queue, batch, told, brokers)

    def _on_told(
        self,
        queue: PartitionQueue,
        batch: Batch,
        told: PartitionProduceResponse,
        brokers: list[Broker],
    ) -> None:
        code = told.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # A duplicate is in the log already; where, the broker may have forgotten.
            if queue.missing_until_ms is not None:
                self._core.metadata.request_update()  # the topic has grown
            self._acknowledge(batch, told.base_offset, told.log_append_time_ms)
            return
        leader = told.current_leader
        if leader is not None and leader.leader_id >= 0:
            self._core.metadata.update_leader(
                batch.topic, batch.partition, leader.leader_id, leader.leader_epoch, brokers
            )
        elif code in STALE_METADATA:
            self._core.metadata.request_update()
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(queue, batch)
            return
        what = f"{batch.topic}-{batch.partition}"
        error = broker_error(code, what, told.error_message)
        if self.sequences is not None and code in _OUT_OF_ORDER:
            self._on_out_of_order(self.sequences, queue, batch, error)
        elif error.is_retriable:
            self._retry(queue, batch, error)
        else:
            self._fail(batch, error, record_errors_of(told, what))

    def _on_out_of_order(
        self, sequences: Sequences, queue: PartitionQueue, batch: Batch, error: Exception
    ) -> None:
        """Something before the batch is not in the log, so the batch is not either. If what is
        missing is still on its way, the batch comes after it; if it never will be, the batch gets a
        new sequence in the producer's next epoch. A transaction has one epoch, so it is broken
        then."""
        is_lost = sequences.is_next(batch) or sequences.has_hole
        if is_lost and self.transactions is not None:
            self._fail(batch, error)
            return
        if is_lost:
            sequences.take_back(batch)
        self._retry(queue, batch, error)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        if self.sequences is not None:
            self.sequences.take_back(batch)
        self._accumulator.split(queue, batch)

    def _retry(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        now_ms = self._clock.mono_ms()
        settings = self._settings
        batch.last_error = error
        obstacle = self._is_fatal
        if obstacle is None and self._identity is not None:
            obstacle = self._identity.retry_error()
        is_late = now_ms - batch.created_ms >= settings.delivery_timeout_ms
        if obstacle is not None or is_late or batch.attempts > settings.retries:
            if is_late:
                error = TimedOut(
                    f"{batch.count} records for {batch.topic}-{batch.partition} were not"
                    f" acknowledged within delivery.timeout.ms; the last attempt: {error}"
                )
            self._fail(batch, obstacle or error)
            return
        self._retries += 1
        batch.retry_at_ms = now_ms + backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            batch.attempts,
            self._core.runtime.randomness,
        )
        self._accumulator.put_back(queue, batch)

    def _acknowledge(self, batch: Batch, base_offset: int, log_append_time_ms: int = -1) -> None:
        if self.sequences is not None:
            self.sequences.acknowledge(batch)
        self._records_acknowledged += batch.count
        batch.acknowledge(base_offset, log_append_time_ms)
        self._accumulator.release(batch)

    def _fail_all(self, queue: PartitionQueue, error: Exception) -> None:
        """What is in a queue now: a callback may put the record into it again."""
        for batch in [self._accumulator.take(queue) for _ in range(len(queue.batches))]:
            self._fail(batch, error)

    def _fail(
        self, batch: Batch, error: Exception, record_errors: RecordErrors | None = None
    ) -> None:
        if self.sequences is not None:
            self.sequences.lose(batch)
        self._batches_failed += 1
        LOGGER.warning(
            "%d records for %s-%d were not delivered: %s",
            batch.count,
            batch.topic,
            batch.partition,
            error,
        )
        batch.fail(error, record_errors)
        self._accumulator.release(batch)
        if self._identity is not None:
            self._identity.on_failed(error)
