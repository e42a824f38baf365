"""What other nodes ask of the core, from Kafka's RPCs, and the core's answers as theirs. Both are
about the one partition `__cluster_metadata-0`: any other raises InvalidInput. `outgoing_rpcs.py` is
the other side.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from lograft.consensus import messages as core
from lograft.consensus.types import LogEnd, ReplicaKey, SnapshotId
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.seams import Address
from lograft.model.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    Epoch,
    NodeId,
    Offset,
)
from lograft.wire.messages import begin_quorum_epoch as begin
from lograft.wire.messages import end_quorum_epoch as end
from lograft.wire.messages import fetch, fetch_snapshot, vote

E = TypeVar("E")
P = TypeVar("P")

CODE_OF: Final[Mapping[core.Error, ErrorCode]] = {
    core.Error.NONE: ErrorCode.NONE,
    core.Error.FENCED_EPOCH: ErrorCode.FENCED_LEADER_EPOCH,
    core.Error.UNKNOWN_EPOCH: ErrorCode.UNKNOWN_LEADER_EPOCH,
    core.Error.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    core.Error.WRONG_VOTER: ErrorCode.INVALID_VOTER_KEY,
    # The metadata quorum has one life.
    core.Error.WRONG_LIFE: ErrorCode.INVALID_REQUEST,
    core.Error.INVALID: ErrorCode.INVALID_REQUEST,
    core.Error.SNAPSHOT_NOT_FOUND: ErrorCode.SNAPSHOT_NOT_FOUND,
    core.Error.POSITION_OUT_OF_RANGE: ErrorCode.POSITION_OUT_OF_RANGE,
    core.Error.DUPLICATE_VOTER: ErrorCode.DUPLICATE_VOTER,
    core.Error.VOTER_NOT_FOUND: ErrorCode.VOTER_NOT_FOUND,
    core.Error.CHANGE_IN_PROGRESS: ErrorCode.REQUEST_TIMED_OUT,
    core.Error.LAST_VOTER: ErrorCode.INVALID_REQUEST,
    core.Error.STATIC_VOTERS: ErrorCode.UNSUPPORTED_VERSION,
    core.Error.VERSION_NOT_SUPPORTED: ErrorCode.INVALID_UPDATE_VERSION,
    core.Error.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
}


def vote_from_wire(request: vote.VoteRequest, me: ReplicaKey) -> core.VoteRequest:
    asked = _asked(request.topics)
    return core.VoteRequest(
        sender=ReplicaKey(NodeId(asked.replica_id), asked.replica_directory_id),
        to=_voter(request.voter_id, asked, me),
        epoch=Epoch(asked.replica_epoch),
        log_end=LogEnd(Epoch(asked.last_offset_epoch), Offset(asked.last_offset)),
        pre_vote=asked.pre_vote,
    )


def begin_from_wire(
    request: begin.BeginQuorumEpochRequest, me: ReplicaKey
) -> core.BeginQuorumEpochRequest:
    asked = _asked(request.topics)
    return core.BeginQuorumEpochRequest(
        sender=ReplicaKey(NodeId(asked.leader_id)),
        to=_voter(request.voter_id, asked, me),
        epoch=Epoch(asked.leader_epoch),
    )


def _voter(
    voter_id: int,
    asked: vote.VoteRequestPartitionData | begin.BeginQuorumEpochRequestPartitionData,
    me: ReplicaKey,
) -> ReplicaKey:
    """Version 0 does not say who is meant."""
    node_id = me.node_id if voter_id < 0 else NodeId(voter_id)
    return ReplicaKey(node_id, asked.voter_directory_id)


def end_from_wire(request: end.EndQuorumEpochRequest) -> core.EndQuorumEpochRequest:
    asked = _asked(request.topics)
    successors = [
        ReplicaKey(NodeId(each.candidate_id), each.candidate_directory_id)
        for each in asked.preferred_candidates
    ] or [ReplicaKey(NodeId(node_id)) for node_id in asked.preferred_successors]
    return core.EndQuorumEpochRequest(
        sender=ReplicaKey(NodeId(asked.leader_id)),
        epoch=Epoch(asked.leader_epoch),
        successors=tuple(successors),
    )


def fetch_from_wire(request: fetch.FetchRequest) -> core.FetchRequest:
    if len(request.topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} can be fetched here")
    topic = request.topics[0]
    name = METADATA_TOPIC if topic.topic_id == METADATA_TOPIC_ID else topic.topic
    asked = _partition(name, topic.partitions)
    _check_index(asked.partition)
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    return core.FetchRequest(
        sender=ReplicaKey(NodeId(replica_id), asked.replica_directory_id),
        epoch=Epoch(asked.current_leader_epoch),
        log_end=LogEnd(Epoch(asked.last_fetched_epoch), Offset(asked.fetch_offset)),
        # One that does not say what it knows to be committed says the highest there is.
        high_watermark=Offset(asked.high_watermark),
        wait_ms=max(request.max_wait_ms, 0),
    )


def fetch_snapshot_from_wire(
    request: fetch_snapshot.FetchSnapshotRequest,
) -> core.FetchSnapshotRequest:
    if len(request.topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} has snapshots")
    asked = _partition(request.topics[0].name, request.topics[0].partitions)
    _check_index(asked.partition)
    return core.FetchSnapshotRequest(
        sender=ReplicaKey(NodeId(request.replica_id), asked.replica_directory_id),
        epoch=Epoch(asked.current_leader_epoch),
        snapshot=SnapshotId(Offset(asked.snapshot_id.end_offset), Epoch(asked.snapshot_id.epoch)),
        position=asked.position,
    )


class KnownLeader(NamedTuple):
    """What answers say besides the core's message: where the leader is, if that is known."""

    leader: NodeId = NO_NODE
    address: Address | None = None

    def endpoints(self, kind: Callable[..., E]) -> list[E]:
        if self.address is None:
            return []
        return [kind(node_id=self.leader, host=self.address.host, port=self.address.port)]


