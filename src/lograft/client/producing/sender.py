"""Sends ready batches: requests to each broker with one batch of each of its partitions, up to
max.in.flight.requests.per.connection; handles the responses.

Order: the batches of a partition are sent in order. Without idempotence, a retried batch may be
appended after its successor, unless only one request may be in flight. With idempotence, a retried
batch is sent alone: no other batch of its partition is sent until it is done, and brokers reject
batches that arrive out of order.
"""

import asyncio
import logging
from collections.abc import Sequence
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
from lograft.client.producing.producer_metrics import ProducerMetrics
from lograft.client.producing.record_errors import RecordErrors, record_errors_of
from lograft.client.producing.requests import Content, ProduceRequests
from lograft.client.producing.sequences import Sequences
from lograft.client.producing.settings import ProducerSettings
from lograft.client.producing.transactions import Transactions
from lograft.client.work_scheduler import NO_DEADLINE_MS, WorkScheduler
from lograft.model.errors import ErrorCode
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


class SentBatch(NamedTuple):
    queue: PartitionQueue
    batch: Batch


class Sender:
    def __init__(
        self,
        core: ClientCore[ProducerSettings],
        accumulator: Accumulator,
        metrics: ProducerMetrics,
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._clock = core.runtime.clock
        self._loop = asyncio.get_running_loop()
        self._accumulator = accumulator
        self.transactions: Transactions | None = None
        #: None without idempotence: batches may be duplicated.
        self._identity: ProducerIdentity | None = None
        if core.settings.transactional_id is not None:
            self.transactions = self._identity = Transactions(core, accumulator, self)
        elif core.settings.is_idempotent:
            self._identity = IdempotentIdentity(core, accumulator, self)
        self.sequences = None if self._identity is None else self._identity.sequences
        self._missing_partitions = MissingPartitions(core)
        self._scheduler = WorkScheduler(self._send_ready, self._on_failure)
        self._in_flight: dict[int, int] = {}
        #: Outcomes of requests, in the order of the responses, not processed yet.
        self._outcomes: list[tuple[int, list[SentBatch], _Outcome]] = []
        self._connecting: set[int] = set()
        self._fatal_error: Exception | None = None
        self._requests = ProduceRequests(core)
        self._acks = core.settings.required_acks
        self._codec, self._level = core.settings.codec, core.settings.compression_level
        #: Not with acks=0: no request would ever be in flight, and every batch have one record.
        self._sends_immediately = not core.settings.linger_ms and self._acks != 0
        self._metrics = metrics

    def start(self) -> None:
        self._core.metadata.on_update(self.wake)

    def wake(self) -> None:
        """Schedules a check for ready batches in the next iteration of the event loop."""
        self._scheduler.wake()

    def on_record(self) -> None:
        """Called when a single record opened or filled a batch. With linger.ms=0 the batch is sent
        immediately if nothing is in flight; records that follow gather in a batch."""
        if self._sends_immediately and not any(self._in_flight.values()):
            self._scheduler.run_now()
        else:
            self._scheduler.wake()

    def stop(self) -> None:
        self._scheduler.stop()

    def fail(self, error: Exception) -> None:
        """Stops sending for good: all unsent records fail with this error."""
        self._fatal_error = error
        self.fail_unsent(error)

    def fail_unsent(self, error: Exception) -> None:
        """All unsent records fail with this error."""
        for queue in list(self._accumulator.active):
            self._fail_all(queue, error)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def _on_failure(self, error: BaseException) -> None:
        self._core.fail(error)
        self.fail(error if isinstance(error, Exception) else ClientError(repr(error)))

    def _send_ready(self) -> int:
        """Sends all ready batches, and returns the time until the next one becomes ready."""
        now_ms = self._clock.mono_ms()
        if self._send_single(now_ms):
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

    def _send_single(self, now_ms: int) -> bool:
        """Sends the only batch of the producer on a shorter path. Returns False if the general path
        is needed."""
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
        connection = None if leader is None else self._core.network.ready_connection(leader)
        if leader is None or connection is None or self._in_flight.get(leader):
            return False
        self._send_request(leader, connection, self._drain([queue]))
        return True

    def _next_expiry_ms(self, now_ms: int) -> int:
        if not self._accumulator.active:
            return NO_DEADLINE_MS
        created = [queue.batches[0].created_ms for queue in self._accumulator.active]
        return max(1, min(created) + self._settings.delivery_timeout_ms - now_ms)

    def _expire(self, now_ms: int) -> None:
        for queue in self._missing_partitions.find_expired(self._accumulator.active, now_ms):
            self._fail_all(queue, self._missing_partitions.expiry_error(queue))
        for batch in self._accumulator.take_expired(now_ms):
            waited_ms = now_ms - batch.created_ms
            self._fail(
                batch,
                TimedOut(
                    f"{batch.count} record(s) for {batch.topic}-{batch.partition} were not"
                    f" acknowledged within delivery.timeout.ms: {waited_ms} ms and"
                    f" {batch.attempts} attempts"
                    + (f"; last error: {batch.last_error}" if batch.last_error else "")
                ),
            )

    def _may_send(self, queue: PartitionQueue) -> bool:
        first = queue.batches[0]
        in_flight = queue.in_flight
        if self._identity is None or self.sequences is None:
            only_one = self._settings.max_in_flight_requests_per_connection == 1
            return not (only_one and in_flight)
        if first.sequence == NO_SEQUENCE:
            # A batch without a sequence waits while others of its partition are retried.
            return (
                self.sequences.may_assign
                and (not in_flight or all(batch.attempts <= 1 for batch in in_flight))
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
            connection = self._core.network.ready_connection(leader)
            if connection is None:
                self._connect(leader)
                return
            self._send_request(leader, connection, self._drain(queues))
            now_ms = self._clock.mono_ms()
            queues = [
                queue
                for queue in queues
                if queue.batches
                and self._accumulator.ready_at_ms(queue) <= now_ms
                and self._may_send(queue)
            ]

    def _drain(self, queues: Sequence[PartitionQueue]) -> list[SentBatch]:
        """Takes one batch of each queue, up to max.request.size, but at least one."""
        drained: list[SentBatch] = []
        size = 0
        for queue in queues:
            if drained and size + queue.batches[0].size_bytes > self._settings.max_request_size:
                break
            size += queue.batches[0].size_bytes
            batch = self._accumulator.take(queue)
            if self._identity is not None:
                self._identity.on_sending(batch)
            batch.attempts += 1
            queue.in_flight.append(batch)
            queue.has_requested_creation = queue.missing_until_ms is not None
            drained.append(SentBatch(queue, batch))
        return drained

    def _connect(self, leader: int) -> None:
        if leader in self._connecting:
            return
        self._connecting.add(leader)

        async def connect() -> None:
            try:
                await self._core.network.connect(leader)
            except ClientError as error:
                LOGGER.debug("no connection to broker %d: %s", leader, error)
                self._record_error(leader, error)
                self._core.metadata.request_update()
                if not error.is_retriable:
                    self.fail(error)
            # Not after a cancellation: the client or its loop is closing.
            self._connecting.discard(leader)
            self.wake()

        self._core.runtime.spawn(connect(), name=f"connect to broker {leader}")

    def _record_error(self, leader: int, error: ClientError) -> None:
        """Keeps the error for the message of batches that time out waiting for the broker."""
        for queue in self._accumulator.active:
            known = self._core.metadata.cache.partition(queue.topic, queue.partition)
            if known is not None and known.leader == leader:
                queue.batches[0].last_error = error

    # ── one request ──────────────────────────────────────────────────────────────────────────

    def _send_request(
        self, leader: int, connection: BrokerConnection, sent: list[SentBatch]
    ) -> None:
        identity = self._identity
        at_most = None if identity is None else identity.produce_version_max
        contents = [self._content(batch) for _, batch in sent]
        sent_ms = self._clock.mono_ms()
        self._metrics.on_request(
            [
                (batch, len(content.records))
                for (_, batch), content in zip(sent, contents, strict=True)
            ],
            sent_ms,
        )
        if not self._acks:
            version = connection.version_of(PRODUCE_KEY, at_most=at_most)
            connection.send_oneway(self._requests.build(contents, version), version)
            for queue, batch in sent:
                queue.in_flight.remove(batch)
                self._acknowledge(batch, -1)
            return
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        on_outcome = partial(self._on_outcome, leader, sent, sent_ms)
        timeout_ms = self._settings.request_timeout_ms
        if len(contents) == 1:
            topic, partition, records = contents[0]
            request = self._requests.single_batch(topic, partition, connection, at_most)
            if request is not None:
                connection.send_packed(
                    request.pack,
                    records,
                    ProduceResponse,
                    on_outcome,
                    version=request.version,
                    timeout_ms=timeout_ms,
                )
                return
        version = connection.version_of(PRODUCE_KEY, at_most=at_most)
        message = self._requests.build(contents, version)
        connection.send(
            message, ProduceResponse, on_outcome, version=version, timeout_ms=timeout_ms
        )

    def _content(self, batch: Batch) -> Content:
        data = batch.data(self._codec, self._level)
        self._accumulator.record_compression(batch, len(data))
        return Content(batch.topic, batch.partition, data)

    # ── responses ────────────────────────────────────────────────────────────────────────────

    def _on_outcome(
        self, leader: int, sent: list[SentBatch], sent_ms: int, outcome: _Outcome
    ) -> None:
        """Schedules processing in the next iteration: records that a consumer received in this
        iteration are processed before acknowledgements, so an application that waits for both has
        already sent its next fetch request while it waits for the acknowledgement."""
        if not isinstance(outcome, OutcomeUnknown):
            latency_ms = self._clock.mono_ms() - sent_ms
            self._metrics.on_response(latency_ms, outcome.throttle_time_ms)
        if not self._outcomes:
            self._loop.call_soon(self._process_outcomes)
        self._outcomes.append((leader, sent, outcome))

    def _process_outcomes(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for leader, sent, outcome in outcomes:
            self._process(leader, sent, outcome)

    def _process(self, leader: int, sent: list[SentBatch], outcome: _Outcome) -> None:
        for queue, batch in sent:
            queue.in_flight.remove(batch)
        if isinstance(outcome, OutcomeUnknown):
            self._core.metadata.request_update()
            for queue, batch in sent:
                self._retry(queue, batch, outcome)
        else:
            self._on_response(sent, outcome)
        # After the loop: a record sent by a callback must not overtake a batch to retry.
        self._in_flight[leader] -= 1
        if self._accumulator.active:
            self.wake()

    def _on_response(self, sent: list[SentBatch], response: ProduceResponse) -> None:
        results: dict[tuple[str, int], PartitionProduceResponse] = {}
        cache = self._core.metadata.cache
        for topic in response.responses:
            known = None if topic.name else cache.topic_by_id(topic.topic_id)
            name = topic.name or ("" if known is None else known.name)
            for partition in topic.partition_responses:
                results[name, partition.index] = partition
        brokers = [
            Broker(node.node_id, Address(node.host, node.port), node.rack)
            for node in response.node_endpoints
        ]
        for queue, batch in sent:
            result = results.get((batch.topic, batch.partition))
            if result is None:
                self._core.metadata.request_update()
                self._retry(
                    queue, batch, OutcomeUnknown("the response does not contain the partition")
                )
            else:
                self._on_result(queue, batch, result, brokers)

    def _on_result(
        self,
        queue: PartitionQueue,
        batch: Batch,
        result: PartitionProduceResponse,
        brokers: list[Broker],
    ) -> None:
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # A duplicate is in the log already, but the broker may no longer know its offset.
            if queue.missing_until_ms is not None:
                self._core.metadata.request_update()  # the partition is new
            self._acknowledge(batch, result.base_offset, result.log_append_time_ms)
            return
        leader = result.current_leader
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
        error = broker_error(code, what, result.error_message)
        if self.sequences is not None and code in _OUT_OF_ORDER:
            self._on_out_of_order(self.sequences, queue, batch, error)
        elif error.is_retriable:
            self._retry(queue, batch, error)
        else:
            self._fail(batch, error, record_errors_of(result, what))

    def _on_out_of_order(
        self, sequences: Sequences, queue: PartitionQueue, batch: Batch, error: Exception
    ) -> None:
        """Batches before this one are not in the log, so this one is not either. If they are still
        pending, this batch is retried after them; if they have failed, it gets a new sequence in
        the producer's next epoch. A transaction has only one epoch, so it must be aborted."""
        is_lost = sequences.is_next(batch) or sequences.has_gap
        if is_lost and self.transactions is not None:
            self._fail(batch, error)
            return
        if is_lost:
            sequences.unassign(batch)
        self._retry(queue, batch, error)

    def _split(self, queue: PartitionQueue, batch: Batch) -> None:
        if self.sequences is not None:
            self.sequences.unassign(batch)
        self._metrics.on_split()
        self._accumulator.split(queue, batch)

    def _retry(self, queue: PartitionQueue, batch: Batch, error: Exception) -> None:
        now_ms = self._clock.mono_ms()
        settings = self._settings
        batch.last_error = error
        final_error = self._fatal_error
        if final_error is None and self._identity is not None:
            final_error = self._identity.retry_error()
        is_late = now_ms - batch.created_ms >= settings.delivery_timeout_ms
        if final_error is not None or is_late or batch.attempts > settings.retries:
            if is_late:
                error = TimedOut(
                    f"{batch.count} record(s) for {batch.topic}-{batch.partition} were not"
                    f" acknowledged within delivery.timeout.ms; last error: {error}"
                )
            self._fail(batch, final_error or error)
            return
        self._metrics.on_retry(batch)
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
        self._metrics.on_acknowledged(batch)
        batch.acknowledge(base_offset, log_append_time_ms)
        self._accumulator.release(batch)

    def _fail_all(self, queue: PartitionQueue, error: Exception) -> None:
        """Fails the batches that are in the queue now: a callback may send the record again."""
        for batch in [self._accumulator.take(queue) for _ in range(len(queue.batches))]:
            self._fail(batch, error)

    def _fail(
        self, batch: Batch, error: Exception, record_errors: RecordErrors | None = None
    ) -> None:
        if self.sequences is not None:
            self.sequences.fail(batch)
        self._metrics.on_failed(batch)
        LOGGER.warning(
            "failed to deliver %d record(s) for %s-%d: %s",
            batch.count,
            batch.topic,
            batch.partition,
            error,
        )
        batch.fail(error, record_errors)
        self._accumulator.release(batch)
        if self._identity is not None:
            self._identity.on_failed(error)
