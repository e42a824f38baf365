"""Producer state of a partition: detects duplicates and gaps, and fences old producer epochs.

The last five batches of each producer id are kept. A duplicate of one of them is answered with the
offset assigned to the original. All state is derived from the log: the leader's appends and the
replay (by followers and recovery) end in the same `add_batch` and `add_marker`, so that the state
after a truncation or a restart equals a replay.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from lograft.model.types import NO_SEQUENCE, Offset
from lograft.storage.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)
from lograft.storage.types import AbortedTransaction, TransactionEnd
from lograft.wire.batches import SEQUENCE_MAX

BATCHES_KEPT: Final = 5
#: The first transaction version whose markers carry the producer's next epoch.
EPOCH_BUMPED_SINCE: Final = 2
#: Maximum number of pending verifications of a partition. Beyond it the oldest is removed, and its
#: batch is rejected.
VERIFICATIONS_MAX: Final = 10_000
#: The epoch cannot grow beyond this value: the producer gets a new id instead.
EPOCH_MAX: Final = 2**15 - 1


class ProducerBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Marker(NamedTuple):
    """The end of a transaction, as read from its control batch."""

    commit: bool
    coordinator_epoch: int


class Verification:
    """A transaction that is not open in this partition yet, while its coordinator is queried
    whether the transaction is ongoing and contains this partition (KIP-890).

    The identity of the object matters. The append passes the object that was created when the
    coordinator was queried. If a marker was written in the meantime, the partition has no
    verification or another one, however often the transaction began again (KAFKA-14884).
    """

    __slots__ = ("adds", "began_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, *, adds: bool, began_ms: int) -> None:
        self.epoch = epoch
        #: The lowest sequence number of the batches that wait for the response: no later batch may
        #: be appended first.
        self.lowest_sequence = sequence
        #: The query itself adds the partition to the transaction: the protocol in which the epoch
        #: is bumped with each transaction.
        self.adds = adds
        self.began_ms = began_ms


#: For batches that need no verification, because the broker is configured not to verify
#: transactions.
UNVERIFIED: Final = Verification(-1, SEQUENCE_MAX, adds=False, began_ms=-1)


class Producer:
    """Invariant: all batches have epoch `epoch`, in offset order, without gaps in their sequence
    numbers."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.coordinator_epoch = -1
        #: First offset of the open transaction; -1 if there is none.
        self.transaction_start = -1
        self.last_timestamp = -1
        #: When the producer last wrote, by this broker's clock. Not in the log, so a replay need
        #: not reproduce it.
        self.last_seen_ms = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def derived_state(self) -> tuple[object, ...]:
        """The state that a replay of the log must reproduce."""
        return (
            self.producer_id,
            self.epoch,
            tuple(self.batches),
            self.coordinator_epoch,
            self.transaction_start,
            self.last_timestamp,
        )


