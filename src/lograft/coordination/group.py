"""The interface between the shard and its groups, independent of the members' protocol."""

from collections.abc import Callable, Mapping, Sequence, Sized
from enum import Enum
from typing import Final, Protocol, TypeAlias

from lograft.coordination.types import CoordinatorResult, Record, Reply
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.message import Message

#: Replays one kind of record: its key and its value, which is None for a tombstone.
Replay: TypeAlias = "Callable[..., None]"
#: (topic, partition): raises Rejected if the member may commit only for other partitions.
PartitionCheck: TypeAlias = Callable[[str, int], None]


#: For this long after all members were fenced, clients without a membership may not commit: such a
#: client could be a former member that continues with the records it has already read. It is the
#: default of max.poll.interval.ms, the time for which Kafka's consumers may process one poll.
QUIET_AFTER_FENCE_MS: Final = 5 * 60 * 1000


class GroupKind(Enum):
    """The values are those of ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    # Stored but not served: `unsupported_groups`.
    SHARE = "share"
    STREAMS = "streams"


class Group(Protocol):
    """The checks raise Rejected; they change nothing."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """As shown to users: "Stable", …"""

    @property
    def protocol_type(self) -> str:
        """ "consumer" if its members are consumers, "" if no member has ever joined."""

    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        """Checks whether this member may commit; `epoch` is its generation or member epoch. Returns
        None if it may commit for all partitions."""

    def check_fetch(self, *, member_id: str | None, epoch: int) -> None: ...

    def check_delete(self) -> None:
        """Raises NON_EMPTY_GROUP or another error if the group cannot be deleted."""

    def check_offset_delete(self) -> None:
        """Called before some of the group's offsets are deleted."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def reads(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, even before it has received its partitions.
        Subscriptions that cannot be parsed do not count."""

    def is_empty(self) -> bool: ...

    @property
    def members(self) -> Sized: ...

    def retention_start_ms(self, committed_ms: int) -> int | None:
        """Wall-clock time at which retention starts for an offset that was committed at
        `committed_ms` for a topic that the group does not subscribe to; None while the offset
        must not expire."""

    def tombstones(self) -> list[Record]:
        """Delete the group, its members and everything else except its offsets."""

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """A commit extends the member's session."""

    def fence_all(self, now_ms: int) -> CoordinatorResult:
        """Removes every member. The records raise the generation or group epoch, so that later
        commits of former members are rejected and all have to rejoin (UNKNOWN_MEMBER_ID); the
        replies are for parked requests. It also works on an empty group. For a while, clients
        without a membership cannot commit either (`check_not_fenced`). The caller appends the
        records together with others in one batch."""


def check_not_fenced(group_id: str, fenced_ms: int, wall_ms: int) -> None:
    """Checks an empty group, whose members may have been fenced at `fenced_ms`."""
    if fenced_ms != NO_TIMESTAMP and wall_ms - fenced_ms < QUIET_AFTER_FENCE_MS:
        raise Rejected(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"the members of group {group_id} were just fenced: only members that have joined"
            " again may commit",
        )


class GroupFamily(Protocol):
    """The implementation of one group protocol; its groups are in `GroupShard.groups`."""

    def replays(self) -> Mapping[type[Message], Replay]:
        """Replay functions by the type of the record's key: `replay(key, value)`."""

    def on_loaded(self, now_ms: int) -> CoordinatorResult: ...

    def on_unloaded(self) -> Sequence[Reply]: ...

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult: ...
