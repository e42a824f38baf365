"""Tells every partition of a decided transaction that it has ended (WriteTxnMarkers).

A coordinator's `WriteMarkers` comes here when the decision is committed, and goes on until each of
its partitions has the marker or is gone; then the coordinator closes its books. Whatever is decided
while others are on their way goes to each broker in one request: the more transactions, the larger
the requests, not the more. What could not be written is sent again to whoever leads by then. The
coordinator that decided may be replaced meanwhile: its successor starts anew, so nothing is done
for it any more.
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
#: Of WriteTxnMarkers: has the transaction's version.
VERSIONS: Final = Versions(1, 2)
LANE: Final = "markers"
#: Requests to one broker that wait for their answers. Markers that cannot be committed now hold one
#: up until it times out; others need not wait for them.
IN_FLIGHT_MAX: Final = 5
#: Transactions in one request, so that none grows without bounds.
TRANSACTIONS_PER_REQUEST: Final = 1_000
RETRY_MS: Final = 100
#: The partition has heard of a later epoch of the producer, so nothing of this one is open there;
#: or it cannot hold transactions.
OVER: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)

REQUESTS: Final = Counter("lograft_marker_requests_total", "Requests to write transaction markers.")
MARKERS: Final = Counter(
    "lograft_markers_total", "Transactions of which markers were sent, one for each request."
)
RETRIES: Final = Counter(
    "lograft_marker_retries_total", "Transaction markers that were sent again."
)
UNENDED: Final = Gauge(
    "lograft_transactions_ending",
    "Transactions that are decided and whose markers are not all written.",
)


class Unended:
    """A transaction whose partitions do not all know of its end."""

    __slots__ = ("effect", "end", "left", "shard")

    def __init__(self, effect: WriteMarkers, shard: int) -> None:
        """`shard`: the partition of __transaction_state that it was decided in."""
        self.effect = effect
        self.shard = shard
        self.end = TransactionEnd(
            effect.producer_id,
            effect.producer_epoch,
            effect.committed,
            effect.coordinator_epoch,
            effect.transaction_version,
        )
        #: Each of them is queued, on its way or put off, in one place only.
        self.left = {
            TopicPartition(topic, index): None
            for topic, indexes in effect.partitions.items()
            for index in indexes
        }


Markers: TypeAlias = dict[Unended, list[TopicPartition]]
AppendMarker: TypeAlias = Callable[[TopicPartition, TransactionEnd], tuple[Partition, Offset]]


class Written(NamedTuple):
    """In the log of a partition of this broker, not yet committed."""

    unended: Unended
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
        """`append_here` writes to the partitions that this broker leads."""
        #: The coordinators it works for; set by whoever makes both.
        self.transactions: CoordinatorRuntime[TransactionShard] | None = None
        self._runtime = runtime
        self._link = link
        self._append_here = append_here
        self._metadata = metadata
        self._unended: dict[Unended, None] = {}
        #: By the broker that leads.
        self._queued: dict[NodeId, Markers] = {}
        self._in_flight: dict[NodeId, int] = {}
        #: To be sent to whoever leads when the retry comes.
        self._put_off: Markers = {}
        #: Every partition has its marker; the coordinator is to be told.
        self._ended: list[Unended] = []
        self._turn: asyncio.Handle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._requests = 0
        self._markers = 0
        self._retries = 0

    def on_effect(self, effect: Effect) -> None:
        assert isinstance(effect, WriteMarkers), effect
        assert self.transactions is not None
        unended = Unended(effect, self.transactions.partition_of(effect.transactional_id))
        self._unended[unended] = None
        self._enqueue(unended, list(unended.left))

    def stop(self) -> None:
        for handle in (self._turn, self._retry):
            if handle is not None:
                handle.cancel()

    # ── whom to tell ─────────────────────────────────────────────────────────────────────────

    def _enqueue(self, unended: Unended, partitions: Sequence[TopicPartition]) -> None:
        if not self._is_current(unended):
            self._unended.pop(unended, None)
            return
        image = self._metadata.image
        for each in partitions:
            topic = image.topic(each.topic)
            state = None if topic is None else topic.partitions.get(each.partition)
            if state is None:
                # Deleted, and its open transactions with it.
                self._on_told(unended, each)
            elif state.leader == NO_NODE:
                self._try_later(unended, each)
            else:
                queue = self._queued.setdefault(NodeId(state.leader), {})
                queue.setdefault(unended, []).append(each)
        self._set_turn()

    def _try_later(self, unended: Unended, partition: TopicPartition) -> None:
        self._put_off.setdefault(unended, []).append(partition)
        self._set_retry()

    def _set_retry(self) -> None:
        if self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(RETRY_MS / 1000, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        put_off, self._put_off = self._put_off, {}
        for unended, partitions in put_off.items():
            self._retries += 1
            self._enqueue(unended, partitions)
        self._set_turn()

    def _is_current(self, unended: Unended) -> bool:
        assert self.transactions is not None
        return self.transactions.leads(unended.shard, unended.effect.coordinator_epoch)

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def _set_turn(self) -> None:
        """What comes in one turn of the loop is sent together in the next."""
        if self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        here = self._queued.pop(self._link.me, None)
        if here:
            self._write_here(here)
        for broker, queue in self._queued.items():
            while queue and self._in_flight.get(broker, 0) < IN_FLIGHT_MAX:
                markers = {
                    unended: queue.pop(unended)
                    for unended in list(islice(queue, TRANSACTIONS_PER_REQUEST))
                }
                self._in_flight[broker] = self._in_flight.get(broker, 0) + 1
                self._runtime.spawn(self._send(broker, markers), name=f"markers to {broker}")
        if self._ended:
            self._close_books()

    def _write_here(self, markers: Markers) -> None:
        """At once, and without a request."""
        uncommitted: dict[Partition, list[Written]] = {}
        for unended, partitions in markers.items():
            end = unended.end
            for each in partitions:
                try:
                    partition, end_offset = self._append_here(each, end)
                except ProducerFenced:
                    self._on_answer(unended, each, ErrorCode.INVALID_PRODUCER_EPOCH)
                except LograftError as error:
                    LOGGER.debug("%s cannot append a transaction marker now: %s", each, error)
                    self._try_later(unended, each)
                else:
                    if partition.is_acknowledged(end_offset, acks_all=True):
                        self._on_told(unended, each)
                    else:
                        one = Written(unended, each, end_offset, partition.leader_epoch)
                        uncommitted.setdefault(partition, []).append(one)
        for partition, written in uncommitted.items():
            name = f"markers in {partition.topic_partition}"
            self._runtime.spawn(self._wait_here(partition, written), name=name)

    async def _wait_here(self, partition: Partition, written: Sequence[Written]) -> None:
        """They were written in one turn: one wait for all."""
        last = written[-1]
        try:
            await partition.wait_committed(
                last.end_offset,
                timeout_ms=self._metadata.config.request_timeout_ms,
                leader_epoch=last.leader_epoch,
            )
        except LograftError:
            for each in written:
                self._try_later(each.unended, each.partition)
        else:
            for each in written:
                self._on_told(each.unended, each.partition)
        self._set_turn()

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
        for unended, partitions in markers.items():
            producer_id = unended.effect.producer_id
            for each in partitions:
                # What was not answered was not written.
                code = codes.get((producer_id, each), ErrorCode.NETWORK_EXCEPTION)
                self._on_answer(unended, each, code)
        self._set_turn()

    def _on_answer(self, unended: Unended, partition: TopicPartition, code: int) -> None:
        if code == ErrorCode.NONE:
            self._on_told(unended, partition)
        elif code in OVER:
            LOGGER.warning(
                "%s rejected the marker of transactional id %s, producer %d, epoch %d: %s",
                partition,
                unended.effect.transactional_id,
                unended.effect.producer_id,
                unended.effect.producer_epoch,
                ErrorCode(code).name,
            )
            self._on_told(unended, partition)
        else:
            # Also where the coordinator is fenced: it is dropped once its leadership ends here.
            self._try_later(unended, partition)

    # ── all are told ─────────────────────────────────────────────────────────────────────────

    def _on_told(self, unended: Unended, partition: TopicPartition) -> None:
        del unended.left[partition]
        if not unended.left:
            self._unended.pop(unended, None)
            self._ended.append(unended)

    def _close_books(self) -> None:
        """In one batch for each partition of __transaction_state."""
        transactions = self.transactions
        assert transactions is not None
        ended, self._ended = self._ended, []
        by_shard: dict[int, list[Unended]] = {}
        for unended in ended:
            if self._is_current(unended):
                by_shard.setdefault(unended.shard, []).append(unended)
        for index, closed in by_shard.items():
            try:
                transactions.ask_partition(index, partial(_close, [each.effect for each in closed]))
            except LograftError:
                # Also while the controller has not been heard for long. What another leads by the
                # next try is dropped there: its successor does it.
                self._ended += closed
                self._set_retry()

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield MARKERS.sample(self._markers)
        yield RETRIES.sample(self._retries)
        yield UNENDED.sample(len(self._unended))


def _close(
    effects: Sequence[WriteMarkers], shard: TransactionShard, ticket: Ticket, now_ms: int
) -> CoordinatorResult:
    return shard.markers_written(ticket, effects)


def _request_of(markers: Markers) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[_marker_of(unended.effect, partitions) for unended, partitions in markers.items()]
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
        (marker.producer_id, TopicPartition(topic.name, answer.partition_index)): answer.error_code
        for marker in response.markers
        for topic in marker.topics
        for answer in topic.partitions
    }
