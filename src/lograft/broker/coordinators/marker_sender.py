"""Writes transaction markers to the partitions of ended transactions (WriteTxnMarkers).

A coordinator emits the effect `WriteMarkers` when its decision to commit or abort is itself
committed. The sender retries until each partition has its marker or is deleted; then the
coordinator completes the transaction. Transactions that end while requests are in flight are
combined into one request per broker, so more transactions cause larger requests, not more of them.
A marker that could not be written is sent to the current leader after a backoff. If the coordinator
is replaced meanwhile, its successor sends all markers again, so the old one stops.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.partitions.partition import Partition
from lograft.coordination.transaction_shard import TransactionShard, WriteMarkers
from lograft.coordination.types import CoordinatorResult, Effect, Ticket
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Runtime
from lograft.model.types import NO_NODE, Epoch, NodeId, Offset, TopicPartition
from lograft.storage.errors import ProducerFenced
from lograft.storage.types import TransactionEnd
from lograft.wire.apis import Versions
from lograft.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime

LOGGER: Final = logging.getLogger(__name__)
#: Version 2 of WriteTxnMarkers has the transaction version.
VERSIONS: Final = Versions(1, 2)
LANE: Final = "markers"
#: Requests in flight to a broker. A request with a marker that cannot be committed waits until it
#: times out; the other requests continue.
IN_FLIGHT_MAX: Final = 5
#: Maximum number of transactions in a request.
TRANSACTIONS_PER_REQUEST: Final = 1_000
RETRY_MS: Final = 100
#: Errors that need no retry: the partition has a later epoch of the producer, so this transaction
#: is not open there, or the partition does not support transactions.
FINAL_ERRORS: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)

REQUESTS: Final = Counter("lograft_marker_requests_total", "Requests to write transaction markers.")
MARKERS: Final = Counter(
    "lograft_markers_total",
    "Transaction markers sent, counted once per transaction and WriteTxnMarkers request.",
)
RETRIES: Final = Counter(
    "lograft_marker_retries_total", "Transaction markers that were sent again."
)
ENDING: Final = Gauge(
    "lograft_transactions_completing",
    "Transactions that are decided and whose markers are not all written.",
)


class EndingTransaction:
    """A transaction that has ended, but some of its partitions have no marker yet."""

    __slots__ = ("effect", "end", "pending", "shard")

    def __init__(self, effect: WriteMarkers, shard: int) -> None:
        """`shard` is the partition of __transaction_state that contains the transaction."""
        self.effect = effect
        self.shard = shard
        self.end = TransactionEnd(
            effect.producer_id,
            effect.producer_epoch,
            effect.committed,
            effect.coordinator_epoch,
            effect.transaction_version,
        )
        #: Partitions without a marker. Each is either queued, in flight or delayed.
        self.pending = {
            TopicPartition(topic, index): None
            for topic, indexes in effect.partitions.items()
            for index in indexes
        }


Markers: TypeAlias = dict[EndingTransaction, list[TopicPartition]]
AppendMarker: TypeAlias = Callable[[TopicPartition, TransactionEnd], tuple[Partition, Offset]]


class AppendedMarker(NamedTuple):
    """A marker in a partition of this broker that is not committed yet."""

    transaction: EndingTransaction
    partition: TopicPartition
    end_offset: Offset
    leader_epoch: Epoch


class MarkerSender:
    def __init__(
        self,
        runtime: Runtime,
        link: BrokerLink,
        *,
        append_here: AppendMarker,
        metadata: ClusterMetadata,
    ) -> None:
        """`append_here` appends to the partitions that this broker leads."""
        #: The coordinators whose effects are executed here; set by `Coordinators`.
        self.transactions: CoordinatorRuntime[TransactionShard] | None = None
        self._runtime = runtime
        self._link = link
        self._append_here = append_here
        self._metadata = metadata
        self._ending: dict[EndingTransaction, None] = {}
        #: Markers to send, by leader.
        self._queued: dict[NodeId, Markers] = {}
        self._in_flight: dict[NodeId, int] = {}
        #: Markers that `_retry` sends to whichever brokers lead their partitions by then.
        self._delayed: Markers = {}
        #: Transactions whose partitions all have markers, to be completed by the coordinator.
        self._written: list[EndingTransaction] = []
        self._next_send: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._requests = 0
        self._markers = 0
        self._retries = 0

    def on_effect(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers), effect
        assert self.transactions is not None
        shard = self.transactions.partition_of(effect.transactional_id)
        transaction = EndingTransaction(effect, shard)
        self._ending[transaction] = None
        self._enqueue(transaction, list(transaction.pending))

    def stop(self) -> None:
        for handle in (self._next_send, self._retry):
            if handle is not None:
                handle.cancel()

    # ── queues ───────────────────────────────────────────────────────────────────────────────

    def _enqueue(
        self, transaction: EndingTransaction, partitions: Sequence[TopicPartition]
    ) -> None:
        if not self._is_current(transaction):
            self._ending.pop(transaction, None)
            return
        image = self._metadata.image
        for each in partitions:
            topic = image.topic(each.topic)
            state = None if topic is None else topic.partitions.get(each.partition)
            if state is None:
                # The partition was deleted.
                self._on_marker_written(transaction, each)
            elif state.leader == NO_NODE:
                self._delay(transaction, each)
            else:
                queue = self._queued.setdefault(NodeId(state.leader), {})
                queue.setdefault(transaction, []).append(each)
        self._schedule_send()

    def _delay(self, transaction: EndingTransaction, partition: TopicPartition) -> None:
        self._delayed.setdefault(transaction, []).append(partition)
        self._set_retry()

    def _set_retry(self) -> None:
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(RETRY_MS / 1000, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        delayed, self._delayed = self._delayed, {}
        for transaction, partitions in delayed.items():
            self._retries += 1
            self._enqueue(transaction, partitions)
        self._schedule_send()

    def _is_current(self, transaction: EndingTransaction) -> bool:
        assert self.transactions is not None
        return self.transactions.leads(transaction.shard, transaction.effect.coordinator_epoch)

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def _schedule_send(self) -> None:
        """Markers of one iteration of the event loop are sent together in the next one."""
        if self._next_send is None:
            self._next_send = asyncio.get_running_loop().call_soon(self._send_queued)

    def _send_queued(self) -> None:
        self._next_send = None
        here = self._queued.pop(self._link.me, None)
        if here:
            self._write_here(here)
        for broker, queue in self._queued.items():
            while queue and self._in_flight.get(broker, 0) < IN_FLIGHT_MAX:
                markers = {
                    transaction: queue.pop(transaction)
                    for transaction in list(islice(queue, TRANSACTIONS_PER_REQUEST))
                }
                self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
                self._runtime.spawn(self._send(broker, markers), name=f"markers to {broker}")
        if self._written:
            self._complete_transactions()

    def _write_here(self, markers: Markers) -> None:
        """Appends markers to partitions of this broker, without a request."""
        uncommitted: dict[Partition, list[AppendedMarker]] = {}
        for transaction, partitions in markers.items():
            end = transaction.end
            for each in partitions:
                try:
                    partition, end_offset = self._append_here(each, end)
                except ProducerFenced:
                    self._on_result(transaction, each, ErrorCode.INVALID_PRODUCER_EPOCH)
                except LograftError as error:
                    LOGGER.debug("%s cannot append a transaction marker now: %s", each, error)
                    self._delay(transaction, each)
                else:
                    if partition.is_acknowledged(end_offset, acks_all=True):
                        self._on_marker_written(transaction, each)
                    else:
                        marker = AppendedMarker(
                            transaction, each, end_offset, partition.leader_epoch
                        )
                        uncommitted.setdefault(partition, []).append(marker)
        for partition, appended in uncommitted.items():
            name = f"markers in {partition.topic_partition}"
            self._runtime.spawn(self._wait_here(partition, appended), name=name)

    async def _wait_here(self, partition: Partition, appended: Sequence[AppendedMarker]) -> None:
        """Waits for the commit of the last marker, which includes the others."""
        last = appended[-1]
        try:
            await partition.wait_committed(
                last.end_offset,
                timeout_ms=self._metadata.config.request_timeout_ms,
                leader_epoch=last.leader_epoch,
            )
        except LograftError:
            for marker in appended:
                self._delay(marker.transaction, marker.partition)
        else:
            for marker in appended:
                self._on_marker_written(marker.transaction, marker.partition)
        self._schedule_send()

    async def _send(self, broker: NodeId, markers: Markers) -> None:
        self._requests += 1
        self._markers += len(markers)
        try:
            response = await self._link.request(
                broker,
                _request_of(markers),
                VERSIONS,
                WriteTxnMarkersResponse,
                timeout_ms=self._metadata.config.request_timeout_ms,
                lane=LANE,
            )
        except (PeerUnreachable, PeerLost) as error:
            LOGGER.info("could not send transaction markers to broker %d: %s", broker, error)
            codes = {}
        else:
            codes = _codes_of(response)
        finally:
            self._in_flight[broker] -= 1
        for transaction, partitions in markers.items():
            producer_id = transaction.effect.producer_id
            for each in partitions:
                # A marker without a result is sent again.
                code = codes.get((producer_id, each), ErrorCode.NETWORK_EXCEPTION)
                self._on_result(transaction, each, code)
        self._schedule_send()

    def _on_result(
        self, transaction: EndingTransaction, partition: TopicPartition, code: int
    ) -> None:
        if code == ErrorCode.NONE:
            self._on_marker_written(transaction, partition)
        elif code in FINAL_ERRORS:
            LOGGER.warning(
                "%s rejected the marker of transactional id %s, producer %d, epoch %d: %s",
                partition,
                transaction.effect.transactional_id,
                transaction.effect.producer_id,
                transaction.effect.producer_epoch,
                ErrorCode(code).name,
            )
            self._on_marker_written(transaction, partition)
        else:
            # This includes a fenced coordinator: `_enqueue` drops its transactions when its
            # leadership ends on this broker.
            self._delay(transaction, partition)

    # ── completion ───────────────────────────────────────────────────────────────────────────

    def _on_marker_written(self, transaction: EndingTransaction, partition: TopicPartition) -> None:
        del transaction.pending[partition]
        if not transaction.pending:
            self._ending.pop(transaction, None)
            self._written.append(transaction)

    def _complete_transactions(self) -> None:
        """Completes them in one batch for each partition of __transaction_state."""
        coordinators = self.transactions
        assert coordinators is not None
        written, self._written = self._written, []
        by_shard: dict[int, list[EndingTransaction]] = {}
        for transaction in written:
            if self._is_current(transaction):
                by_shard.setdefault(transaction.shard, []).append(transaction)
        for index, completed in by_shard.items():
            effects = [transaction.effect for transaction in completed]
            try:
                coordinators.ask_partition(index, partial(_complete, effects))
            except LograftError:
                # For example, this broker's session has expired. If another broker leads the
                # partition by the next attempt, that broker completes the transactions.
                self._written += completed
                self._set_retry()

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield MARKERS.sample(self._markers)
        yield RETRIES.sample(self._retries)
        yield ENDING.sample(len(self._ending))


def _complete(
    effects: Sequence[WriteMarkers], shard: TransactionShard, ticket: Ticket, now_ms: int
) -> CoordinatorResult:
    return shard.markers_written(ticket, effects)


def _request_of(markers: Markers) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            _marker_of(transaction.effect, partitions)
            for transaction, partitions in markers.items()
        ]
    )


def _marker_of(effect: WriteMarkers, partitions: Sequence[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        transaction_result=effect.committed,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=effect.coordinator_epoch,
        transaction_version=effect.transaction_version,
    )


def _codes_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], int]:
    return {
        (marker.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
