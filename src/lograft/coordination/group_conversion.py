"""Conversion of groups with members from the classic to the consumer protocol, member by member,
and back (KIP-848).

A classic group becomes a consumer group when a consumer of the new protocol joins it. The existing
members keep their assignments, and `consumer_classic_members` serves them from then on. The group
becomes a classic group again when the last consumer of the new protocol leaves and others remain:
these rejoin, and one of them computes the assignment.

Invariant (G2): a member that owns a partition in the old group owns it in the new one, until it
reports that it has revoked it or its timeout expires.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_member import Member
from lograft.coordination.classic_subscription import (
    CONSUMER_PROTOCOL,
    assignment_of,
    subscription_of,
    written_assignment,
)
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import ConsumerMember, MemberState, partitions_of
from lograft.coordination.consumer_records import (
    current_assignment_record,
    group_epoch_record,
    member_metadata_record,
    target_assignment_record,
    target_epoch_record,
)
from lograft.coordination.consumer_settings import ConsumerSettings
from lograft.coordination.consumer_targets import existing_topics, metadata_hash
from lograft.coordination.types import Record
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.records.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
)

#: Client-side assignors whose user data in an assignment matters only to themselves. (librdkafka's
#: sticky assignor adds some, and Kafka then rejects the upgrade.) The user data of other assignors
#: may be needed by the application.
COMMON_ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky")

# From classic to consumer.


def check_upgrade(group: ClassicGroup, settings: ConsumerSettings) -> None:
    if not settings.may_upgrade:
        why = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.members_max:
        why = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _upgrade_rejection(group.group_id, why)


def upgrade_records(group: ClassicGroup, image: MetadataImage) -> list[Record]:
    """The tombstones of the classic group, and a consumer group with its members unchanged."""
    members = _upgraded_members(group, image)
    group_id, epoch = group.group_id, group.generation
    names = {name for member in members for name in member.topics}
    # The classic assignment may be missing or older than the topics. Then the hash of no topics
    # makes the next heartbeat start a new epoch.
    is_complete = sum(len(found) for each in members for found in each.assigned.values()) == sum(
        len(image.topics[topic_id].partitions) for topic_id in existing_topics(names, image)
    )
    found = metadata_hash(names, image) if is_complete else 0
    return [
        *group.tombstones(),
        *(member_metadata_record(group_id, member) for member in members),
        group_epoch_record(group_id, epoch, found),
        *(
            target_assignment_record(group_id, member.member_id, partitions_of(member.assigned))
            for member in members
        ),
        # Without a timestamp, so that the first new target is computed without delay.
        target_epoch_record(group_id, epoch, 0),
        *(current_assignment_record(group_id, member) for member in members),
    ]


def _upgraded_members(group: ClassicGroup, image: MetadataImage) -> list[ConsumerMember]:
    taken: set[tuple[UUID, int]] = set()
    upgraded = []
    for member in group.members.values():
        metadata = member.protocols[group.protocol or next(iter(member.protocols))]
        subscription = subscription_of(metadata)
        if subscription is None:
            raise _upgrade_rejection(group.group_id, "the embedded consumer protocol is malformed")
        if member.assignment:
            assignment = assignment_of(member.assignment)
            if assignment is None:
                raise _upgrade_rejection(
                    group.group_id, "the embedded consumer protocol is malformed"
                )
            if assignment.user_data and group.protocol not in COMMON_ASSIGNORS:
                raise _upgrade_rejection(
                    group.group_id,
                    "an unsupported custom assignor is in use. Please refer to the documentation"
                    " or switch to a default assignor before re-attempting the upgrade",
                )
            named = [(topic.topic, topic.partitions) for topic in assignment.assigned_partitions]
        else:
            # During a rebalance. A cooperative member keeps its partitions meanwhile.
            named = [(topic.topic, topic.partitions) for topic in subscription.owned_partitions]
        assigned: dict[UUID, dict[int, int]] = {}
        for topic, partitions in named:
            topic_id = image.topic_ids.get(topic)
            for partition in partitions:
                if topic_id is not None and (topic_id, partition) not in taken:
                    taken.add((topic_id, partition))
                    assigned.setdefault(topic_id, {})[partition] = group.generation
        upgraded.append(
            ConsumerMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack=subscription.rack_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=tuple(sorted(set(subscription.topics))),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=classic_metadata(member.session_timeout_ms, member.protocols),
                epoch=group.generation,
                previous_epoch=group.generation,
                state=MemberState.STABLE,
                assigned=assigned,
            )
        )
    return upgraded


def classic_metadata(
    session_timeout_ms: int, protocols: Mapping[str, bytes]
) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols.items()
        ],
    )


def _upgrade_rejection(group_id: str, why: str) -> Rejected:
    return Rejected(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
    )


# From consumer to classic.


def may_downgrade(
    group: ConsumerGroup,
    leaving: Collection[str],
    settings: ConsumerSettings,
    *,
    arriving: int = 0,
    classic_members_max: int,
) -> bool:
    """Whether to convert the group to a classic one after these members have left and others have
    joined."""
    remaining = len(group.members) - len(leaving) + arriving
    return (
        settings.may_downgrade
        and 0 < remaining <= classic_members_max
        and all(
            member.classic is not None
            for member_id, member in group.members.items()
            if member_id not in leaving
        )
    )


def downgrade_records(
    group: ConsumerGroup,
    classic: ClassicGroup,
    members: Iterable[ConsumerMember],
    image: MetadataImage,
    *,
    is_settled: bool,
) -> list[Record]:
    """The tombstones of the consumer group, and a classic group of these members with all their
    partitions. `classic` is an empty group for computing the record; replay creates the real one.

    If the assignment is not settled, the group has no leader until the members have rejoined and
    one of them computes the assignment. A coordinator that loads a group without a leader starts
    the rebalance again."""
    classic.protocol_type = CONSUMER_PROTOCOL
    classic.generation = group.epoch
    held = {}
    for member in members:
        assert member.classic is not None, member
        classic.add(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols={
                    protocol.name: bytes(protocol.metadata)
                    for protocol in member.classic.supported_protocols
                },
            )
        )
        held[member.member_id] = member.held_partitions()
    remaining = classic.members.values()
    # Invariant: they have a protocol in common (`consumer_classic_members` rejects other members).
    protocol = classic.protocol = classic.choose_protocol(remaining)
    assignments = {
        member.member_id: encode_assignment_by_name(
            held[member.member_id], image, metadata=member.protocols[protocol]
        )
        for member in remaining
    }
    leader = classic.leader if is_settled else None
    return [*group.tombstones(), classic.record(remaining, leader, assignments)]


def encode_assignment_by_name(
    partitions: Mapping[UUID, Iterable[int]], image: MetadataImage, *, metadata: bytes
) -> bytes:
    """An assignment for a classic member: by topic name, without deleted topics."""
    topics = image.topics
    return written_assignment(
        {
            topics[topic_id].name: found
            for topic_id, found in partitions.items()
            if topic_id in topics
        },
        metadata=metadata,
    )