def vote_to_wire(answer: core.VoteResponse, known: KnownLeader) -> vote.VoteResponse:
    partition = vote.VoteResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[answer.error],
        leader_id=answer.leader,
        leader_epoch=answer.epoch,
        vote_granted=answer.granted,
    )
    topic = vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    response = vote.VoteResponse(topics=[topic])
    response.node_endpoints = known.endpoints(vote.NodeEndpoint)
    return response


def begin_to_wire(
    answer: core.BeginQuorumEpochResponse, known: KnownLeader
) -> begin.BeginQuorumEpochResponse:
    partition = begin.BeginQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[answer.error],
        leader_id=answer.leader,
        leader_epoch=answer.epoch,
    )
    topic = begin.BeginQuorumEpochResponseTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    response = begin.BeginQuorumEpochResponse(topics=[topic])
    response.node_endpoints = known.endpoints(begin.NodeEndpoint)
    return response


def end_to_wire(
    answer: core.EndQuorumEpochResponse, known: KnownLeader
) -> end.EndQuorumEpochResponse:
    partition = end.EndQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[answer.error],
        leader_id=answer.leader,
        leader_epoch=answer.epoch,
    )
    topic = end.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    response = end.EndQuorumEpochResponse(topics=[topic])
    response.node_endpoints = known.endpoints(end.NodeEndpoint)
    return response


def fetch_to_wire(
    answer: core.FetchResponse, known: KnownLeader, *, log_start: Offset
) -> fetch.FetchResponse:
    data = fetch.PartitionData(
        partition_index=0,
        error_code=CODE_OF[answer.error],
        high_watermark=answer.high_watermark,
        log_start_offset=log_start,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader, leader_epoch=answer.epoch),
        aborted_transactions=None,
        records=b"",
    )
    if answer.diverging is not None:
        data.diverging_epoch = fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
        )
    if answer.snapshot is not None:
        data.snapshot_id = fetch.SnapshotId(
            end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch
        )
    if answer.entries is not None:
        assert isinstance(answer.entries.data, bytes)
        data.records = answer.entries.data
    topic = fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
    )
    response = fetch.FetchResponse(responses=[topic])
    response.node_endpoints = known.endpoints(fetch.NodeEndpoint)
    return response


def fetch_snapshot_to_wire(
    answer: core.FetchSnapshotResponse, known: KnownLeader
) -> fetch_snapshot.FetchSnapshotResponse:
    id_ = SnapshotId(NO_OFFSET, NO_EPOCH) if answer.snapshot is None else answer.snapshot
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=0,
        error_code=CODE_OF[answer.error],
        snapshot_id=fetch_snapshot.FetchSnapshotResponseSnapshotId(
            end_offset=id_.end_offset, epoch=id_.epoch
        ),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=answer.leader, leader_epoch=answer.epoch
        ),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=answer.data,
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    response = fetch_snapshot.FetchSnapshotResponse(topics=[topic])
    response.node_endpoints = known.endpoints(fetch_snapshot.NodeEndpoint)
    return response


class _Topic(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


def _asked(topics: Sequence[_Topic]) -> Any:
    if len(topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} has a quorum")
    asked = _partition(topics[0].topic_name, topics[0].partitions)
    _check_index(asked.partition_index)
    return asked


def _partition(name: str, partitions: Sequence[P]) -> P:
    if name != METADATA_TOPIC or len(partitions) != 1:
        raise InvalidInput(f"one partition of {METADATA_TOPIC} must be asked for, and nothing else")
    return partitions[0]


def _check_index(index: int) -> None:
    if index != 0:
        raise InvalidInput(f"{METADATA_TOPIC} has no partition {index}")
