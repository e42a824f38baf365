"""Elections on request (ElectLeaders) and those that the controller triggers itself."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import Final

from lograft.metadata.elections import Election, PartitionChange, controller_elects
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.types import ControllerResult, PartitionState
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_NODE, ReplicationMode
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord

#: Maximum in one batch of the controller's own elections; the next batch follows immediately.
ELECTIONS_MAX: Final = 1_000
#: Maximum per request, because the records of a request form one batch.
ELECTIONS_PER_REQUEST_MAX: Final = 10_000


class ElectionType(IntEnum):
    """The numbers are those of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, *, config: BrokerConfig
) -> ControllerResult[ElectLeadersResponse]:
    """Decides each partition separately. A request without partitions includes all of them, and
    the response then omits those that need no election. Partitions in raft mode are rejected: a
    transfer of their leadership is requested from their leaders and needs no records.

    A request from Lograft's own clients may specify the broker that should lead (`leader`). It is
    elected if it is in sync and active, whether or not it is the preferred replica."""
    try:
        kind = ElectionType(request.election_type)
    except ValueError:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"Unknown election type {request.election_type}: use 0 (preferred) or 1 (unclean).",
        ) from None
    if request.leader != NO_NODE and (
        request.topic_partitions is None or kind is not ElectionType.PREFERRED
    ):
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "An election of a given broker must specify its partitions and cannot be unclean.",
        )
    leadership_rules = LeadershipRules(image, config)
    records: dict[tuple[str, int], PartitionChangeRecord] = {}
    results = []
    for name, indexes in _requested_partitions(image, request, kind):
        result = ReplicaElectionResult(topic=name)
        for index in indexes:
            partition_result = PartitionResult(partition_id=index, error_message=None)
            try:
                if (name, index) not in records:
                    if len(records) >= ELECTIONS_PER_REQUEST_MAX:
                        raise Rejected(
                            ErrorCode.POLICY_VIOLATION,
                            f"One request may contain at most {ELECTIONS_PER_REQUEST_MAX}"
                            " elections. Send the remaining ones in another request.",
                        )
                    records[name, index] = _elect(
                        image, leadership_rules, kind, name, index, leader=request.leader
                    )
            except Rejected as rejection:
                if request.topic_partitions is None and (
                    rejection.code == ErrorCode.ELECTION_NOT_NEEDED
                ):
                    continue
                partition_result.error_code, partition_result.error_message = (
                    rejection.code,
                    rejection.message,
                )
            result.partition_result.append(partition_result)
        results.append(result)
    response = ElectLeadersResponse(replica_election_results=results)
    return ControllerResult(tuple(records.values()), response)


def balance_leaders(image: MetadataImage, *, config: BrokerConfig) -> ControllerResult[bool]:
    """Elects the preferred replica as leader wherever it is eligible. The reply states whether more
    elections may follow."""
    leadership_rules = LeadershipRules(image, config)
    records: list[PartitionChangeRecord] = []
    for topic_id, index in image.not_preferred:
        if len(records) == ELECTIONS_MAX:
            break
        topic = image.topics[topic_id]
        if controller_elects(topic.partitions[index]):
            change = PartitionChange(leadership_rules, topic, index)
            change.election = Election.PREFERRED
            record = change.build()
            if record is not None:
                records.append(record)
    return ControllerResult(tuple(records), len(records) == ELECTIONS_MAX)


def elect_for_leaderless_partitions(
    image: MetadataImage, *, config: BrokerConfig
) -> ControllerResult[bool]:
    """Elects leaders uncleanly where the topic's configs allow it, and regularly if a controller
    failed over during elections. The reply is the same as above."""
    leadership_rules = LeadershipRules(image, config)

    def elections() -> Iterator[PartitionChangeRecord]:
        for topic_id, index in image.leaderless:
            change = PartitionChange(leadership_rules, image.topics[topic_id], index)
            if controller_elects(change.before):
                change.elect_uncleanly_if_allowed()
                record = change.build()
                if record is not None:
                    yield record

    records = tuple(islice(elections(), ELECTIONS_MAX))
    return ControllerResult(records, len(records) == ELECTIONS_MAX)


def _requested_partitions(
    image: MetadataImage, request: ElectLeadersRequest, kind: ElectionType
) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is not None:
        for requested in request.topic_partitions:
            yield requested.topic, requested.partitions
        return
    hands_over = kind is ElectionType.PREFERRED
    for topic in image.topics.values():
        yield (
            topic.name,
            [
                index
                for index, state in topic.partitions.items()
                if controller_elects(state) or (hands_over and state.mode is ReplicationMode.RAFT)
            ],
        )


def _elect(
    image: MetadataImage,
    leadership_rules: LeadershipRules,
    kind: ElectionType,
    name: str,
    index: int,
    *,
    leader: int,
) -> PartitionChangeRecord:
    topic = image.topic(name)
    if topic is None or index not in topic.partitions:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {name}-{index} does not exist."
        )
    state = topic.partitions[index]
    is_controller_elected = controller_elects(state)
    candidate = state.replicas[0] if leader == NO_NODE else leader
    if leader != NO_NODE:
        _check_candidate(leadership_rules, state, leader, f"{name}-{index}")
    # For a raft partition, the image has only the leader that was reported last.
    if not _needs_election(state, kind, candidate) and (
        is_controller_elected or kind is ElectionType.PREFERRED
    ):
        raise Rejected(
            ErrorCode.ELECTION_NOT_NEEDED, f"The preferred leader of {name}-{index} already leads."
        )
    if not is_controller_elected:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"The replicas of {name}-{index} elect their leader themselves, because its replication"
            f" mode is {state.mode.text}.",
        )
    change = PartitionChange(leadership_rules, topic, index)
    if kind is ElectionType.PREFERRED:
        change.election = Election.PREFERRED
        change.preferred = candidate
    else:
        change.election = Election.UNCLEAN
    record = change.build()
    if record is None:
        if kind is ElectionType.PREFERRED:
            raise Rejected(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"Broker {candidate} cannot lead {name}-{index}: it is offline or not in sync.",
            )
        raise Rejected(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"No replica of {name}-{index} is online.",
        )
    return record


def _check_candidate(
    leadership_rules: LeadershipRules, state: PartitionState, leader: int, name: str
) -> None:
    """Does not check whether the broker is in sync if the replicas elect their leader themselves,
    because their voters decide that."""
    if leader not in state.replicas:
        replicas = ", ".join(map(str, state.replicas))
        raise Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Broker {leader} is not a replica of {name}; its replicas are {replicas}.",
        )
    if leader == state.leader:
        return
    reason = ""
    if not leadership_rules.may_lead(state, leader):
        reason = "it is offline, fenced or shutting down, or its log directory has failed"
    elif controller_elects(state) and leader not in state.isr:
        reason = "it is not in sync"
    if reason:
        raise Rejected(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {leader} cannot lead {name}: {reason}.",
        )


def _needs_election(state: PartitionState, kind: ElectionType, candidate: int) -> bool:
    if kind is ElectionType.PREFERRED:
        return state.leader != candidate
    return state.leader == NO_NODE
