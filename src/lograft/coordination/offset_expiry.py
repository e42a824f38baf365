"""Removes offsets of deleted topics and expired offsets.

Long lists are processed in pieces, so that batches stay small and other requests are not delayed.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lograft.coordination.group import Group
from lograft.coordination.offset_records import offset_tombstone
from lograft.coordination.offset_table import Committed
from lograft.coordination.types import NOTHING, RETRY_MS, CoordinatorResult, Record, Reply
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    from lograft.coordination.deadlines import Deadline
    from lograft.coordination.group_shard import GroupShard

#: Approximate number of records that one piece writes, and of groups that it checks.
RECORDS_PER_PIECE: Final = 500
GROUPS_PER_PIECE: Final = 1_000
MS_PER_MINUTE: Final = 60_000
#: A time that has always passed.
AT_ONCE: Final = 0


class OffsetExpiry:
    def __init__(self, shard: "GroupShard") -> None:
        self._shard = shard
        #: Groups that the current pass has not checked yet.
        self._unchecked: deque[str] = deque()
        #: (group, topic, partition, offset of its record at the time when the topic was deleted).
        self._orphans: deque[tuple[str, str, int, int]] = deque()
        self._expiry_due: Deadline[CoordinatorResult] | None = None
        self._orphans_due: Deadline[CoordinatorResult] | None = None

    def on_loaded(self, now_ms: int) -> None:
        self._expiry_due = self._shard.deadlines.add(
            now_ms + self._interval_ms, self._expire_offsets
        )

    @property
    def _interval_ms(self) -> int:
        return self._shard.context.config().offsets_retention_check_interval_ms

    # Deleted topics.

    def on_image(self, delta: MetadataDelta) -> None:
        shard = self._shard
        for topic in delta.deleted_topics.values():
            for group_id, partition in shard.offsets.partitions_of_topic(topic.name):
                seen = self._record_offset(group_id, topic.name, partition)
                self._orphans.append((group_id, topic.name, partition, seen))
        if self._orphans and (self._orphans_due is None or not self._orphans_due.is_active):
            self._orphans_due = shard.deadlines.add(AT_ONCE, self._remove_orphans)

    def _record_offset(self, group_id: str, topic: str, partition: int) -> int:
        committed = self._shard.offsets.get(group_id, topic, partition)
        return NO_OFFSET if committed is None else committed.record_offset

    def _remove_orphans(self, now_ms: int) -> CoordinatorResult:
        """Offsets that were committed since for a new topic of the same name are kept."""
        piece = [self._orphans.popleft() for _ in range(min(len(self._orphans), RECORDS_PER_PIECE))]
        records = [
            offset_tombstone(group_id, topic, partition)
            for group_id, topic, partition, seen in piece
            if self._record_offset(group_id, topic, partition) == seen
        ]
        due, deadlines = self._orphans_due, self._shard.deadlines
        assert due is not None
        if self._orphans:
            deadlines.move(due, now_ms)

        def on_failure(code: ErrorCode) -> Sequence[Reply]:
            self._orphans.extendleft(reversed(piece))
            deadlines.move(due, now_ms + RETRY_MS)
            return ()

        return CoordinatorResult(records=records, on_failure=on_failure, separable=True)

    # Expired offsets.

    def _expire_offsets(self, now_ms: int) -> CoordinatorResult:
        shard = self._shard
        if not self._unchecked:
            self._unchecked.extend(shard.groups)
        wall_ms = shard.context.wall_ms()
        records: list[Record] = []
        for _ in range(min(len(self._unchecked), GROUPS_PER_PIECE)):
            group = shard.groups.get(self._unchecked.popleft())
            if group is not None:
                records += self._expire_group(group, wall_ms)
            if len(records) >= RECORDS_PER_PIECE:
                break
        assert self._expiry_due is not None
        shard.deadlines.move(
            self._expiry_due, now_ms + (0 if self._unchecked else self._interval_ms)
        )
        # Offsets that cannot be removed now are found again in the next pass.
        return CoordinatorResult(records=records, separable=True) if records else NOTHING

    def _expire_group(self, group: Group, wall_ms: int) -> list[Record]:
        """Tombstones for its expired offsets, and for the group if it is empty and has no more."""
        table, group_id = self._shard.offsets, group.group_id
        records = []
        kept = table.has_pending(group_id)
        for topic, partitions in table.of(group_id).items():
            is_read = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                if (
                    not is_read
                    and self._is_expired(group, committed, wall_ms)
                    and not table.is_pending(group_id, topic, partition)
                ):
                    records.append(offset_tombstone(group_id, topic, partition))
                else:
                    kept = True
        if not kept and group.is_empty():
            records += group.tombstones()
        return records

    def _is_expired(self, group: Group, committed: Committed, wall_ms: int) -> bool:
        starts_ms = group.retention_start_ms(committed.commit_ms)
        if starts_ms is None:
            return False
        if committed.expire_ms != NO_TIMESTAMP:
            return wall_ms >= committed.expire_ms
        retention_ms = self._shard.context.config().offsets_retention_minutes * MS_PER_MINUTE
        return wall_ms - starts_ms >= retention_ms
