"""Decides a leader's proposal of a new ISR (KIP-497, KIP-903, KIP-704)."""

from collections.abc import Iterable
from typing import Final

from lograft.metadata.elections import PartitionChange
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.mode_switch import enter_raft, report_leader
from lograft.metadata.replay import changed_partition, new_partition_state
from lograft.metadata.types import ControllerResult, LeaderRecovery, PartitionState, TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_EPOCH, ReplicationMode, TopicIdPartition
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord
from lograft.wire.records.partition_record import PartitionRecord

#: Since this version the proposal contains the broker epoch of each replica.
WITH_BROKER_EPOCHS: Final = 3
#: In a proposal: any registration of the broker is acceptable.
ANY_EPOCH: Final = -1


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, version: int, *, config: BrokerConfig
) -> ControllerResult[AlterPartitionResponse]:
    """Decides each partition separately. Rejects the whole request if it does not come from the
    current registration of the broker."""
    _check_sender(image, request.broker_id, request.broker_epoch)
    leadership_rules = LeadershipRules(image, config)
    records: list[PartitionChangeRecord | PartitionRecord] = []
    changed: dict[TopicIdPartition, None] = {}
    response = AlterPartitionResponse()
    for requested in request.topics:
        partition_responses = []
        topic = image.topics.get(requested.topic_id)
        for proposal in requested.partitions:
            index = proposal.partition_index
            try:
                if topic is None:
                    raise _rejection(ErrorCode.UNKNOWN_TOPIC_ID)
                state = topic.partitions.get(index)
                if state is None:
                    raise _rejection(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                key = TopicIdPartition(topic.topic_id, index)
                if key in changed:
                    # A duplicate: its partition epoch is outdated by the first proposal.
                    raise _rejection(ErrorCode.INVALID_UPDATE_VERSION)
                isr = _members(proposal, version)
                record = _decide(image, leadership_rules, request.broker_id, topic, proposal, isr)
                if record is not None:
                    records.append(record)
                    changed[key] = None
                partition_responses.append(
                    _partition_response(request.broker_id, index, state, record)
                )
            except Rejected as rejection:
                partition_responses.append(
                    AlterPartitionResponsePartitionData(
                        partition_index=index, error_code=rejection.code
                    )
                )
        response.topics.append(
            AlterPartitionResponseTopicData(
                topic_id=requested.topic_id, partitions=partition_responses
            )
        )
    return ControllerResult(tuple(records), response)


def _check_sender(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise Rejected(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is not registered with epoch {broker_epoch}.",
        )


def _members(proposal: AlterPartitionRequestPartitionData, version: int) -> list[BrokerState]:
    if version >= WITH_BROKER_EPOCHS:
        return proposal.new_isr_with_epochs
    return [BrokerState(broker_id=member, broker_epoch=ANY_EPOCH) for member in proposal.new_isr]


def _check_proposal(
    sender: int,
    state: PartitionState,
    proposal: AlterPartitionRequestPartitionData,
    isr: Iterable[BrokerState],
) -> None:
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        # The leader is ahead of this controller: another controller must be active by now.
        raise _rejection(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < state.leader_epoch:
        raise _rejection(ErrorCode.FENCED_LEADER_EPOCH)
    if sender != state.leader:
        raise _rejection(ErrorCode.INVALID_REQUEST)
    if proposal.partition_epoch < state.partition_epoch:
        raise _rejection(ErrorCode.INVALID_UPDATE_VERSION)
    members = [member.broker_id for member in isr]
    recovery = proposal.leader_recovery_state
    if (
        state.leader not in members
        or len(set(members)) != len(members)
        or any(member not in state.replicas for member in members)
        or recovery not in (LeaderRecovery.RECOVERED, LeaderRecovery.RECOVERING)
    ):
        raise _rejection(ErrorCode.INVALID_REQUEST)
    if recovery == LeaderRecovery.RECOVERING and (
        len(members) > 1 or state.leader_recovery == LeaderRecovery.RECOVERED
    ):
        raise _rejection(ErrorCode.INVALID_REQUEST)


def _check_members(image: MetadataImage, isr: Iterable[BrokerState]) -> None:
    """Each member must be active, with the registration that the leader saw catching up: a later
    registration may have lost records."""
    for member in isr:
        broker = image.brokers.get(member.broker_id)
        if (
            broker is None
            or not broker.is_active
            or member.broker_epoch not in (ANY_EPOCH, broker.epoch)
        ):
            raise _rejection(ErrorCode.INELIGIBLE_REPLICA)


def _decide(
    image: MetadataImage,
    leadership_rules: LeadershipRules,
    sender: int,
    topic: TopicState,
    proposal: AlterPartitionRequestPartitionData,
    isr: list[BrokerState],
) -> PartitionChangeRecord | PartitionRecord | None:
    state = topic.partitions[proposal.partition_index]
    in_sync = tuple(member.broker_id for member in isr)
    if state.mode is ReplicationMode.RAFT:
        if proposal.replication_mode != ReplicationMode.RAFT:
            raise _rejection(ErrorCode.INVALID_REQUEST)
        return report_leader(
            topic,
            proposal.partition_index,
            leader=sender,
            leader_epoch=proposal.leader_epoch,
            life=proposal.raft_life,
            in_sync=in_sync,
            voters=tuple(proposal.raft_voters),
        )
    if proposal.replication_mode == ReplicationMode.RAFT and proposal.raft_life != NO_EPOCH:
        # Elected by the voters of a raft life that has ended.
        raise _rejection(ErrorCode.FENCED_LEADER_EPOCH)
    _check_proposal(sender, state, proposal, isr)
    _check_members(image, isr)
    if proposal.replication_mode == ReplicationMode.RAFT:
        return enter_raft(
            image,
            topic,
            proposal.partition_index,
            leader=sender,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch,
            isr=in_sync,
        )
    if state.mode is ReplicationMode.LEAVING and not set(state.isr) <= set(in_sync):
        # No member may leave the ISR before enough replicas have all records.
        raise _rejection(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return _build(leadership_rules, topic, proposal, isr)


def _build(
    leadership_rules: LeadershipRules,
    topic: TopicState,
    proposal: AlterPartitionRequestPartitionData,
    isr: Iterable[BrokerState],
) -> PartitionChangeRecord | None:
    change = PartitionChange(leadership_rules, topic, proposal.partition_index)
    change.isr = tuple(member.broker_id for member in isr)
    change.recovery = proposal.leader_recovery_state
    change.elect_uncleanly_if_allowed()
    return change.build()


def _partition_response(
    sender: int,
    index: int,
    before: PartitionState,
    record: PartitionChangeRecord | PartitionRecord | None,
) -> AlterPartitionResponsePartitionData:
    after = before
    if isinstance(record, PartitionChangeRecord):
        after = changed_partition(before, record)
    elif record is not None:
        after = new_partition_state(record)
    if after.leader != sender:
        # The change completed a reassignment that removed the sender.
        return AlterPartitionResponsePartitionData(
            partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED
        )
    return AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery,
        partition_epoch=after.partition_epoch,
    )


def _rejection(code: ErrorCode) -> Rejected:
    """AlterPartition responses have only error codes, no messages."""
    return Rejected(code, code.name)
