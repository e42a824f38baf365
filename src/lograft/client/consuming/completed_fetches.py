"""A fetched slice of a partition until the application has consumed it: as records, a few at a
time, or whole as columns."""

from collections.abc import Iterator
from typing import Final

from lograft.client.consuming.records import decode_records
from lograft.client.consuming.slices import Slice, visible_batches
from lograft.client.types import ConsumerRecord
from lograft.model.types import NO_EPOCH

#: Limit of the decompressed size of one batch.
BATCH_BYTES_MAX: Final = 256 << 20


class CompletedFetch:
    def __init__(self, fetched: Slice) -> None:
        """Raises MalformedBatch."""
        self.slice = fetched
        self.size_bytes = len(fetched.data)
        #: The offset after the last complete batch, which is the position of a reader at the end.
        self.next_offset = fetched.first_offset
        self.last_epoch: int = NO_EPOCH
        #: Includes records that the reader does not see.
        self.record_count = 0
        #: The application has received a record of it.
        self.is_read = False
        for _, header in fetched.batches:
            self.record_count += header.record_count
            if header.last_offset >= self.next_offset:
                self.next_offset = header.last_offset + 1
            self.last_epoch = header.leader_epoch
        self._batches: Iterator[list[ConsumerRecord]] | None = None
        #: The records of the current batch; keys and values are bytes.
        self.records: list[ConsumerRecord] = []
        #: How many of them the application has consumed.
        self.consumed = 0

    def has_more(self, *, checks_crcs: bool) -> bool:
        """Whether a record is left; decodes the next batch when the current one is consumed. After
        BatchCorrupt or MalformedBatch the rest of the slice cannot be read."""
        while self.consumed == len(self.records):
            if self._batches is None:
                self._batches = self._decode(checks_crcs)
            records = next(self._batches, None)
            if records is None:
                return False
            self.records, self.consumed = records, 0
        return True

    def _decode(self, checks_crcs: bool) -> Iterator[list[ConsumerRecord]]:
        for batch in visible_batches(self.slice, checks_crcs=checks_crcs):
            yield decode_records(self.slice, batch, BATCH_BYTES_MAX)
