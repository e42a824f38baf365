"""Share groups and streams groups that Apache Kafka wrote; Lograft does not support them yet.

Their records stay in the log unchanged, so that Kafka can load the groups again. Meanwhile the
group id is reserved: requests to join, commit or delete are rejected, ListGroups returns the group
with its type, and its offsets do not expire. Tombstones written by Kafka release the id.

In Kafka, classic and consumer members can take over the id of a streams group that has no members.
Lograft rejects this, because it would delete the group's topology.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lograft.coordination.errors import UnreadableRecord
from lograft.coordination.group import GroupKind, PartitionCheck
from lograft.coordination.types import CoordinatorResult, Record
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.message import Message

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard

# Record types, by the number at the start of the key. The classes themselves are imported only if
# a log contains such a record.
SHARE_TYPES: Final = range(10, 16)
STREAMS_TYPES: Final = range(17, 24)
MEMBER_TYPES: Final = (10, 19)
SHARE_GROUP: Final = 11
STREAMS_GROUP: Final = 17
STREAMS_TARGET: Final = 20
STREAMS_CURRENT_ASSIGNMENT: Final = 22
STREAMS_TOPOLOGY: Final = 23

NO_EPOCH: Final = -1
#: The state of a streams member that owns all its tasks.
STABLE_MEMBER: Final = 1


class UnsupportedGroup:
    """A `group.Group` that rejects everything that would change it."""

    def __init__(self, group_id: str, kind: GroupKind) -> None:
        self.group_id: Final = group_id
        self.kind: Final = kind
        self.protocol_type: Final = kind.value
        self.members: set[str] = set()
        # The following is known only for streams groups.
        self.epoch = 0
        self.target_epoch = 0
        self.topology_epoch = NO_EPOCH
        self.validated_topology_epoch = NO_EPOCH
        #: Member id -> its epoch, and whether it owns all its tasks.
        self.current: dict[str, tuple[int, bool]] = {}

    def __repr__(self) -> str:
        return f"UnsupportedGroup({self.group_id}, {self.kind.value}, members={len(self.members)})"

    @property
    def state_name(self) -> str:
        """The state in which Kafka left the group: its members cannot send heartbeats here."""
        if not self.members:
            return "Empty"
        if self.kind is GroupKind.SHARE:
            return "Stable"
        if self.topology_epoch == NO_EPOCH or (
            self.topology_epoch != self.validated_topology_epoch
        ):
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reconciled = (self.target_epoch, True)
        if all(self.current.get(member) == reconciled for member in self.members):
            return "Stable"
        return "Reconciling"

    def replay(self, key: Any, value: Any) -> None:
        """Keeps the state that `state_name` needs. Key and value are of the record type's class."""
        record_type = key.KEY
        if record_type in MEMBER_TYPES:
            if value is None:
                self.members.discard(key.member_id)
            else:
                self.members.add(key.member_id)
        elif record_type == STREAMS_GROUP and value is not None:
            self.epoch = value.epoch
            self.validated_topology_epoch = value.validated_topology_epoch
        elif record_type == STREAMS_TARGET:
            self.target_epoch = 0 if value is None else value.assignment_epoch
        elif record_type == STREAMS_TOPOLOGY:
            self.topology_epoch = NO_EPOCH if value is None else value.epoch
        elif record_type == STREAMS_CURRENT_ASSIGNMENT:
            if value is None:
                self.current.pop(key.member_id, None)
            else:
                self.current[key.member_id] = (value.member_epoch, value.state == STABLE_MEMBER)

    # Requests.

    def _rejection(self) -> Rejected:
        """Kafka's error for a group of another type."""
        return Rejected(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {self.group_id} is a {self.kind.value} group, which Lograft does not support"
            " yet. Use another group id.",
        )

    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        raise self._rejection()

    def check_fetch(self, *, member_id: str | None, epoch: int) -> None:
        """Fetching offsets changes nothing."""

    def check_delete(self) -> None:
        if self.members:
            raise Rejected(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} is not empty.")
        # A share group also has state in other topics, which only its coordinator can delete.
        raise Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Group {self.group_id} is a {self.kind.value} group: only Apache Kafka can delete it.",
        )

    def check_offset_delete(self) -> None:
        raise self._rejection()

    def fence_all(self, now_ms: int) -> CoordinatorResult:
        raise self._rejection()

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def reads(self, topic: str) -> bool:
        return False

    def is_empty(self) -> bool:
        """Always False, so that no other group takes over its id and it does not expire."""
        return False

    def retention_start_ms(self, committed_ms: int) -> int | None:
        return None

    def tombstones(self) -> list[Record]:
        raise AssertionError(f"nothing here deletes {self}")

    def on_commit(self, member_id: str, now_ms: int) -> None:
        raise AssertionError(f"nothing is committed to {self}")


class UnsupportedGroups:
    """Replays the records of these groups; nothing here writes any."""

    def __init__(self, shard: "GroupShard") -> None:
        self._shard = shard
        #: Number of records of each type in the log, without tombstones.
        self.counts: Counter[str] = Counter()

    def replay(self, key: Message, value: Message | None) -> None:
        """Replays any record type that no served protocol uses."""
        kind = _kind_of(key)
        group_id: str = getattr(key, "group_id")  # noqa: B009 - the classes share no base with it
        groups = self._shard.groups
        group = groups.get(group_id)
        if value is not None:
            self.counts[type(key).__name__.removesuffix("Key")] += 1
        if not isinstance(group, UnsupportedGroup):
            if value is None:
                return  # The tombstone of a deleted group.
            if group is not None and not group.is_empty():
                raise UnreadableRecord(f"group {group_id} has members of another protocol")
            group = groups[group_id] = UnsupportedGroup(group_id, kind)
        if value is None and key.KEY in (SHARE_GROUP, STREAMS_GROUP):
            del groups[group_id]
            if self._shard.offsets.of(group_id):
                groups[group_id] = self._shard.new_simple_group(group_id)
            return
        group.replay(key, value)

    def load_notes(self) -> Sequence[str]:
        groups = [
            group for group in self._shard.groups.values() if isinstance(group, UnsupportedGroup)
        ]
        if not groups:
            return ()
        kinds = Counter(group.kind.value for group in groups)
        records = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        groups_by_kind = " and ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"keeps {groups_by_kind} group(s) that Lograft does not serve yet; their ids are"
            f" reserved (records: {records})",
        )


def _kind_of(key: Message) -> GroupKind:
    if key.KEY in SHARE_TYPES:
        return GroupKind.SHARE
    if key.KEY in STREAMS_TYPES:
        return GroupKind.STREAMS
    raise UnreadableRecord(f"__consumer_offsets cannot contain a {type(key).__name__}")
