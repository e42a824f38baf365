"""Reassignment of partitions. New replicas are added first. Once they are in sync, as reported by
the leader's AlterPartition, `elections.PartitionChange` removes the old ones."""

from lograft.metadata.elections import PartitionChange, is_reassigning
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.partitions import PARTITIONS_PER_REQUEST_MAX
from lograft.metadata.replay import changed_partition
from lograft.metadata.types import ControllerResult, PartitionState, TopicState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_NODE, ReplicationMode, TopicIdPartition
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, *, config: BrokerConfig
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Decides each partition separately; one without replicas has its reassignment canceled."""
    leadership_rules = LeadershipRules(image, config)
    records: dict[TopicIdPartition, PartitionChangeRecord] = {}
    response = AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
    )
    for requested in request.topics:
        results = []
        for partition in requested.partitions:
            result = ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_message=None
            )
            try:
                topic, state = _partition(image, requested.name, partition.partition_index)
                key = TopicIdPartition(topic.topic_id, partition.partition_index)
                _check_free(key, requested.name, state, records)
                change = PartitionChange(leadership_rules, topic, partition.partition_index)
                if partition.replicas is None:
                    record = _cancel(change)
                else:
                    _check_target(image, state, partition.replicas)
                    if not request.allow_replication_factor_change:
                        _check_factor(state, partition.replicas)
                    record = start_reassignment(change, tuple(partition.replicas))
                if record is not None:
                    records[key] = record
            except Rejected as rejection:
                result.error_code, result.error_message = rejection.code, rejection.message
            results.append(result)
        response.responses.append(
            ReassignableTopicResponse(name=requested.name, partitions=results)
        )
    return ControllerResult(tuple(records.values()), response)


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The ongoing reassignments of the requested partitions, or all of them without topics."""
    found: dict[str, list[OngoingPartitionReassignment]] = {}
    if request.topics is None:
        keys = list(image.reassigning)
    else:
        keys = [
            TopicIdPartition(image.topic_ids[requested.name], index)
            for requested in request.topics
            if requested.name in image.topic_ids
            for index in requested.partition_indexes
        ]
    for topic_id, index in keys:
        state = image.partition(topic_id, index)
        if state is not None and is_reassigning(state):
            found.setdefault(image.topics[topic_id].name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(state.replicas),
                    adding_replicas=list(state.adding_replicas),
                    removing_replicas=list(state.removing_replicas),
                )
            )
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=partitions)
            for name, partitions in found.items()
        ],
    )


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas of the partition after its reassignment, if one is in progress."""
    return tuple(r for r in state.replicas if r not in state.removing_replicas)


def _partition(image: MetadataImage, name: str, index: int) -> tuple[TopicState, PartitionState]:
    topic = image.topic(name)
    if topic is None or index not in topic.partitions:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name}-{index} does not exist."
        )
    return topic, topic.partitions[index]


def _check_free(
    key: TopicIdPartition,
    name: str,
    state: PartitionState,
    records: dict[TopicIdPartition, PartitionChangeRecord],
) -> None:
    if key in records:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"The request contains partition {name}-{key.partition} twice.",
        )
    if len(records) >= PARTITIONS_PER_REQUEST_MAX:
        raise Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"One request may reassign at most {PARTITIONS_PER_REQUEST_MAX} partitions. Split it.",
        )
    if state.mode in (ReplicationMode.ENTERING, ReplicationMode.LEAVING):
        raise Rejected(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"{name}-{key.partition} is switching its replication mode ({state.mode.text}). Retry"
            " when the switch is complete.",
        )


def _check_target(image: MetadataImage, state: PartitionState, replicas: list[int]) -> None:
    if not replicas:
        problem = "contains no broker"
    elif len(set(replicas)) != len(replicas):
        problem = f"contains duplicate brokers: {replicas}"
    elif unknown := [b for b in replicas if b not in image.brokers and b not in state.replicas]:
        problem = f"contains broker {unknown[0]}, which is not registered"
    else:
        return
    raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment {problem}.")


def _check_factor(state: PartitionState, replicas: list[int]) -> None:
    factor = len(target_of(state))
    if len(replicas) != factor:
        raise Rejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {factor} replicas and would have {len(replicas)}, but this request"
            " does not allow a change of the replication factor.",
        )


def start_reassignment(
    change: PartitionChange, target: tuple[int, ...]
) -> PartitionChangeRecord | None:
    """Starts the reassignment to `target`; None if the partition already has these replicas."""
    before = change.before
    removing = tuple(sorted(replica for replica in before.replicas if replica not in target))
    change.adding = tuple(
        sorted(
            replica
            for replica in target
            # A replica that an earlier reassignment is still adding is not complete yet.
            if replica not in before.replicas or replica in before.adding_replicas
        )
    )
    change.removing = removing
    change.replicas = (*target, *removing)
    return change.build()


def _cancel(change: PartitionChange) -> PartitionChangeRecord | None:
    """Removes the replicas that are being added and keeps those that were to be removed."""
    before = change.before
    name = f"{change.topic.name}-{change.index}"
    if not is_reassigning(before):
        raise Rejected(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name} is not being reassigned.")
    staying = tuple(r for r in before.replicas if r not in before.adding_replicas)
    if before.mode is ReplicationMode.RAFT:
        # Some may already be voters, which can be removed only one by one.
        return start_reassignment(change, staying)
    change.replicas = staying
    change.isr = tuple(member for member in before.isr if member in staying)
    change.adding = change.removing = ()
    change.elect_uncleanly_if_allowed()
    record = change.build()
    if record is not None:
        after = changed_partition(before, record)
        if after.leader == NO_NODE and not after.elr and not change.isr:
            raise Rejected(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Only new replicas of {name} are in sync, so canceling the reassignment would"
                " require an unclean election.",
            )
    return record
