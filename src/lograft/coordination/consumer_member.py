"""A member of a consumer group (KIP-848), as an immutable value."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from lograft.coordination.assignors import Assignment
from lograft.wire.records.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue as CurrentAssignmentValue,
)
from lograft.wire.records.consumer_group_current_member_assignment_value import TopicPartitions
from lograft.wire.records.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)

#: Member epochs with a special meaning, in heartbeats and records.
JOIN: Final = 0
LEAVE: Final = -1
#: A static member leaves temporarily: its partitions stay assigned to it.
LEAVE_TEMPORARILY: Final = -2

#: Partitions by topic, each with the epoch in which it was assigned to the member.
Owned: TypeAlias = Mapping[UUID, Mapping[int, int]]

NOTHING_OWNED: Final[Owned] = {}


class MemberState(IntEnum):
    """The numbers are those of the records."""

    #: It owns all partitions of its target.
    STABLE = 0
    #: It was requested to revoke partitions and has not confirmed it: no other member gets them,
    #: and its own epoch stays behind until it confirms.
    UNREVOKED_PARTITIONS = 1
    #: It waits for partitions that other members have not revoked yet.
    UNRELEASED_PARTITIONS = 2
    #: Written by a later release. The member has to rejoin.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class ConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: Subscribed topic names, without duplicates, sorted.
    topics: tuple[str, ...] = ()
    #: "" without a pattern.
    regex: str = ""
    rebalance_timeout_ms: int = -1
    #: The server-side assignor that it prefers.
    assignor: str | None = None
    #: Set if it uses the classic protocol: its session timeout and supported protocols.
    classic: ClassicMemberMetadata | None = None

    #: The epoch expected in its heartbeats. It reaches the target's epoch when no partition
    #: remains to be revoked.
    epoch: int = JOIN
    #: The previous epoch, which the member repeats if the response that raised the epoch was lost.
    previous_epoch: int = JOIN
    state: MemberState = MemberState.STABLE
    #: Partitions that it owns and keeps.
    assigned: Owned = NOTHING_OWNED
    #: Partitions that it may still own and has to revoke.
    revoking: Owned = NOTHING_OWNED

    def held_partitions(self) -> Assignment:
        """All partitions that it may own now, including those to be revoked."""
        return {
            topic_id: tuple(
                sorted((*self.assigned.get(topic_id, ()), *self.revoking.get(topic_id, ())))
            )
            for topic_id in dict.fromkeys((*self.assigned, *self.revoking))
        }

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_epoch(self, epoch: int) -> "ConsumerMember":
        """The member after one step, possibly in the same epoch."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return self._replace(
            instance_id=value.instance_id,
            rack=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(sorted(set(value.subscribed_topic_names))),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def current_assignment(self) -> CurrentAssignmentValue:
        return CurrentAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_encode_partitions(self.assigned),
            partitions_pending_revocation=_encode_partitions(self.revoking),
        )

    def with_current_assignment(self, value: CurrentAssignmentValue | None) -> "ConsumerMember":
        """`value` is None for a tombstone."""
        if value is None:
            return self._replace(
                epoch=LEAVE,
                previous_epoch=LEAVE,
                state=MemberState.STABLE,
                assigned=NOTHING_OWNED,
                revoking=NOTHING_OWNED,
            )
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )


def partitions_of(owned: Owned) -> Assignment:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items()}


def iterate_partitions(*owned: Owned) -> Iterator[tuple[UUID, int]]:
    for topics in owned:
        for topic_id, partitions in topics.items():
            for partition in partitions:
                yield topic_id, partition


def _encode_partitions(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=list(partitions),
            assignment_epochs=list(partitions.values()),
        )
        for topic_id, partitions in owned.items()
    ]


def _read(topics: Iterable[TopicPartitions], member_epoch: int) -> Owned:
    """Records from before Kafka 4.3 have no assignment epochs; the member's epoch replaces them."""
    owned: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned
