"""A fetched slice of a partition on its way to the program: as records, a few at a time, or whole
as columns."""

from collections.abc import Iterator
from typing import Final

from lograft.client.consuming.records import records_of
from lograft.client.consuming.slices import Slice, visible_batches
from lograft.client.types import ConsumerRecord
from lograft.model.types import NO_EPOCH

#: What a consumer takes of one compressed batch when it is unpacked.
BATCH_BYTES_MAX: Final = 256 << 20


class CompletedFetch:
    def __init__(self, fetched: Slice) -> None:
        """Raises MalformedBatch."""
        self.slice = fetched
        self.size_bytes = len(fetched.data)
        #: Behind the last whole batch: where the reader is when it has seen them all.
        self.next_offset = fetched.first_offset
        self.last_epoch: int = NO_EPOCH
        for _, header in fetched.batches:
            if header.last_offset >= self.next_offset:
                self.next_offset = header.last_offset + 1
            self.last_epoch = header.leader_epoch
        self._batches: Iterator[list[ConsumerRecord]] | None = None
        #: Of the batch that is being given out; keys and values are bytes.
        self.records: list[ConsumerRecord] = []
        #: How many of them the program has got.
        self.given = 0

    def has_more(self, *, checks_crcs: bool) -> bool:
        """Whether there is a record to give. Raises BatchCorrupt or MalformedBatch, after which
        the slice cannot be read on."""
        while self.given == len(self.records):
            if self._batches is None:
                self._batches = self._decode(checks_crcs)
            following = next(self._batches, None)
            if following is None:
                return False
            self.records, self.given = following, 0
        return True

    def _decode(self, checks_crcs: bool) -> Iterator[list[ConsumerRecord]]:
        for batch in visible_batches(self.slice, checks_crcs=checks_crcs):
            yield records_of(self.slice, batch, BATCH_BYTES_MAX)
