"""Converts Kafka's RPCs from other nodes into requests to the core, and the core's responses back.
They concern `__cluster_metadata-0`; any other partition raises InvalidInput. `outgoing_rpcs.py` is
the other direction.
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
    data = _requested_partition(request.topics)
    return core.VoteRequest(
        sender=ReplicaKey(NodeId(data.replica_id), data.replica_directory_id),
        to=_voter(request.voter_id, data, me),
        epoch=Epoch(data.replica_epoch),
        log_end=LogEnd(Epoch(data.last_offset_epoch), Offset(data.last_offset)),
        pre_vote=data.pre_vote,
    )


def begin_from_wire(
    request: begin.BeginQuorumEpochRequest, me: ReplicaKey
) -> core.BeginQuorumEpochRequest:
    data = _requested_partition(request.topics)
    return core.BeginQuorumEpochRequest(
        sender=ReplicaKey(NodeId(data.leader_id)),
        to=_voter(request.voter_id, data, me),
        epoch=Epoch(data.leader_epoch),
    )


def _voter(
    voter_id: int,
    data: vote.VoteRequestPartitionData | begin.BeginQuorumEpochRequestPartitionData,
    me: ReplicaKey,
) -> ReplicaKey:
    """Returns the addressed voter. Version 0 has no voter id: it is this node."""
    node_id = me.node_id if voter_id < 0 else NodeId(voter_id)
    return ReplicaKey(node_id, data.voter_directory_id)


def end_from_wire(request: end.EndQuorumEpochRequest) -> core.EndQuorumEpochRequest:
    data = _requested_partition(request.topics)
    successors = [
        ReplicaKey(NodeId(each.candidate_id), each.candidate_directory_id)
        for each in data.preferred_candidates
    ] or [ReplicaKey(NodeId(node_id)) for node_id in data.preferred_successors]
    return core.EndQuorumEpochRequest(
        sender=ReplicaKey(NodeId(data.leader_id)),
        epoch=Epoch(data.leader_epoch),
        successors=tuple(successors),
    )


def fetch_from_wire(request: fetch.FetchRequest) -> core.FetchRequest:
    if len(request.topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} can be fetched from a controller")
    topic = request.topics[0]
    name = METADATA_TOPIC if topic.topic_id == METADATA_TOPIC_ID else topic.topic
    data = _partition(name, topic.partitions)
    _check_index(data.partition)
    state = request.replica_state
    replica_id = request.replica_id if state is None else state.replica_id
    return core.FetchRequest(
        sender=ReplicaKey(NodeId(replica_id), data.replica_directory_id),
        epoch=Epoch(data.current_leader_epoch),
        log_end=LogEnd(Epoch(data.last_fetched_epoch), Offset(data.fetch_offset)),
        # In older versions the default is the highest value: the leader waits for new records.
        high_watermark=Offset(data.high_watermark),
        wait_ms=max(request.max_wait_ms, 0),
    )


def fetch_snapshot_from_wire(
    request: fetch_snapshot.FetchSnapshotRequest,
) -> core.FetchSnapshotRequest:
    if len(request.topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} has snapshots")
    data = _partition(request.topics[0].name, request.topics[0].partitions)
    _check_index(data.partition)
    return core.FetchSnapshotRequest(
        sender=ReplicaKey(NodeId(request.replica_id), data.replica_directory_id),
        epoch=Epoch(data.current_leader_epoch),
        snapshot=SnapshotId(Offset(data.snapshot_id.end_offset), Epoch(data.snapshot_id.epoch)),
        position=data.position,
    )


class KnownLeader(NamedTuple):
    """The leader and its address, if known, which responses contain in addition to the core's
    message."""

    leader: NodeId = NO_NODE
    address: Address | None = None

    def endpoints(self, kind: Callable[..., E]) -> list[E]:
        if self.address is None:
            return []
        return [kind(node_id=self.leader, host=self.address.host, port=self.address.port)]


def vote_to_wire(response: core.VoteResponse, known: KnownLeader) -> vote.VoteResponse:
    partition = vote.VoteResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[response.error],
        leader_id=response.leader,
        leader_epoch=response.epoch,
        vote_granted=response.granted,
    )
    topic = vote.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    converted = vote.VoteResponse(topics=[topic])
    converted.node_endpoints = known.endpoints(vote.NodeEndpoint)
    return converted


def begin_to_wire(
    response: core.BeginQuorumEpochResponse, known: KnownLeader
) -> begin.BeginQuorumEpochResponse:
    partition = begin.BeginQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[response.error],
        leader_id=response.leader,
        leader_epoch=response.epoch,
    )
    topic = begin.BeginQuorumEpochResponseTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    converted = begin.BeginQuorumEpochResponse(topics=[topic])
    converted.node_endpoints = known.endpoints(begin.NodeEndpoint)
    return converted


def end_to_wire(
    response: core.EndQuorumEpochResponse, known: KnownLeader
) -> end.EndQuorumEpochResponse:
    partition = end.EndQuorumEpochResponsePartitionData(
        partition_index=0,
        error_code=CODE_OF[response.error],
        leader_id=response.leader,
        leader_epoch=response.epoch,
    )
    topic = end.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    converted = end.EndQuorumEpochResponse(topics=[topic])
    converted.node_endpoints = known.endpoints(end.NodeEndpoint)
    return converted


def fetch_to_wire(
    response: core.FetchResponse, known: KnownLeader, *, log_start: Offset
) -> fetch.FetchResponse:
    data = fetch.PartitionData(
        partition_index=0,
        error_code=CODE_OF[response.error],
        high_watermark=response.high_watermark,
        log_start_offset=log_start,
        current_leader=fetch.LeaderIdAndEpoch(
            leader_id=response.leader, leader_epoch=response.epoch
        ),
        aborted_transactions=None,
        records=b"",
    )
    if response.diverging is not None:
        data.diverging_epoch = fetch.EpochEndOffset(
            epoch=response.diverging.epoch, end_offset=response.diverging.offset
        )
    if response.snapshot is not None:
        data.snapshot_id = fetch.SnapshotId(
            end_offset=response.snapshot.end_offset, epoch=response.snapshot.epoch
        )
    if response.entries is not None:
        assert isinstance(response.entries.data, bytes)
        data.records = response.entries.data
    topic = fetch.FetchableTopicResponse(
        topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[data]
    )
    converted = fetch.FetchResponse(responses=[topic])
    converted.node_endpoints = known.endpoints(fetch.NodeEndpoint)
    return converted


def fetch_snapshot_to_wire(
    response: core.FetchSnapshotResponse, known: KnownLeader
) -> fetch_snapshot.FetchSnapshotResponse:
    id_ = SnapshotId(NO_OFFSET, NO_EPOCH) if response.snapshot is None else response.snapshot
    partition = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=0,
        error_code=CODE_OF[response.error],
        snapshot_id=fetch_snapshot.FetchSnapshotResponseSnapshotId(
            end_offset=id_.end_offset, epoch=id_.epoch
        ),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=response.leader, leader_epoch=response.epoch
        ),
        size=response.size_bytes,
        position=response.position,
        unaligned_records=response.data,
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=METADATA_TOPIC, partitions=[partition]
    )
    converted = fetch_snapshot.FetchSnapshotResponse(topics=[topic])
    converted.node_endpoints = known.endpoints(fetch_snapshot.NodeEndpoint)
    return converted


class _Topic(Protocol):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


def _requested_partition(topics: Sequence[_Topic]) -> Any:
    if len(topics) != 1:
        raise InvalidInput(f"only {METADATA_TOPIC} has a quorum")
    data = _partition(topics[0].topic_name, topics[0].partitions)
    _check_index(data.partition_index)
    return data


def _partition(name: str, partitions: Sequence[P]) -> P:
    if name != METADATA_TOPIC or len(partitions) != 1:
        raise InvalidInput(f"the request must be for the only partition of {METADATA_TOPIC}")
    return partitions[0]


def _check_index(index: int) -> None:
    if index != 0:
        raise InvalidInput(f"{METADATA_TOPIC} has no partition {index}")
