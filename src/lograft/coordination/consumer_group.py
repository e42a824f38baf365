"""A group of the consumer protocol (KIP-848): its state, which only replay changes.

Three epochs follow one another. The group epoch rises with every change of members, subscriptions
or topics; the target's epoch follows when an assignment has been computed for it; a member's epoch
follows when the member has revoked the partitions that the target takes from it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from lograft.coordination.assignors import NO_PARTITIONS, Assignment
from lograft.coordination.consumer_member import (
    ConsumerMember,
    iterate_partitions,
)
from lograft.coordination.consumer_records import (
    group_epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
    target_epoch_record,
)
from lograft.coordination.group import GroupKind, PartitionCheck, check_not_fenced
from lograft.coordination.subscriptions import ResolvedRegex
from lograft.coordination.types import CoordinatorResult, Record
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import NO_TIMESTAMP

K = TypeVar("K")

#: The first version of OffsetCommit that can return STALE_MEMBER_EPOCH.
COMMIT_VERSION_MIN: Final = 9


class ConsumerGroup:
    """A `group.Group`."""

    kind: Final = GroupKind.CONSUMER
    protocol_type: Final = "consumer"

    def __init__(
        self,
        group_id: str,
        topic_id_of: Callable[[str], UUID | None],
        wall_ms: Callable[[], int],
    ) -> None:
        self._topic_id_of = topic_id_of
        self._wall_ms = wall_ms
        self.group_id: Final = group_id
        #: As in Kafka, the first member joins at epoch 2.
        self.epoch = 1
        #: Hash of the topics for which the epoch was created. Another hash requires another epoch.
        self.metadata_hash = 0
        #: When all members were fenced (wall clock); NO_TIMESTAMP if members have joined since.
        self.fenced_ms = NO_TIMESTAMP
        self.target_epoch = 0
        #: When the target was computed (wall clock).
        self.target_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        #: By instance id.
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        #: The owner of each partition that is assigned or being revoked. Invariant (G2): no other
        #: member gets it.
        self.owners: dict[UUID, dict[int, str]] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        #: The number of members that subscribe to a topic, use a pattern, prefer an assignor.
        self.topic_counts: dict[str, int] = {}
        self.regex_counts: dict[str, int] = {}
        self.assignor_counts: dict[str, int] = {}

        #: Soft state: the topics may have changed since the hash was computed.
        self.is_stale = True

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id}, epoch={self.epoch}, members={len(self.members)})"

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    # Queries of the commands.

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        return partition not in self.owners.get(topic_id, ())

    def is_waiting(self, member: ConsumerMember) -> bool:
        """Whether other members still own partitions that this member's target contains."""
        return any(
            not self.is_free(topic_id, partition)
            for topic_id, partitions in self.target(member.member_id).items()
            for partition in partitions
            if partition not in member.assigned.get(topic_id, ())
        )

    def topic_names(self) -> set[str]:
        """The topics that any member subscribes to."""
        return set(self.topic_counts).union(*(regex.topics for regex in self.resolved.values()))

    def topics_of(
        self, member: ConsumerMember, resolved: Mapping[str, ResolvedRegex] | None = None
    ) -> tuple[str, ...]:
        """The topics that a member subscribes to, with patterns resolved by `resolved`, or else by
        the group's state."""
        if not member.regex:
            return member.topics
        found = (self.resolved if resolved is None else resolved).get(member.regex)
        return member.topics if found is None else (*member.topics, *found.topics)

    # The protocol `group.Group`.

    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        transactional: bool,
        api_version: int,
    ) -> PartitionCheck | None:
        if epoch < 0 and not self.members:
            # An admin client changes the offsets of an empty group.
            check_not_fenced(self.group_id, self.fenced_ms, self._wall_ms())
            return None
        if transactional and epoch == -1 and member_id == "" and instance_id is None:
            return None  # A producer that does not identify the group member.
        member = self.member(member_id)
        if not transactional and member.classic is None and api_version < COMMIT_VERSION_MIN:
            raise Rejected(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol must use OffsetCommit version"
                f" {COMMIT_VERSION_MIN} or above.",
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise self._stale(member, f"is in epoch {member.epoch}, not in {epoch}")
        return partial(self._check_partition, member, epoch)

    def _check_partition(
        self, member: ConsumerMember, epoch: int, topic: str, partition: int
    ) -> None:
        """The member may not know its latest epoch yet: it may commit for partitions that it has
        owned since the epoch in the request (KIP-1251)."""
        topic_id = self._topic_id_of(topic)
        had = [
            owned[topic_id][partition]
            for owned in (member.assigned, member.revoking)
            if topic_id is not None and partition in owned.get(topic_id, ())
        ]
        if not had or had[0] > epoch:
            raise self._stale(member, f"did not have {topic}-{partition} in epoch {epoch}")

    def check_fetch(self, *, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, f"is in epoch {member.epoch}, not in {epoch}")

    def _stale(self, member: ConsumerMember, why: str) -> Rejected:
        return Rejected(
            ErrorCode.STALE_MEMBER_EPOCH
            if member.classic is None
            else ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} of group {self.group_id} {why}.",
        )

    def check_delete(self) -> None:
        if self.members:
            raise Rejected(
                ErrorCode.NON_EMPTY_GROUP,
                f"Group {self.group_id} is not empty: it has {len(self.members)} member(s).",
            )

    def check_offset_delete(self) -> None:
        """Allowed in groups with members, for topics that the group does not subscribe to."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_counts or any(
            topic in regex.topics for regex in self.resolved.values()
        )

    def reads(self, topic: str) -> bool:
        return self.is_subscribed_to(topic)

    def is_empty(self) -> bool:
        return not self.members

    def retention_start_ms(self, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> list[Record]:
        return group_tombstones(self.group_id, self.members, self.resolved)

    def on_commit(self, member_id: str, now_ms: int) -> None:
        """In this protocol only heartbeats extend a session."""

    def fence_all(self, now_ms: int) -> CoordinatorResult:
        records = [
            record
            for member_id in self.members
            for record in member_tombstones(self.group_id, member_id)
        ]
        records += [regex_tombstone(self.group_id, regex) for regex in self.resolved]
        epoch = self.epoch + 1
        # An empty target: a member that rejoins under the same id must not get its old epoch, in
        # which its earlier commits would be accepted.
        records += [
            target_epoch_record(self.group_id, epoch, 0),
            group_epoch_record(self.group_id, epoch, 0, fenced_ms=self._wall_ms()),
        ]
        return CoordinatorResult(records=records)

    # Replay.

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._forget(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        _count(self.topic_counts, member.topics, 1)
        _count(self.regex_counts, _some(member.regex), 1)
        _count(self.assignor_counts, _some(member.assignor), 1)
        for topic_id, partition in iterate_partitions(member.assigned, member.revoking):
            self.owners.setdefault(topic_id, {})[partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self._forget(old)

    def _forget(self, old: ConsumerMember) -> None:
        """Removes everything derived from the member's previous value."""
        if (
            old.instance_id is not None
            and self.static_members.get(old.instance_id) == old.member_id
        ):
            del self.static_members[old.instance_id]
        _count(self.topic_counts, old.topics, -1)
        _count(self.regex_counts, _some(old.regex), -1)
        _count(self.assignor_counts, _some(old.assignor), -1)
        for topic_id, partition in iterate_partitions(old.assigned, old.revoking):
            owners = self.owners.get(topic_id, {})
            # If a partition changed owners within one batch, the new owner may already be set.
            if owners.get(partition) == old.member_id:
                del owners[partition]
                if not owners:
                    del self.owners[topic_id]


def _some(text: str | None) -> tuple[str, ...]:
    return (text,) if text else ()


def _count(counts: dict[K, int], keys: Iterable[K], by: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + by
        if count:
            counts[key] = count
        else:
            del counts[key]
