"""Converts the core's requests to other nodes into Kafka's RPCs Vote, BeginQuorumEpoch,
EndQuorumEpoch, Fetch and FetchSnapshot of `__cluster_metadata-0`, and the responses back.
`incoming_rpcs.py` is the other direction.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from lograft.broker.errors import InconsistentClusterId, UnusableResponse
from lograft.consensus import messages as core
from lograft.consensus.types import LogEnd, LogSlice, SnapshotId, VoterEndpoint
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Buffer
from lograft.model.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_OFFSET,
    Epoch,
    NodeId,
    Offset,
)
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages import begin_quorum_epoch as begin
from lograft.wire.messages import end_quorum_epoch as end
from lograft.wire.messages import fetch, fetch_snapshot, vote

#: Versions with KIP-853 (directory ids), KIP-996 (pre-votes) and KIP-1166 (high watermark).
VOTE_VERSIONS: Final = Versions(2, 2)
BEGIN_VERSIONS: Final = Versions(1, 1)
END_VERSIONS: Final = Versions(1, 1)
FETCH_VERSIONS: Final = Versions(17, 18)
FETCH_SNAPSHOT_VERSIONS: Final = Versions(1, 1)

_ERROR_OF: Final = {
    ErrorCode.NONE: core.Error.NONE,
    ErrorCode.FENCED_LEADER_EPOCH: core.Error.FENCED_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH: core.Error.UNKNOWN_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: core.Error.NOT_LEADER,
    ErrorCode.INVALID_VOTER_KEY: core.Error.WRONG_VOTER,
    ErrorCode.SNAPSHOT_NOT_FOUND: core.Error.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE: core.Error.POSITION_OUT_OF_RANGE,
}


class WireRequest(NamedTuple):
    message: Message
    versions: Versions
    response_type: type[Message]


class RequestContext(NamedTuple):
    """Properties of this node that its requests contain in addition to the core's message."""

    cluster_id: str
    #: Endpoints of this node's controller listeners.
    endpoints: tuple[VoterEndpoint, ...]
    fetch_bytes_max: int
    snapshot_bytes_max: int


def request_to_wire(request: core.PeerRequest, context: RequestContext) -> WireRequest:
    match request:
        case core.VoteRequest():
            return WireRequest(_vote(request, context), VOTE_VERSIONS, vote.VoteResponse)
        case core.BeginQuorumEpochRequest():
            return WireRequest(
                _begin(request, context), BEGIN_VERSIONS, begin.BeginQuorumEpochResponse
            )
        case core.EndQuorumEpochRequest():
            return WireRequest(_end(request, context), END_VERSIONS, end.EndQuorumEpochResponse)
        case core.FetchRequest():
            return WireRequest(_fetch(request, context), FETCH_VERSIONS, fetch.FetchResponse)
        case core.FetchSnapshotRequest():
            return WireRequest(
                _fetch_snapshot(request, context),
                FETCH_SNAPSHOT_VERSIONS,
                fetch_snapshot.FetchSnapshotResponse,
            )


def _vote(request: core.VoteRequest, context: RequestContext) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.sender.node_id,
        replica_directory_id=request.sender.directory_id,
        voter_directory_id=request.to.directory_id,
        last_offset_epoch=_log_epoch(request.log_end),
        last_offset=request.log_end.offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(
        cluster_id=context.cluster_id, voter_id=request.to.node_id, topics=[topic]
    )


def _begin(
    request: core.BeginQuorumEpochRequest, context: RequestContext
) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartitionData(
        partition_index=0,
        voter_directory_id=request.to.directory_id,
        leader_id=request.sender.node_id,
        leader_epoch=request.epoch,
    )
    topic = begin.BeginQuorumEpochRequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[partition]
    )
    return begin.BeginQuorumEpochRequest(
        cluster_id=context.cluster_id,
        voter_id=request.to.node_id,
        topics=[topic],
        leader_endpoints=[
            begin.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in context.endpoints
        ],
    )


def _end(request: core.EndQuorumEpochRequest, context: RequestContext) -> end.EndQuorumEpochRequest:
    partition = end.EndQuorumEpochRequestPartitionData(
        partition_index=0,
        leader_id=request.sender.node_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            end.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ],
    )
    topic = end.EndQuorumEpochRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return end.EndQuorumEpochRequest(
        cluster_id=context.cluster_id,
        topics=[topic],
        leader_endpoints=[
            end.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in context.endpoints
        ],
    )


def _log_epoch(log_end: LogEnd) -> int:
    """The epoch of the last record. An empty log has none; Apache Kafka writes 0 and rejects
    negative epochs."""
    return max(0, log_end.epoch)


def _fetch(request: core.FetchRequest, context: RequestContext) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        # As for an empty log.
        current_leader_epoch=max(0, request.epoch),
        fetch_offset=request.log_end.offset,
        last_fetched_epoch=_log_epoch(request.log_end),
        partition_max_bytes=context.fetch_bytes_max,
        replica_directory_id=request.sender.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=context.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.sender.node_id),
        max_wait_ms=request.wait_ms,
        min_bytes=0,
        max_bytes=context.fetch_bytes_max,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot(
    request: core.FetchSnapshotRequest, context: RequestContext
) -> fetch_snapshot.FetchSnapshotRequest:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(
            end_offset=request.snapshot.end_offset, epoch=request.snapshot.epoch
        ),
        position=request.position,
        replica_directory_id=request.sender.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=context.cluster_id,
        replica_id=request.sender.node_id,
        max_bytes=context.snapshot_bytes_max,
        topics=[
            fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
                name=METADATA_TOPIC, partitions=[partition]
            )
        ],
    )


