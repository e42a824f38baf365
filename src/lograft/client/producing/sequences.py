"""Idempotence: the producer's identity, and the sequences of its batches in every partition.

A broker takes the batches of a producer only in the order of their sequences, so a batch that
fails for good after it was given one leaves a hole that nothing can pass. The way out is a new
epoch of the producer, in which sequences begin at 0 again (KIP-360). It may only begin when the
fate of every batch with an old sequence is known: one that is perhaps in the log must not be sent
under a new name.
"""

from lograft.client.producing.batches import Batch
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from lograft.wire.batches import increment_sequence

EPOCH_MAX = 0x7FFF


class Sequences:
    def __init__(self) -> None:
        self.producer_id: int = NO_PRODUCER_ID
        self.producer_epoch: int = NO_PRODUCER_EPOCH
        self._next: dict[tuple[str, int], int] = {}
        #: The last sequence that was acknowledged.
        self._acknowledged: dict[tuple[str, int], int] = {}
        #: Batches that have a sequence and no outcome.
        self._open: set[Batch] = set()
        #: A batch is gone for good: no new sequences until the open ones are resolved.
        self.has_hole = False

    @property
    def is_known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def may_assign(self) -> bool:
        return self.is_known and not self.has_hole

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """A new identity: everything begins at 0."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next.clear()
        self._acknowledged.clear()
        self.has_hole = False

    def forget(self) -> None:
        """The identity cannot be used any more; another is to be asked for."""
        self.begin(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    def assign(self, batch: Batch) -> None:
        """Gives the batch the next sequence of its partition, unless it has one."""
        if batch.sequence != NO_SEQUENCE:
            return
        key = batch.topic, batch.partition
        sequence = self._next.get(key, 0)
        self._next[key] = increment_sequence(sequence, batch.count)
        batch.identify(self.producer_id, self.producer_epoch, sequence)
        self._open.add(batch)

    def is_next(self, batch: Batch) -> bool:
        """Whether everything before the batch has been acknowledged."""
        last = self._acknowledged.get((batch.topic, batch.partition), -1)
        return batch.sequence == (increment_sequence(last, 1) if last >= 0 else 0)

    def acknowledge(self, batch: Batch) -> None:
        key = batch.topic, batch.partition
        self._acknowledged[key] = increment_sequence(batch.sequence, batch.count - 1)
        self._open.discard(batch)

    def lose(self, batch: Batch) -> None:
        """The batch has failed for good and leaves a hole."""
        if batch in self._open:
            self._open.discard(batch)
            self.has_hole = True

    def take_back(self, batch: Batch) -> None:
        """The batch is certainly not in the log: it will get another sequence."""
        self.lose(batch)
        batch.identify(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)

    def bump(self) -> bool:
        """A new epoch, when a hole is there and every open batch is resolved. False: the epochs are
        used up, a new identity must be asked for."""
        assert self.has_hole
        assert not self._open
        if self.producer_epoch >= EPOCH_MAX:
            self.forget()
            return False
        self.begin(self.producer_id, self.producer_epoch + 1)
        return True
