"""One partition of `__transaction_state`: the transactional ids that hash to it.

The outcome of a transaction is decided by its PrepareCommit or PrepareAbort record and by nothing
else. Once that record is committed, the effect `WriteMarkers` is started. It writes a marker to
every partition, and `markers_written` then completes the transaction. A new leader finds the
decided transactions in the log and starts their effects again (`on_loaded`). Markers that are
written twice change nothing.

(Producer id, epoch) identifies the producer that may change a transaction. With protocol v1, the
epoch identifies an incarnation of the producer; with v2 (KIP-890) each transaction has its own
epoch, so that a delayed request cannot affect the next transaction. Raising the epoch fences a
producer when another one with the same transactional id starts or its transaction times out.

In these cases a delayed request could do harm in Kafka 4.3, so Lograft is stricter (never laxer):
- InitProducerId with an epoch (KIP-360) aborts an ongoing transaction only if it has that epoch.
- A retried EndTxn succeeds for a committed transaction only if that transaction used v2.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lograft.coordination.errors import UnreadableRecord
from lograft.coordination.pattern_matching import PatternMatching
from lograft.coordination.transaction import (
    EPOCH_BUMP_SINCE,
    LAST_EPOCH,
    NO_TIMEOUT_MS,
    Partitions,
    Transaction,
    tombstone,
)
from lograft.coordination.transaction_checks import (
    check_identity,
    invalid_state,
    is_ended_by,
    partition_results,
    producer_fenced,
    reject_pending,
)
from lograft.coordination.transaction_states import CAN_EXPIRE, EMPTY, ONGOING
from lograft.coordination.types import (
    NOTHING,
    CoordinatorContext,
    CoordinatorResult,
    Effect,
    Record,
    Reply,
    Ticket,
)
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.types import TRANSACTION_VERSION
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Gauge, Sample
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Epoch, Offset
from lograft.wire.message import Message
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.records.transaction_log_key import TransactionLogKey
from lograft.wire.records.transaction_log_value import TransactionLogValue

#: Maximum number of timed-out transactions that one batch aborts.
ABORTS_PER_BATCH: Final = 100
#: Number of transactional ids to check before other requests are served.
EXPIRY_SLICE: Final = 10_000

TRANSACTIONAL_IDS: Final = Gauge(
    "lograft_transactional_ids", "Transactional ids that this broker coordinates."
)
OPEN_TRANSACTIONS: Final = Gauge(
    "lograft_transactions_ongoing", "Transactions that are open at this coordinator."
)


class WriteMarkers(Effect):
    """Writes transaction markers to these partitions."""

    __slots__ = (
        "committed",
        "coordinator_epoch",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self, transactional_id: str, transaction: Transaction, coordinator_epoch: Epoch
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = transaction.producer_id
        self.producer_epoch = transaction.epoch
        self.committed = transaction.is_committed
        self.transaction_version = transaction.client_version
        self.partitions: Partitions = transaction.partitions
        #: Partitions reject markers of a coordinator that has been replaced.
        self.coordinator_epoch = coordinator_epoch


class TransactionShard:
    """A `types.Core`. It raises `Rejected` for requests that it rejects."""

    def __init__(
        self, context: CoordinatorContext, *, epoch: Epoch, new_producer_id: Callable[[], int]
    ) -> None:
        """`epoch` is the leader epoch of this shard. `new_producer_id` raises Rejected if no id is
        available yet."""
        self.context = context
        self._epoch = epoch
        self._new_producer_id = new_producer_id
        self.transactions: dict[str, Transaction] = {}
        #: Transactions that may time out, in the order of their start.
        self._ongoing: dict[str, None] = {}
        #: The epoch of the InitProducerId request that produced the current epoch: the request may
        #: be repeated if its response was lost. As in Kafka, a new leader does not know it.
        self._previous_epochs: dict[str, int] = {}
        self._abort_at_ms = 0
        self._expire_at_ms = 0
        self._unchecked: list[str] = []
        self.matching = PatternMatching()

    # ── replay: the only writer of `transactions` ────────────────────────────────────────────

    def replay(
        self,
        record: Record,
        *,
        offset: Offset,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        key, value = record.key, record.value
        if type(key) is not TransactionLogKey:
            raise UnreadableRecord(f"__transaction_state cannot contain a {type(key).__name__}")
        transactional_id = key.transactional_id
        if value is None:
            self.transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            self._previous_epochs.pop(transactional_id, None)
            return
        assert type(value) is TransactionLogValue, value
        transaction = self.transactions[transactional_id] = Transaction.of(value)
        if transaction.state is ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)
        if transaction.state is not EMPTY:
            self._previous_epochs.pop(transactional_id, None)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """This topic has no transactional records."""

    # ── InitProducerId ───────────────────────────────────────────────────────────────────────

    def init_producer_id(self, ticket: Ticket, request: InitProducerIdRequest) -> CoordinatorResult:
        transactional_id = request.transactional_id
        assert transactional_id is not None
        self._check_init(request)
        found = self.transactions.get(transactional_id)
        wall_ms = self.context.wall_ms()
        timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
        if found is None:
            asked_with: int = NO_PRODUCER_EPOCH
            producer_id, epoch = self._new_producer_id(), 0
            found = Transaction(
                state=EMPTY,
                producer_id=producer_id,
                epoch=NO_PRODUCER_EPOCH,
                timeout_ms=timeout_ms,
                updated_ms=wall_ms,
            )
        else:
            reject_pending(found)
            if found.state is ONGOING:
                return self._abort_to_init(ticket, transactional_id, found, request)
            asked_with = request.producer_epoch
            producer_id, epoch = self._next_identity(transactional_id, found, request)
        after = found.initialize(producer_id, epoch, timeout_ms=timeout_ms, wall_ms=wall_ms)
        if asked_with == NO_PRODUCER_EPOCH:
            self._previous_epochs.pop(transactional_id, None)
        else:
            self._previous_epochs[transactional_id] = asked_with

        def on_failure(code: ErrorCode) -> Sequence[Reply]:
            self._previous_epochs.pop(transactional_id, None)
            return ()

        reply = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        return CoordinatorResult(
            records=(self._record(transactional_id, after),),
            replies=((ticket, reply),),
            on_failure=on_failure,
        )

    def _check_init(self, request: InitProducerIdRequest) -> None:
        config = self.context.config()
        if request.enable2_pc and not config.transaction_two_phase_commit_enable:
            raise Rejected(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transaction.two.phase.commit.enable is false.",
            )
        if request.keep_prepared_txn:
            raise Rejected(
                ErrorCode.UNSUPPORTED_VERSION, "Keeping prepared transactions is not supported yet."
            )
        highest_ms = config.transaction_max_timeout_ms
        if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= highest_ms:
            raise Rejected(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"Transaction timeout {request.transaction_timeout_ms} ms must be between 1 and"
                f" transaction.max.timeout.ms ({highest_ms}).",
            )

    def _abort_to_init(
        self,
        ticket: Ticket,
        transactional_id: str,
        found: Transaction,
        request: InitProducerIdRequest,
    ) -> CoordinatorResult:
        """The previous producer left a transaction open. Aborts it with an epoch that no producer
        receives; the new producer retries until the abort is complete."""
        requested = (request.producer_id, request.producer_epoch)
        if request.producer_id != NO_PRODUCER_ID and requested != (found.producer_id, found.epoch):
            raise producer_fenced(found, *requested)
        again = InitProducerIdResponse(
            error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=NO_PRODUCER_EPOCH
        )
        return self._end(transactional_id, self._abort_and_fence(found), ticket, again)

    def _next_identity(
        self, transactional_id: str, found: Transaction, request: InitProducerIdRequest
    ) -> tuple[int, int]:
        """The next producer id and epoch, for a request while no transaction is ongoing."""
        if request.producer_id != NO_PRODUCER_ID and not (
            request.producer_id == found.producer_id and request.producer_epoch == found.epoch
        ):
            if self._is_repeated_init(transactional_id, found, request):
                return found.producer_id, found.epoch
            raise producer_fenced(found, request.producer_id, request.producer_epoch)
        if found.has_exhausted_epochs:
            return self._new_producer_id(), 0
        return found.producer_id, found.epoch + 1

    def _is_repeated_init(
        self, transactional_id: str, found: Transaction, request: InitProducerIdRequest
    ) -> bool:
        """Whether the producer received the current epoch in exchange for the one in the request:
        the response was lost and no other request came since."""
        if found.state is EMPTY:
            given_for = self._previous_epochs.get(transactional_id, NO_PRODUCER_EPOCH)
            if request.producer_epoch != given_for:
                return False
            if found.epoch == 0 and given_for >= LAST_EPOCH:
                return request.producer_id == found.previous_producer_id
            return request.producer_id == found.producer_id
        return is_ended_by(found, request.producer_id, request.producer_epoch)

    # ── partitions ───────────────────────────────────────────────────────────────────────────

    def add_partitions(
        self,
        ticket: Ticket,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: Partitions,
        client_version: int,
    ) -> CoordinatorResult:
        """Adds partitions before anything is written to them. `client_version` is that of the
        transaction protocol."""
        found = self._get(transactional_id)
        reject_pending(found)
        check_identity(found, producer_id, producer_epoch)
        replies = ((ticket, partition_results(transactional_id, partitions)),)
        if found.state is ONGOING and found.has_all(partitions):
            return CoordinatorResult(replies=replies)
        after = found.with_partitions(
            partitions, client_version=client_version, wall_ms=self.context.wall_ms()
        )
        return CoordinatorResult(records=(self._record(transactional_id, after),), replies=replies)

    def verify_partitions(
        self,
        ticket: Ticket,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: Partitions,
    ) -> CoordinatorResult:
        """Whether the producer may write to these partitions; brokers request it before they
        append."""
        found = self._get(transactional_id)
        check_identity(found, producer_id, producer_epoch)
        reject_pending(found)
        return CoordinatorResult(
            replies=((ticket, partition_results(transactional_id, partitions, found)),)
        )

    # ── EndTxn and its markers ───────────────────────────────────────────────────────────────

    def end_transaction(
        self, ticket: Ticket, request: EndTxnRequest, *, client_version: int
    ) -> CoordinatorResult:
        transactional_id = request.transactional_id
        found = self._get(transactional_id)
        reject_pending(found)
        bumps = client_version >= EPOCH_BUMP_SINCE
        if bumps and is_ended_by(found, request.producer_id, request.producer_epoch):
            return self._repeat_response(ticket, found, request)
        check_identity(found, request.producer_id, request.producer_epoch)
        if not bumps and found.is_complete:
            return self._repeat_response(ticket, found, request)
        # With v2, a producer may abort without knowing whether anything was written.
        if found.state is not ONGOING and (request.committed or not bumps):
            raise invalid_state(found, committed=request.committed)
        rotates = bumps and found.has_exhausted_epochs
        after = found.prepare(
            commit=request.committed,
            bumps_epoch=bumps,
            client_version=client_version,
            next_producer_id=self._new_producer_id() if rotates else NO_PRODUCER_ID,
            wall_ms=self.context.wall_ms(),
        )
        producer_id, epoch = after.next_identity()
        reply = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
        return self._end(transactional_id, after, ticket, reply)

    def _repeat_response(
        self, ticket: Ticket, found: Transaction, request: EndTxnRequest
    ) -> CoordinatorResult:
        """Repeats the response to a request whose first response was lost."""
        if request.committed != found.is_committed:
            raise invalid_state(found, committed=request.committed)
        reply = EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        return CoordinatorResult(replies=((ticket, reply),))

    def markers_written(self, ticket: Ticket, ended: Sequence[WriteMarkers]) -> CoordinatorResult:
        """Every partition of these transactions has its marker or was deleted."""
        wall_ms = self.context.wall_ms()
        records = [
            self._record(each.transactional_id, found.complete(wall_ms))
            for each in ended
            if (found := self._find_pending(each)) is not None
        ]
        # If this leader loses the records, the next one writes the markers again.
        return CoordinatorResult(
            records=records, replies=((ticket, EndTxnResponse()),), waits=False, separable=True
        )

    def _find_pending(self, ended: WriteMarkers) -> Transaction | None:
        """None if another leader completed the transaction in the meantime."""
        found = self.transactions.get(ended.transactional_id)
        if found is None or not found.is_pending:
            return None
        is_same = (found.producer_id, found.epoch) == (ended.producer_id, ended.producer_epoch)
        return found if is_same else None

    def _markers(self, transactional_id: str, transaction: Transaction) -> WriteMarkers:
        return WriteMarkers(transactional_id, transaction, self._epoch)

    def _abort_and_fence(self, found: Transaction) -> Transaction:
        """Aborted by the coordinator: the next epoch fences the producer."""
        bumps = self.version >= EPOCH_BUMP_SINCE
        rotates = bumps and found.has_exhausted_epochs
        return found.prepare(
            commit=False,
            bumps_epoch=True,
            client_version=self.version if bumps else 0,
            next_producer_id=self._new_producer_id() if rotates else NO_PRODUCER_ID,
            wall_ms=self.context.wall_ms(),
        )

    def _end(
        self, transactional_id: str, after: Transaction, ticket: Ticket, reply: Message
    ) -> CoordinatorResult:
        record = self._record(transactional_id, after)
        replies = ((ticket, reply),)
        if after.partitions:
            effect = self._markers(transactional_id, after)
            return CoordinatorResult(records=(record,), replies=replies, effects=(effect,))
        closed = self._record(transactional_id, after.complete(after.updated_ms))
        return CoordinatorResult(records=(record, closed), replies=replies)

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        config = self.context.config()
        self._abort_at_ms = (
            now_ms + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        )
        self._expire_at_ms = (
            now_ms + config.transaction_remove_expired_transaction_cleanup_interval_ms
        )
        return CoordinatorResult(
            effects=[
                self._markers(transactional_id, transaction)
                for transactional_id, transaction in self.transactions.items()
                if transaction.is_pending
            ]
        )

    def load_notes(self) -> Sequence[str]:
        return ()

    def on_unloaded(self) -> Sequence[Reply]:
        return ()

    def next_deadline_ms(self) -> int:
        return min(self._abort_at_ms, self._expire_at_ms)

    def on_time(self, now_ms: int) -> CoordinatorResult:
        if self._abort_at_ms <= now_ms:
            return self._abort_timed_out(now_ms)
        if self._expire_at_ms <= now_ms:
            return self._remove_expired(now_ms)
        return NOTHING

    def _abort_timed_out(self, now_ms: int) -> CoordinatorResult:
        records: list[Record] = []
        effects: list[Effect] = []
        wall_ms = self.context.wall_ms()
        config = self.context.config()
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._abort_at_ms = now_ms + interval_ms
        for transactional_id in self._ongoing:
            if len(records) == ABORTS_PER_BATCH:
                self._abort_at_ms = now_ms
                break
            found = self.transactions[transactional_id]
            if not found.has_timed_out(wall_ms):
                continue
            try:
                after = self._abort_and_fence(found)
            except Rejected:
                # No producer id available: the next sweep tries again.
                continue
            records.append(self._record(transactional_id, after))
            effects.append(self._markers(transactional_id, after))

        def on_failure(code: ErrorCode) -> Sequence[Reply]:
            self._abort_at_ms = now_ms + interval_ms
            return ()

        return CoordinatorResult(
            records=records, effects=effects, on_failure=on_failure, separable=True
        )

    def _remove_expired(self, now_ms: int) -> CoordinatorResult:
        config = self.context.config()
        if not self._unchecked:
            self._unchecked = list(self.transactions)
        slice_, self._unchecked = (
            self._unchecked[:EXPIRY_SLICE],
            self._unchecked[EXPIRY_SLICE:],
        )
        if not self._unchecked:
            interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
            self._expire_at_ms = now_ms + interval_ms
        oldest_ms = self.context.wall_ms() - config.transactional_id_expiration_ms
        return CoordinatorResult(
            records=[
                tombstone(transactional_id)
                for transactional_id in slice_
                if (found := self.transactions.get(transactional_id)) is not None
                and found.state in CAN_EXPIRE
                and found.updated_ms <= oldest_ms
            ],
            separable=True,
        )

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        return NOTHING

    # ── queries ──────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        """The finalized version of the transaction protocol."""
        return self.context.image().features.get(TRANSACTION_VERSION, 0)

    def _get(self, transactional_id: str) -> Transaction:
        found = self.transactions.get(transactional_id)
        if found is None:
            raise Rejected(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"Transactional id {transactional_id} is unknown to this coordinator.",
            )
        return found

    def _record(self, transactional_id: str, transaction: Transaction) -> Record:
        return transaction.record(transactional_id, value_version=1 if self.version else 0)

    def oldest_start_ms(self) -> int | None:
        """Returns when the oldest open transaction started, in wall-clock time."""
        oldest = next(iter(self._ongoing), None)
        return None if oldest is None else self.transactions[oldest].started_ms

    def collect_samples(self) -> Iterator[Sample]:
        yield TRANSACTIONAL_IDS.sample(len(self.transactions))
        yield OPEN_TRANSACTIONS.sample(len(self._ongoing))
