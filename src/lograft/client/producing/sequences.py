"""Idempotence: producer id and epoch, and the sequences of the batches in every partition.

A broker accepts the batches of a producer only in the order of their sequences, so a batch that
fails for good after it got a sequence leaves a gap, after which the broker rejects all others. The
producer then bumps its epoch, in which sequences start at 0 (KIP-360), but only when the outcome of
every batch with an old sequence is known: a batch that may be in the log must not be sent with a
new sequence.
"""

from lograft.client.producing.batches import Batch
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from lograft.wire.batches import increment_sequence

EPOCH_MAX = 0x7FFF


class Sequences:
    """Producer id, epoch and sequences of one producer."""

    def __init__(self) -> None:
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        self._next: dict[tuple[str, int], int] = {}
        #: The last acknowledged sequence of each partition.
        self._acknowledged: dict[tuple[str, int], int] = {}
        #: Batches with a sequence and without an outcome.
        self._open: set[Batch] = set()
        #: A batch with a sequence has failed: no new sequences until the open batches are done.
        self.has_gap = False

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def may_assign(self) -> bool:
        return self.is_known and not self.has_gap

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Sets producer id and epoch. All sequences start at 0."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next.clear()
        self._acknowledged.clear()
        self.has_gap = False

    def forget(self) -> None:
        """Drops the producer id, which cannot be used any longer; a new one must be requested."""
        self.begin(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def assign(self, batch: Batch) -> None:
        """Assigns the next sequence of its partition to the batch, unless it has one."""
        if batch.sequence != NO_SEQUENCE:
            return
        key = batch.topic, batch.partition
        sequence = self._next.get(key, 0)
        self._next[key] = increment_sequence(sequence, batch.count)
        batch.set_producer(self.producer_id, self.producer_epoch, sequence)
        self._open.add(batch)

    def is_next(self, batch: Batch) -> bool:
        """Whether all batches before this one have been acknowledged."""
        last = self._acknowledged.get((batch.topic, batch.partition), -1)
        return batch.sequence == (increment_sequence(last, 1) if last >= 0 else 0)

    def acknowledge(self, batch: Batch) -> None:
        key = batch.topic, batch.partition
        self._acknowledged[key] = increment_sequence(batch.sequence, batch.count - 1)
        self._open.discard(batch)

    def fail(self, batch: Batch) -> None:
        """The batch has failed for good: if it has a sequence, it leaves a gap."""
        if batch in self._open:
            self._open.discard(batch)
            self.has_gap = True

    def unassign(self, batch: Batch) -> None:
        """Removes the sequence of a batch that is certainly not in the log, so it gets a new
        one."""
        self.fail(batch)
        batch.set_producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)

    def bump(self) -> bool:
        """Begins a new epoch after a gap, when every open batch is done. Returns False if the
        epochs are used up and a new producer id must be requested."""
        assert self.has_gap
        assert not self._open
        if self.producer_epoch >= EPOCH_MAX:
            self.forget()
            return False
        self.begin(self.producer_id, self.producer_epoch + 1)
        return True
