"""The state of a classic group: its members, its state and its parked requests. It makes no
decisions.

The log states which generation had which members with which assignments (`replay`). During a
rebalance, memory is ahead of the log: members join and leave, and a generation begins. That is soft
state. A new coordinator finds the last generation of the log, whose members learn from its
responses that they have to rejoin.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lograft.coordination.classic_member import Member, member_of_record
from lograft.coordination.classic_states import NEXT_STATE, Cause, GroupState
from lograft.coordination.classic_subscription import (
    CONSUMER_PROTOCOL,
    subscribed_topics,
    topics_named_in,
)
from lograft.coordination.deadlines import Deadline, Deadlines
from lograft.coordination.group import GroupKind, PartitionCheck, check_not_fenced
from lograft.coordination.types import CoordinatorResult, Record, Reply, Ticket
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_TIMESTAMP
from lograft.wire.messages.join_group import JoinGroupResponse
from lograft.wire.messages.sync_group import SyncGroupResponse
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.group_metadata_value import GroupMetadataValue, MemberMetadata

#: Version of the record's value, the one that Kafka 4.3 writes.
VALUE_VERSION: Final = 3
#: The first version that allows a tagged field of our own; Kafka 4.3 reads it.
FENCED_VALUE_VERSION: Final = 4


class ClassicGroup:
    """A `group.Group`."""

    kind = GroupKind.CLASSIC

    __slots__ = (
        "_deadlines",
        "_subscribed",
        "_supporters",
        "_wall_ms",
        "fenced_ms",
        "generation",
        "group_id",
        "has_new_members",
        "instances",
        "is_initial",
        "join_deadline",
        "joins",
        "leader",
        "members",
        "pending",
        "pending_syncs",
        "protocol",
        "protocol_type",
        "replacement",
        "state",
        "state_since_ms",
        "sync_deadline",
        "syncs",
    )

    def __init__(
        self, group_id: str, deadlines: Deadlines[CoordinatorResult], wall_ms: Callable[[], int]
    ) -> None:
        self._deadlines = deadlines
        self._wall_ms = wall_ms
        self.group_id = group_id
        self.state = GroupState.EMPTY
        #: Wall clock; NO_TIMESTAMP if it is not known.
        self.state_since_ms = NO_TIMESTAMP
        self.generation = 0
        #: When all members were fenced (wall clock); NO_TIMESTAMP if members have joined since.
        self.fenced_ms = NO_TIMESTAMP
        #: "" until the first member joins.
        self.protocol_type = ""
        #: The protocol of this generation, which all of its members support.
        self.protocol: str | None = None
        #: The member that computes the assignment.
        self.leader: str | None = None
        #: In the order in which they joined.
        self.members: dict[str, Member] = {}
        #: The member id of each static member.
        self.instances: dict[str, str] = {}
        #: The replacement of a static member, until the record that contains it is replayed.
        self.replacement: Member | None = None
        #: Member ids that were handed out (KIP-394) and whose owners have not joined yet.
        self.pending: dict[str, Deadline[CoordinatorResult]] = {}
        #: Parked requests, by member id.
        self.joins: dict[str, Ticket] = {}
        self.syncs: dict[str, Ticket] = {}
        #: Members of this generation that have not sent SyncGroup yet.
        self.pending_syncs: dict[str, None] = {}
        #: Whether this is the first rebalance of an empty group, which waits for more members.
        self.is_initial = False
        #: Whether a member joined since the initial rebalance was last delayed.
        self.has_new_members = False
        self.join_deadline: Deadline[CoordinatorResult] | None = None
        self.sync_deadline: Deadline[CoordinatorResult] | None = None
        #: The number of members that support each protocol.
        self._supporters: dict[str, int] = {}
        #: None: not a group of consumers, or a subscription cannot be parsed.
        self._subscribed: frozenset[str] | None = None

    def __repr__(self) -> str:
        return f"<{self.group_id} {self.state.value} {self.generation} of {len(self.members)}>"

    # State.

    def transition(self, cause: Cause) -> None:
        self.state = NEXT_STATE[self.state, cause]
        self.state_since_ms = self._wall_ms()

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return len(self.joins) == len(self.members) and not self.pending

    def begin_generation(self) -> None:
        """Starts a generation with the members that have joined."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol = self.choose_protocol(self.members.values()) if self.members else None
        self._subscribed = self._topics()
        self.transition(Cause.JOINED if self.members else Cause.EMPTIED)

    # Members.

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members, member
        if not self.leader:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.instance_id is not None:
            assert member.instance_id not in self.instances, member
            self.instances[member.instance_id] = member.member_id
        self.remove_pending(member.member_id)

    def remove(self, member: Member, code: ErrorCode) -> list[Reply]:
        """Returns the replies to its parked requests."""
        member_id = member.member_id
        del self.members[member_id]
        self._count_protocols(member, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        self.pending_syncs.pop(member_id, None)
        self._deadlines.cancel(member.session)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        response_member_id = member_id if code is ErrorCode.FENCED_INSTANCE_ID else ""
        return [
            *self.reject_join(member_id, code, response_member_id),
            *self.reject_sync(member_id, code),
        ]

    def replace(self, old: Member, new: Member) -> list[Reply]:
        """A static member rejoins with another member id; the owner of the old id is fenced."""
        was_leader = self.leader == old.member_id
        replies = self.remove(old, ErrorCode.FENCED_INSTANCE_ID)
        self.add(new)
        if was_leader:
            self.leader = new.member_id
        return replies

    def update_protocols(self, member: Member, change: Callable[[Member], None]) -> None:
        self._count_protocols(member, -1)
        change(member)
        self._count_protocols(member, 1)

    def remove_pending(self, member_id: str) -> bool:
        deadline = self.pending.pop(member_id, None)
        self._deadlines.cancel(deadline)
        return deadline is not None

    def elect_leader(self) -> bool:
        """Makes sure that the leader has joined; returns False if no member has."""
        if self.leader not in self.joins:
            self.leader = next((id for id in self.members if id in self.joins), self.leader)
        return self.leader in self.joins

    # Protocols.

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these protocols may join."""
        if self.state is GroupState.EMPTY:
            return protocol_type != "" and any(True for _ in protocols)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in protocols
        )

    def choose_protocol(self, members: Iterable[Member]) -> str:
        """Each member votes for its first protocol that all support. On a tie, the protocol that
        was voted for first wins."""
        votes: dict[str, int] = {}
        electorate = list(members)
        common = set.intersection(*(set(member.protocols) for member in electorate))
        for member in electorate:
            choice = next(name for name in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_protocols(self, member: Member, delta: int) -> None:
        supporters = self._supporters
        for name in member.protocols:
            count = supporters.get(name, 0) + delta
            if count:
                supporters[name] = count
            else:
                del supporters[name]

    def _topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if self.protocol is None:
            return None if self.members else frozenset()
        return subscribed_topics(
            member.protocols[self.protocol] for member in self.members.values()
        )

    # The log.

    def record(
        self, members: Iterable[Member], leader: str | None, assignments: Mapping[str, bytes]
    ) -> Record:
        """Returns the record of this generation with these members."""
        return Record(
            GroupMetadataKey(group=self.group_id),
            GroupMetadataValue(
                protocol_type=self.protocol_type,
                generation=self.generation,
                protocol=self.protocol,
                leader=leader,
                current_state_timestamp=self._wall_ms(),
                members=[
                    MemberMetadata(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.protocols[self.protocol or ""],
                        assignment=assignments.get(member.member_id, b""),
                    )
                    for member in members
                ],
            ),
            VALUE_VERSION,
        )

    def build_empty_record(self) -> Record:
        return self.record((), None, {})

    def replay(self, value: GroupMetadataValue) -> None:
        """Replays a record. Known members keep what the log does not contain: their session and
        their other protocols."""
        known = self.members
        if self.replacement is not None:
            known[self.replacement.member_id] = self.replacement
            self.replacement = None
        self.members, self.instances, self._supporters = {}, {}, {}
        self.generation = value.generation
        self.fenced_ms = value.fenced_timestamp
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        for stored in value.members:
            member = known.pop(stored.member_id, None)
            if member is None:
                member = member_of_record(stored, value.protocol)
            else:
                member.assignment = bytes(stored.assignment)
            self.add(member)
        for removed in known.values():
            # A static member that was replaced before it sent SyncGroup.
            self.pending_syncs.pop(removed.member_id, None)
            self._deadlines.cancel(removed.session)
        self.leader = value.leader
        self._subscribed = self._topics()
        self.transition(Cause.ASSIGNED if self.members else Cause.EMPTIED)
        self.state_since_ms = value.current_state_timestamp

    def tombstones(self) -> list[Record]:
        return [Record(GroupMetadataKey(group=self.group_id), None)]

    def discard(self) -> None:
        """Replays the group's tombstone."""
        for member in self.members.values():
            self._deadlines.cancel(member.session)
        for member_id in list(self.pending):
            self.remove_pending(member_id)
        self._deadlines.cancel(self.join_deadline)
        self._deadlines.cancel(self.sync_deadline)
        self.transition(Cause.DELETED)

    # Replies to parked requests.

    def reject_join(
        self, member_id: str, code: ErrorCode, response_member_id: str = ""
    ) -> list[Reply]:
        ticket = self.joins.pop(member_id, None)
        if ticket is None:
            return []
        return [
            (ticket, JoinGroupResponse(error_code=code, member_id=response_member_id, leader=""))
        ]

    def reject_sync(self, member_id: str, code: ErrorCode) -> list[Reply]:
        ticket = self.syncs.pop(member_id, None)
        return [] if ticket is None else [(ticket, SyncGroupResponse(error_code=code))]

    def reject_all(self, code: ErrorCode) -> list[Reply]:
        replies = []
        for member_id in self.members:
            replies += self.reject_join(member_id, code, member_id)
            replies += self.reject_sync(member_id, code)
        return replies

    def fence_all(self, now_ms: int) -> CoordinatorResult:
        replies: list[Reply] = []
        for member in list(self.members.values()):
            replies += self.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        for member_id in list(self.pending):
            self.remove_pending(member_id)
        self._deadlines.cancel(self.join_deadline)
        self._deadlines.cancel(self.sync_deadline)
        self.generation += 1
        self.protocol = None
        self.transition(Cause.EMPTIED)
        key, value, _ = self.build_empty_record()
        assert isinstance(value, GroupMetadataValue)
        value.fenced_timestamp = self._wall_ms()
        return CoordinatorResult(
            records=[Record(key, value, FENCED_VALUE_VERSION)], replies=replies
        )

    # The protocol `group.Group`.

    @property
    def state_name(self) -> str:
        return self.state.value

    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        if self._subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self._subscribed

    def reads(self, topic: str) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL and any(
            topic in topics_named_in(member.protocols.values()) for member in self.members.values()
        )

    def retention_start_ms(self, committed_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_ms
        if self.state is GroupState.EMPTY:
            return committed_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        knows_topics = self._subscribed is not None
        return committed_ms if self.state is GroupState.STABLE and knows_topics else None

    def on_commit(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self.keep_alive(member, now_ms)

    def keep_alive(self, member: Member, now_ms: int) -> None:
        assert member.session is not None, member
        self._deadlines.move(member.session, now_ms + member.session_timeout_ms)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member, if it exists and is the latest one with this instance id."""
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is not None and current != member_id:
                raise Rejected(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {instance_id} of group {self.group_id} has a newer member id",
                )
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id!r}"
            )
        return member

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise Rejected(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.group_id} is in generation {self.generation}, not {generation}",
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
        if epoch < 0 and self.state is GroupState.EMPTY:
            # A standalone consumer or an admin client: the group has no members.
            check_not_fenced(self.group_id, self.fenced_ms, self._wall_ms())
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(epoch)
        elif not transactional:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id} has members, so only they may commit",
            )
        if not transactional and self.state is GroupState.COMPLETING:
            raise Rejected(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"generation {epoch} of group {self.group_id} has no assignment yet",
            )
        return None

    def check_fetch(self, *, member_id: str | None, epoch: int) -> None:
        """Any client may fetch offsets."""

    def check_delete(self) -> None:
        if self.state is not GroupState.EMPTY:
            raise Rejected(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.group_id} is not empty: it has {len(self.members)} member(s)",
            )

    def check_offset_delete(self) -> None:
        """The subscribed topics are known only for groups of consumers."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            self.check_delete()
