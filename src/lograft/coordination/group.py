"""What the shard knows of a group, whatever protocol its members speak."""

from collections.abc import Callable, Mapping, Sequence, Sized
from enum import Enum
from typing import Final, Protocol, TypeAlias

from lograft.coordination.types import CoordinatorResult, Record, Reply
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.message import Message

#: Replays one kind of record: its key and its value, None for a tombstone.
Replay: TypeAlias = "Callable[..., None]"
#: (topic, partition): raises Rejected where a member may commit for some partitions only.
PartitionCheck: TypeAlias = Callable[[str, int], None]


#: So long after all members were sent away nobody without a membership commits: it could be one
#: of them, which has lost it and goes on with what it has read. As long as Kafka's consumers may
#: work on what they have polled (the default of max.poll.interval.ms).
QUIET_AFTER_FENCE_MS: Final = 5 * 60 * 1000


class GroupKind(Enum):
    """The values are those of ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    # Kept, not served: `unserved_groups`.
    SHARE = "share"
    STREAMS = "streams"


class Group(Protocol):
    """The checks raise Rejected; none of them changes anything."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """For people: "Stable", …"""

    @property
    def protocol_type(self) -> str:
        """ "consumer" where its members are consumers, "" where nobody ever said."""

    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """Whether this member may commit; `epoch` is its generation or member epoch. None: for any
        partition."""

    def check_fetch(self, *, member_id: str | None, epoch: int) -> None: ...

    def check_delete(self) -> None:
        """Before the whole group is deleted: NON_EMPTY_GROUP …"""

    def check_offset_delete(self) -> None:
        """Before some of its offsets are deleted."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def reads(self, topic: str) -> bool:
        """Whether a member subscribes to it, also one that has not got its partitions yet. What
        cannot be understood is no subscription."""

    def is_empty(self) -> bool: ...

    @property
    def members(self) -> Sized: ...

    def retention_starts_ms(self, committed_ms: int) -> int | None:
        """Wall-clock time from which the retention of an offset counts that was committed at
        `committed_ms` for a topic that the group does not subscribe to; None: it does not count
        now."""

    def tombstones(self) -> list[Record]:
        """What deletes the group, its members and all else but its offsets, from the log."""

    def commit_seen(self, member_id: str, now_ms: int) -> None:
        """A commit is a sign of life."""

    def fence_all(self, now_ms: int) -> CoordinatorResult:
        """Every member loses its membership: records that remove them and move the generation or
        group epoch on, so that no commit of theirs counts any more and all have to join again
        (UNKNOWN_MEMBER_ID); replies to those that are parked. Also when it is empty. For a while
        nobody else commits either (`check_not_fenced`). The caller appends the records together
        with others, in one batch."""


def check_not_fenced(group_id: str, fenced_ms: int, wall_ms: int) -> None:
    """For an empty group whose members were sent away at `fenced_ms`, if they were."""
    if fenced_ms != NO_TIMESTAMP and wall_ms - fenced_ms < QUIET_AFTER_FENCE_MS:
        raise Rejected(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"the members of group {group_id} were just sent away: only those that have joined"
            " again may commit",
        )


class GroupFamily(Protocol):
    """One protocol's part of the shard: its groups are in `GroupShard.groups`."""

    def replays(self) -> Mapping[type[Message], Replay]:
        """By the type of the record's key: `replay(key, value)`."""

    def on_loaded(self, now_ms: int) -> CoordinatorResult: ...

    def on_unloaded(self) -> Sequence[Reply]: ...

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult: ...
