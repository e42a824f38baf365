"""One partition of `__consumer_offsets`: its groups of all protocols, and their offsets.

Each protocol is a `GroupFamily` with the commands of its APIs (`shard.classic.join(…)`). It keeps
its groups in `groups` and its timers in `deadlines`. This module has the parts common to all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from lograft.coordination.classic_groups import ClassicGroups
from lograft.coordination.consumer_classic_members import ConsumerClassicMembers
from lograft.coordination.consumer_groups import ConsumerGroups
from lograft.coordination.deadlines import Deadlines
from lograft.coordination.group import Group, GroupFamily, GroupKind, Replay
from lograft.coordination.offset_expiry import OffsetExpiry
from lograft.coordination.offset_table import Committed, OffsetTable
from lograft.coordination.types import (
    NOTHING,
    RETRY_MS,
    CoordinatorContext,
    CoordinatorResult,
    Record,
    Reply,
)
from lograft.coordination.unclaimed_readers import UnclaimedReaders
from lograft.coordination.unsupported_groups import UnsupportedGroups
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Gauge, Label, Sample, enum_label
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset
from lograft.wire.message import Message
from lograft.wire.records.legacy_offset_commit_key import LegacyOffsetCommitKey
from lograft.wire.records.legacy_offset_commit_value import LegacyOffsetCommitValue
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from lograft.wire.records.offset_commit_value import OffsetCommitValue

GROUPS: Final = Gauge(
    "lograft_groups",
    "Groups that this broker coordinates.",
    enum_label("kind", (kind.value for kind in GroupKind)),
    Label("state", 16),
)
MEMBERS: Final = Gauge(
    "lograft_group_members",
    "Members of the groups that this broker coordinates.",
    enum_label("kind", (kind.value for kind in GroupKind)),
)
OFFSETS: Final = Gauge(
    "lograft_group_offsets", "Committed offsets of the groups that this broker coordinates."
)


class GroupShard:
    """A `types.Core`."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context = context
        #: Every group that has members, a record of its own or committed offsets.
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable()
        self.deadlines: Deadlines[CoordinatorResult] = Deadlines()
        self.families: list[GroupFamily] = []
        self._replays: dict[type[Message], Replay] = {}
        self.offset_expiry = OffsetExpiry(self)
        self.unclaimed_readers = UnclaimedReaders(self)
        self.unsupported = UnsupportedGroups(self)
        self.consumer = ConsumerGroups(self)
        self.classic = ClassicGroups(self, ConsumerClassicMembers(self.consumer))
        self.add_family(self.classic)
        self.add_family(self.consumer)
        #: Creates the group of a client that only commits offsets: a classic one without members.
        self.new_simple_group: Callable[[str], Group] = self.classic.new_group

    def add_family(self, family: GroupFamily) -> None:
        self.families.append(family)
        self._replays.update(family.replays())

    def group(self, group_id: str) -> Group:
        found = self.groups.get(group_id)
        if found is None:
            raise Rejected(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return found

    # Replay is the only writer of hard state.

    def replay(
        self,
        record: Record,
        *,
        offset: Offset,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        key = record.key
        if type(key) is OffsetCommitKey:
            self._replay_offset(key, record.value, offset, producer_id)
            return
        replay = self._replays.get(type(key))
        if replay is not None:
            replay(key, record.value)
        elif isinstance(key, LegacyOffsetCommitKey):
            self._replay_legacy_offset(key, record.value, offset)
        else:
            self.unsupported.replay(key, record.value)

    def _replay_offset(
        self, key: OffsetCommitKey, value: Message | None, offset: Offset, producer_id: int
    ) -> None:
        if value is None:
            self.offsets.remove(key.group, key.topic, key.partition)
            return
        assert isinstance(value, OffsetCommitValue), value
        if key.group not in self.groups:
            self.groups[key.group] = self.new_simple_group(key.group)
        committed = Committed.of(value, offset)
        if producer_id == NO_PRODUCER_ID:
            self.offsets.set(key.group, key.topic, key.partition, committed)
        else:
            self.offsets.set_pending(producer_id, key.group, key.topic, key.partition, committed)

    def _replay_legacy_offset(
        self, key: LegacyOffsetCommitKey, value: Message | None, offset: Offset
    ) -> None:
        """Replays a record of Kafka 0.8 that compaction has kept since."""
        assert value is None or isinstance(value, LegacyOffsetCommitValue), value
        current = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
        if value is not None:
            value = OffsetCommitValue(
                offset=value.offset,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp,
            )
        self._replay_offset(current, value, offset, NO_PRODUCER_ID)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed=committed)

    # Lifecycle of the shard.

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        self.offset_expiry.on_loaded(now_ms)
        self.unclaimed_readers.on_loaded()
        return _merge_results([family.on_loaded(now_ms) for family in self.families])

    def load_notes(self) -> Sequence[str]:
        return self.unsupported.load_notes()

    def on_unloaded(self) -> Sequence[Reply]:
        return [reply for family in self.families for reply in family.on_unloaded()]

    def next_deadline_ms(self) -> int | None:
        return self.deadlines.next_ms()

    def on_time(self, now_ms: int) -> CoordinatorResult:
        due = self.deadlines.take_due(now_ms)
        if due is None:
            return NOTHING
        outcome = due.action(now_ms)
        if not outcome.records or due.is_active:
            return outcome
        take_back = outcome.on_failure

        def on_failure(code: ErrorCode) -> Sequence[Reply]:
            """The append failed, so the deadline is still due."""
            if not due.is_active:
                self.deadlines.move(due, now_ms + RETRY_MS)
            return () if take_back is None else take_back(code)

        return replace(outcome, on_failure=on_failure)

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        self.offset_expiry.on_image(delta)
        self.unclaimed_readers.on_image(delta)
        return _merge_results([family.on_image(delta) for family in self.families])

    def collect_samples(self) -> Iterator[Sample]:
        yield OFFSETS.sample(len(self.offsets))
        for kind in GroupKind:
            yield GROUPS.sample(0, kind.value, "Empty")
            yield MEMBERS.sample(0, kind.value)
        for group in list(self.groups.values()):
            yield GROUPS.sample(1, group.kind.value, group.state_name)
            yield MEMBERS.sample(len(group.members), group.kind.value)


def _merge_results(outcomes: Sequence[CoordinatorResult]) -> CoordinatorResult:
    """Combines results into one batch; none of them has a `on_failure` callback."""
    assert all(outcome.on_failure is None and outcome.producer is None for outcome in outcomes), (
        outcomes
    )
    return CoordinatorResult(
        records=[record for outcome in outcomes for record in outcome.records],
        replies=[reply for outcome in outcomes for reply in outcome.replies],
    )
