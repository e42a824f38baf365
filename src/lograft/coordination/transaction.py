"""The replayed state of one transactional id, and the steps from each state to the next.

A `Transaction` is an immutable value. Each step returns the next value, which is appended to the
log as a `TransactionLogValue` and takes effect by replay. The fields are Kafka's, so that either
server can continue with the other's log.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from lograft.coordination.transaction_states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    FOLLOWERS,
    ONGOING,
    PENDING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TransactionState,
)
from lograft.coordination.types import Record
from lograft.model.types import NO_PRODUCER_ID, NO_TIMESTAMP
from lograft.wire.records.transaction_log_key import TransactionLogKey
from lograft.wire.records.transaction_log_value import PartitionsSchema, TransactionLogValue

#: Topic -> its partitions, in the order in which they were added.
Partitions: TypeAlias = Mapping[str, tuple[int, ...]]

NO_PARTITIONS: Final[Partitions] = {}
#: The last epoch that a producer may use, so that one always remains to fence it.
LAST_EPOCH: Final = 32766
FENCING_EPOCH: Final = 32767
#: Since this protocol version, every transaction has an epoch of its own (KIP-890).
EPOCH_BUMP_SINCE: Final = 2
#: No timeout (two-phase commit: an external coordinator decides).
NO_TIMEOUT_MS: Final = 2**31 - 1


class Transaction(NamedTuple):
    state: TransactionState
    producer_id: int
    epoch: int
    timeout_ms: int
    #: Wall clock.
    updated_ms: int
    #: Partitions added to the transaction; empty unless the state is Ongoing or Prepare*.
    partitions: Partitions = NO_PARTITIONS
    #: The producer id before the last step. It differs if that id's epochs were exhausted.
    previous_producer_id: int = NO_PRODUCER_ID
    #: The id that the producer uses once the markers are written; NO_PRODUCER_ID to keep its id.
    next_producer_id: int = NO_PRODUCER_ID
    #: 2 if the last step used protocol v2, else 0.
    client_version: int = 0
    started_ms: int = NO_TIMESTAMP

    # ── steps ────────────────────────────────────────────────────────────────────────────────

    def initialize(
        self, producer_id: int, epoch: int, *, timeout_ms: int, wall_ms: int
    ) -> "Transaction":
        """A producer starts, or continues after an error."""
        return Transaction(
            self._check_transition(EMPTY),
            producer_id,
            epoch,
            timeout_ms,
            wall_ms,
            NO_PARTITIONS,
            self.producer_id,
            self.next_producer_id,
            self.client_version,
            NO_TIMESTAMP,
        )

    def with_partitions(
        self, partitions: Partitions, *, client_version: int, wall_ms: int
    ) -> "Transaction":
        """Adds partitions, without duplicates. The first ones start the transaction."""
        if self.partitions:
            partitions = partitions_of((*self.partitions.items(), *partitions.items()))
        return Transaction(
            self._check_transition(ONGOING),
            self.producer_id,
            self.epoch,
            self.timeout_ms,
            wall_ms,
            partitions,
            self.producer_id,
            self.next_producer_id,
            client_version,
            self.started_ms if self.state is ONGOING else wall_ms,
        )

    def prepare(
        self,
        *,
        commit: bool,
        bumps_epoch: bool,
        client_version: int,
        next_producer_id: int,
        wall_ms: int,
    ) -> "Transaction":
        """Decides the outcome. The markers carry the epoch of the returned value."""
        return Transaction(
            self._check_transition(PREPARE_COMMIT if commit else PREPARE_ABORT),
            self.producer_id,
            min(self.epoch + bumps_epoch, FENCING_EPOCH),
            self.timeout_ms,
            wall_ms,
            self.partitions,
            self.producer_id,
            next_producer_id,
            client_version,
            # A transaction without partitions was never started; it starts when it ends.
            self.started_ms if self.state is ONGOING else wall_ms,
        )

    def complete(self, wall_ms: int) -> "Transaction":
        """Every partition has its marker."""
        producer_id, epoch = self.next_identity()
        return Transaction(
            self._check_transition(PENDING[self.state]),
            producer_id,
            epoch,
            self.timeout_ms,
            wall_ms,
            NO_PARTITIONS,
            self.producer_id,
            NO_PRODUCER_ID,
            self.client_version,
            self.started_ms,
        )

    def _check_transition(self, state: TransactionState) -> TransactionState:
        assert state in FOLLOWERS[self.state], (self.state, state)
        return state

    # ── queries ──────────────────────────────────────────────────────────────────────────────

    @property
    def is_pending(self) -> bool:
        return self.state is PREPARE_COMMIT or self.state is PREPARE_ABORT

    @property
    def is_complete(self) -> bool:
        return self.state is COMPLETE_COMMIT or self.state is COMPLETE_ABORT

    @property
    def is_committed(self) -> bool:
        return self.state is PREPARE_COMMIT or self.state is COMPLETE_COMMIT

    @property
    def has_exhausted_epochs(self) -> bool:
        return self.epoch >= LAST_EPOCH

    def next_identity(self) -> tuple[int, int]:
        """The id and epoch that the producer uses once this pending transaction is complete."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.epoch
        return self.next_producer_id, 0

    def has(self, topic: str, partition: int) -> bool:
        return partition in self.partitions.get(topic, ())

    def has_all(self, partitions: Partitions) -> bool:
        return all(
            self.has(topic, index) for topic, indexes in partitions.items() for index in indexes
        )

    def has_timed_out(self, wall_ms: int) -> bool:
        return (
            self.state is ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.started_ms + self.timeout_ms < wall_ms
        )

    # ── the log ──────────────────────────────────────────────────────────────────────────────

    def record(self, transactional_id: str, *, value_version: int) -> Record:
        partitions = None
        if self.state is not EMPTY:
            partitions = [
                PartitionsSchema(topic=topic, partition_ids=list(indexes))
                for topic, indexes in self.partitions.items()
            ]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )
        if value_version:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return Record(TransactionLogKey(transactional_id=transactional_id), value, value_version)

    @classmethod
    def of(cls, value: TransactionLogValue) -> "Transaction":
        return cls(
            STATES[value.transaction_status],
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            value.transaction_last_update_timestamp_ms,
            {each.topic: tuple(each.partition_ids) for each in value.transaction_partitions or ()},
            value.previous_producer_id,
            value.next_producer_id,
            value.client_transaction_version,
            value.transaction_start_timestamp_ms,
        )


def partitions_of(topics: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
    """The partitions of a request without duplicates."""
    result: dict[str, tuple[int, ...]] = {}
    for topic, indexes in topics:
        result[topic] = tuple(dict.fromkeys((*result.get(topic, ()), *indexes)))
    return result


def tombstone(transactional_id: str) -> Record:
    return Record(TransactionLogKey(transactional_id=transactional_id), None)
