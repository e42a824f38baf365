"""The committed offsets of every group of a shard, and the pending offsets of open transactions.

Only replay changes it. An offset written in a transaction takes effect with the transaction's
commit marker, unless a later record has committed another offset in the meantime.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias
from uuid import UUID

from lograft.model.types import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, Offset
from lograft.wire.records.offset_commit_value import OffsetCommitValue


class OffsetBeforeReset(NamedTuple):
    """A committed offset before its reset, kept until an undo or the next reset."""

    #: NO_OFFSET if there was none.
    offset: int
    leader_epoch: int
    metadata: str
    #: When it was reset (wall clock).
    reset_ms: int


class Committed(NamedTuple):
    """A group's committed offset of one partition."""

    #: The next record to consume.
    offset: int
    #: Leader epoch of the last consumed record; -1 if it is not known.
    leader_epoch: int
    metadata: str
    #: Wall clock.
    commit_ms: int
    #: Wall clock; set only by clients from before Kafka 2.1, otherwise -1.
    expire_ms: int = NO_TIMESTAMP
    #: ZERO_UUID if committed by name only.
    topic_id: UUID = ZERO_UUID
    #: Offset of this commit's record in the internal topic.
    record_offset: Offset = NO_OFFSET
    #: None if it was not reset or the reset is undone. Later commits preserve it.
    before: OffsetBeforeReset | None = None

    @classmethod
    def of(cls, value: OffsetCommitValue, record_offset: Offset) -> "Committed":
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
            None
            if value.reset_timestamp == NO_TIMESTAMP
            else OffsetBeforeReset(
                value.offset_before_reset,
                value.leader_epoch_before_reset,
                value.metadata_before_reset,
                value.reset_timestamp,
            ),
        )


#: By topic, then partition.
Positions: TypeAlias = dict[str, dict[int, Committed]]


class OffsetTable:
    def __init__(self) -> None:
        #: By group. Groups without offsets and topics without partitions are omitted.
        self._committed: dict[str, Positions] = {}
        #: By producer id, then group: written in a transaction that is still open.
        self._pending: dict[int, dict[str, Positions]] = {}
        #: By group: the producers with pending offsets. (A dict serves as an ordered set.)
        self._pending_by: dict[str, dict[int, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, group_id: str) -> Positions:
        """The caller must not modify the result."""
        return self._committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        positions = self._committed.get(group_id)
        partitions = None if positions is None else positions.get(topic)
        return None if partitions is None else partitions.get(partition)

    def before_reset(self, group_id: str, topic: str, partition: int) -> OffsetBeforeReset | None:
        known = self.get(group_id, topic, partition)
        return None if known is None else known.before

    def partitions_of_topic(self, topic: str) -> Iterator[tuple[str, int]]:
        """(group, partition) of every offset in the topic, committed or pending."""
        for group_id, positions in self._committed.items():
            for partition in positions.get(topic, ()):
                yield group_id, partition
        for groups in self._pending.values():
            for group_id, positions in groups.items():
                for partition in positions.get(topic, ()):
                    yield group_id, partition

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still commit another offset."""
        return any(
            partition in self._pending[producer][group_id].get(topic, ())
            for producer in self._pending_by.get(group_id, ())
        )

    def contains(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset, committed or pending."""
        known = self.get(group_id, topic, partition)
        return known is not None or self.is_pending(group_id, topic, partition)

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._pending_by

    def pending_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        for producer in self._pending_by.get(group_id, ()):
            for topic, partitions in self._pending[producer][group_id].items():
                for partition in partitions:
                    yield topic, partition

    # Replay.

    def set(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        partitions = self._committed.setdefault(group_id, {}).setdefault(topic, {})
        self._count += partition not in partitions
        partitions[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Replays a tombstone, which also removes pending offsets."""
        self._count -= _remove(self._committed, group_id, topic, partition)
        for producer in list(self._pending_by.get(group_id, ())):
            groups = self._pending[producer]
            _remove(groups, group_id, topic, partition)
            if group_id not in groups:
                self._forget_pending(producer, group_id)

    def set_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: Committed
    ) -> None:
        groups = self._pending.setdefault(producer_id, {})
        groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        self._pending_by.setdefault(group_id, {})[producer_id] = None

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group_id, positions in self._pending.pop(producer_id, {}).items():
            self._forget_pending(producer_id, group_id)
            if not committed:
                continue
            for topic, partitions in positions.items():
                for partition, position in partitions.items():
                    current = self.get(group_id, topic, partition)
                    if current is None or current.record_offset < position.record_offset:
                        self.set(group_id, topic, partition, position)

    def _forget_pending(self, producer_id: int, group_id: str) -> None:
        producers = self._pending_by[group_id]
        del producers[producer_id]
        if not producers:
            del self._pending_by[group_id]
        if not self._pending.get(producer_id, True):
            del self._pending[producer_id]


def _remove(groups: dict[str, Positions], group_id: str, topic: str, partition: int) -> bool:
    """Also removes mappings that become empty; returns whether the offset existed."""
    positions = groups.get(group_id, {})
    partitions = positions.get(topic, {})
    if partitions.pop(partition, None) is None:
        return False
    if not partitions:
        del positions[topic]
        if not positions:
            del groups[group_id]
    return True