def response_from_wire(
    request: core.PeerRequest, sender: NodeId, response: Message
) -> tuple[core.Response, Mapping[NodeId, Address]]:
    """Returns the core's response, and the addresses of nodes that it contains. The records of a
    fetch are raw bytes in `entries.data`, from which the caller builds the slice. Raises
    UnusableResponse."""
    assert isinstance(
        response,
        vote.VoteResponse
        | begin.BeginQuorumEpochResponse
        | end.EndQuorumEpochResponse
        | fetch.FetchResponse
        | fetch_snapshot.FetchSnapshotResponse,
    )
    _error_of(response.error_code)
    addresses = {
        NodeId(each.node_id): Address(each.host, each.port) for each in response.node_endpoints
    }
    return _response(request, sender, response), addresses


def _response(
    request: core.PeerRequest,
    sender: NodeId,
    response: vote.VoteResponse
    | begin.BeginQuorumEpochResponse
    | end.EndQuorumEpochResponse
    | fetch.FetchResponse
    | fetch_snapshot.FetchSnapshotResponse,
) -> core.Response:
    match response:
        case vote.VoteResponse():
            assert isinstance(request, core.VoteRequest)
            voted = _only(response.topics)
            return core.VoteResponse(
                sender=sender,
                epoch=Epoch(voted.leader_epoch),
                leader=NodeId(voted.leader_id),
                granted=voted.vote_granted,
                pre_vote=request.pre_vote,
                error=_error_of(voted.error_code),
                request_id=request.request_id,
            )
        case begin.BeginQuorumEpochResponse():
            begun = _only(response.topics)
            return core.BeginQuorumEpochResponse(
                sender=sender,
                epoch=Epoch(begun.leader_epoch),
                leader=NodeId(begun.leader_id),
                error=_error_of(begun.error_code),
                request_id=request.request_id,
            )
        case end.EndQuorumEpochResponse():
            ended = _only(response.topics)
            return core.EndQuorumEpochResponse(
                sender=sender,
                epoch=Epoch(ended.leader_epoch),
                leader=NodeId(ended.leader_id),
                error=_error_of(ended.error_code),
                request_id=request.request_id,
            )
        case fetch.FetchResponse():
            return _parse_fetch_response(request, sender, _only(response.responses))
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetched_snapshot(request, sender, _only(response.topics))


def _parse_fetch_response(
    request: core.PeerRequest, sender: NodeId, response: fetch.PartitionData
) -> core.FetchResponse:
    leader = response.current_leader
    if leader is None:
        raise UnusableResponse("it does not know the leader of the quorum yet")
    diverging, snapshot = response.diverging_epoch, response.snapshot_id
    records = response.records
    assert not records or isinstance(records, memoryview | bytes)
    return core.FetchResponse(
        sender=sender,
        epoch=Epoch(leader.leader_epoch),
        leader=NodeId(leader.leader_id),
        error=_error_of(response.error_code),
        high_watermark=Offset(response.high_watermark),
        diverging=None
        if diverging is None or diverging.end_offset < 0
        else LogEnd(Epoch(diverging.epoch), Offset(diverging.end_offset)),
        snapshot=None
        if snapshot is None or snapshot.end_offset < 0
        else SnapshotId(Offset(snapshot.end_offset), Epoch(snapshot.epoch)),
        entries=raw_entries(records) if records else None,
        request_id=request.request_id,
    )


def raw_entries(data: Buffer) -> LogSlice:
    return LogSlice(NO_OFFSET, NO_OFFSET, (), (), data)


def _fetched_snapshot(
    request: core.PeerRequest,
    sender: NodeId,
    response: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot,
) -> core.FetchSnapshotResponse:
    leader = response.current_leader
    if leader is None:
        raise UnusableResponse("it does not know the leader of the quorum yet")
    records = response.unaligned_records
    assert isinstance(records, memoryview | bytes | bytearray)
    return core.FetchSnapshotResponse(
        sender=sender,
        epoch=Epoch(leader.leader_epoch),
        leader=NodeId(leader.leader_id),
        error=_error_of(response.error_code),
        snapshot=SnapshotId(
            Offset(response.snapshot_id.end_offset), Epoch(response.snapshot_id.epoch)
        ),
        position=response.position,
        size_bytes=response.size,
        data=bytes(records),
        request_id=request.request_id,
    )


def _error_of(code: int) -> core.Error:
    try:
        name = ErrorCode(code)
    except ValueError:
        raise UnusableResponse(f"it responded with the unknown error code {code}") from None
    if name is ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise InconsistentClusterId(
            "it belongs to another cluster (INCONSISTENT_CLUSTER_ID): one of the two nodes was"
            " formatted with another cluster id, or controller.quorum.* has a wrong address"
        )
    known = _ERROR_OF.get(name)
    if known is None:
        raise UnusableResponse(f"it responded with {name.name}")
    return known


class _Topic(Protocol):
    @property
    def partitions(self) -> Sequence[Any]: ...


def _only(topics: Sequence[_Topic]) -> Any:
    """Returns the data of the requested partition."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise UnusableResponse("its response does not contain exactly the requested partition")
    return topics[0].partitions[0]