class ProducerStates:
    __slots__ = ("_ongoing", "_producers", "_unreplicated", "_verifications", "last_end_offset")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        #: First offset of each open transaction → producer id, in ascending order.
        self._ongoing: dict[int, int] = {}
        #: (marker's offset, first offset) of ended transactions whose marker may not be replicated
        #: or durable yet, in the order of the markers.
        self._unreplicated: list[tuple[int, int]] = []
        #: By producer id. Not in the log, so a replay need not reproduce it.
        self._verifications: dict[int, Verification] = {}
        #: Offset of the last marker of a transaction that had records in this partition.
        self.last_end_offset = -1

    def __len__(self) -> int:
        return len(self._producers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStates):
            return NotImplemented
        return self.derived_state() == other.derived_state()

    __hash__ = None  # type: ignore[assignment]

    def derived_state(self) -> dict[int, tuple[object, ...]]:
        return {key: entry.derived_state() for key, entry in self._producers.items()}

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def all(self) -> list[Producer]:
        return list(self._producers.values())

    @property
    def open_transactions(self) -> int:
        return len(self._ongoing)

    # ── validation by the leader ─────────────────────────────────────────────────────────────────

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, plain: bool
    ) -> ProducerBatch | None:
        """Returns None if a client's batch may be appended, or the original of a duplicate.
        `plain`: the batch is not part of a transaction.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None  # no state, or it was deleted: any first sequence number is accepted
        if epoch == producer.epoch:
            batches = producer.batches
            expected = (batches[-1].last_sequence + 1) & SEQUENCE_MAX if batches else 0
            if first_sequence != expected:
                return self._explain(producer, first_sequence, last_sequence, expected)
        elif epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {producer_id} sent epoch {epoch}, but the current epoch is"
                f" {producer.epoch}"
            )
        elif first_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {producer_id} started epoch {epoch} with sequence {first_sequence}"
                " instead of 0"
            )
        if plain and producer.transaction_start >= 0:
            raise InvalidTransactionState(
                f"producer {producer_id} has an open transaction but sent a batch outside of it"
            )
        return None

    @staticmethod
    def _explain(
        producer: Producer, first_sequence: int, last_sequence: int, expected: int
    ) -> ProducerBatch:
        for batch in producer.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        # As in Kafka, a duplicate of an older batch is out of order too: whether it was appended is
        # not known.
        raise OutOfOrderSequence(
            f"producer {producer.producer_id} sent sequence {first_sequence}, expected {expected}"
        )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Validates a batch without sequence numbers, which a coordinator writes on behalf of a
        producer."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {producer_id} sent epoch {epoch}, but the current epoch is"
                f" {producer.epoch}"
            )

    def check_end(self, end: TransactionEnd) -> None:
        """Validates a marker. A duplicate of a marker that was written may be written again, with
        the same effect."""
        producer = self._producers.get(end.producer_id)
        if producer is None:
            return
        if end.transaction_version >= EPOCH_BUMPED_SINCE and end.producer_epoch == producer.epoch:
            # The open transaction already has this epoch, so it is a later transaction.
            is_late = producer.transaction_start >= 0 and end.producer_epoch < EPOCH_MAX
        else:
            is_late = end.producer_epoch < producer.epoch
        if is_late:
            raise ProducerFenced(
                f"transaction marker with epoch {end.producer_epoch} of producer"
                f" {end.producer_id}, but the current epoch is {producer.epoch}"
            )
        if producer.coordinator_epoch > end.coordinator_epoch:
            raise CoordinatorFenced(
                f"transaction marker of producer {end.producer_id} has coordinator epoch"
                f" {end.coordinator_epoch}, the current one is {producer.coordinator_epoch}"
            )

    # ── verification of a transaction's first batch ──────────────────────────────────────────────

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, adds: bool, now_ms: int
    ) -> Verification | None:
        """Returns the verification to pass with the batch after its coordinator has confirmed the
        transaction; None if the transaction is open in this partition and needs no verification."""
        if self.has_open_transaction(producer_id, epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            if len(self._verifications) == VERIFICATIONS_MAX:
                del self._verifications[next(iter(self._verifications))]
            known = Verification(epoch, sequence, adds=adds, began_ms=now_ms)
            self._verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def check_transactional(
        self, producer_id: int, epoch: int, first_sequence: int, brought: Verification | None
    ) -> None:
        """Validates that a batch belongs to a transaction whose coordinator has this partition."""
        if brought is UNVERIFIED or self.has_open_transaction(producer_id, epoch):
            return
        known = self._verifications.get(producer_id)
        if known is None or known is not brought:
            raise InvalidTransactionState(
                f"producer {producer_id} has no open transaction with epoch {epoch} here"
            )
        is_gap = known.adds and first_sequence > 0 and producer_id not in self._producers
        if is_gap or first_sequence > known.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {producer_id} started a transaction with sequence {first_sequence},"
                " but an earlier batch is missing"
            )

    # ── updates after an append ──────────────────────────────────────────────────────────────────

    def add_batch(
        self, producer_id: int, epoch: int, batch: ProducerBatch, transactional: bool, now_ms: int
    ) -> None:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        batches = producer.batches
        if epoch != producer.epoch:
            producer.epoch = epoch
            batches.clear()
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        producer.last_timestamp = batch.timestamp
        producer.last_seen_ms = now_ms
        if transactional:
            self._verifications.pop(producer_id, None)
            if producer.transaction_start < 0:
                producer.transaction_start = batch.base_offset
                self._ongoing[batch.base_offset] = producer_id

    def add_marker(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Ends the transaction; returns it if it was aborted and had records in this partition."""
        self._verifications.pop(producer_id, None)
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        if epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = timestamp
        producer.last_seen_ms = now_ms
        start, producer.transaction_start = producer.transaction_start, -1
        if start < 0:
            return None
        del self._ongoing[start]
        self._unreplicated.append((offset, start))
        self.last_end_offset = offset
        if marker.commit:
            return None
        stable = next(iter(self._ongoing), offset + 1)
        return AbortedTransaction(producer_id, start, offset, stable)

    # ── last stable offset ───────────────────────────────────────────────────────────────────────

    @property
    def first_undecided_offset(self) -> Offset | None:
        """The first offset of the oldest open transaction."""
        for offset in self._ongoing:
            return Offset(offset)
        return None

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open, or whose marker is at or above the high
        watermark."""
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            above = bisect_left(self._unreplicated, (high_watermark, -1))
            for _, start in self._unreplicated[above:]:
                if first is None or start < first:
                    first = start
        return first

    def forget_ended(self, below: int) -> None:
        """Removes ended transactions whose markers are below this offset, so replicated and
        durable: no later call needs them."""
        if self._unreplicated and self._unreplicated[0][0] < below:
            del self._unreplicated[: bisect_left(self._unreplicated, (below, -1))]

    # ── expiration ───────────────────────────────────────────────────────────────────────────────

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Removes producers that have been idle for `expiration_ms`; returns their number.

        The idle time is measured from the last append by this broker's clock, because clients set
        the timestamps of records.
        """
        gone = []
        for producer_id, producer in self._producers.items():
            if producer.last_seen_ms < 0:
                producer.last_seen_ms = now_ms
            idle = now_ms - max(producer.last_seen_ms, producer.last_timestamp)
            if producer.transaction_start < 0 and idle >= expiration_ms:
                gone.append(producer_id)
        for producer_id in gone:
            del self._producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if now_ms - verification.began_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(gone)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()

    def load(self, producers: list[Producer]) -> None:
        self.clear()
        for producer in producers:
            self._producers[producer.producer_id] = producer
        for start, producer_id in sorted(
            (p.transaction_start, p.producer_id) for p in producers if p.transaction_start >= 0
        ):
            self._ongoing[start] = producer_id
