"""What the core asks of other nodes, as Kafka's RPCs: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch
and FetchSnapshot of the one partition `__cluster_metadata-0`; and their answers as the core's.
`incoming_rpcs.py` is the other side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from lograft.broker.errors import ForeignCluster, UnusableResponse
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

#: What KIP-853 (voters' directories), KIP-996 (pre-votes) and KIP-1166 (high watermark) need.
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
    answer: type[Message]


class Asker(NamedTuple):
    """What the requests of one node say besides the core's message."""

    cluster_id: str
    #: Where this node's controller listener is.
    endpoints: tuple[VoterEndpoint, ...]
    fetch_bytes_max: int
    snapshot_bytes_max: int


def request_to_wire(request: core.PeerRequest, asker: Asker) -> WireRequest:
    match request:
        case core.VoteRequest():
            return WireRequest(_vote(request, asker), VOTE_VERSIONS, vote.VoteResponse)
        case core.BeginQuorumEpochRequest():
            return WireRequest(
                _begin(request, asker), BEGIN_VERSIONS, begin.BeginQuorumEpochResponse
            )
        case core.EndQuorumEpochRequest():
            return WireRequest(_end(request, asker), END_VERSIONS, end.EndQuorumEpochResponse)
        case core.FetchRequest():
            return WireRequest(_fetch(request, asker), FETCH_VERSIONS, fetch.FetchResponse)
        case core.FetchSnapshotRequest():
            return WireRequest(
                _fetch_snapshot(request, asker),
                FETCH_SNAPSHOT_VERSIONS,
                fetch_snapshot.FetchSnapshotResponse,
            )


def _vote(request: core.VoteRequest, asker: Asker) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.sender.node_id,
        replica_directory_id=request.sender.directory_id,
        voter_directory_id=request.to.directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return vote.VoteRequest(
        cluster_id=asker.cluster_id, voter_id=request.to.node_id, topics=[topic]
    )


def _begin(request: core.BeginQuorumEpochRequest, asker: Asker) -> begin.BeginQuorumEpochRequest:
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
        cluster_id=asker.cluster_id,
        voter_id=request.to.node_id,
        topics=[topic],
        leader_endpoints=[
            begin.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in asker.endpoints
        ],
    )


def _end(request: core.EndQuorumEpochRequest, asker: Asker) -> end.EndQuorumEpochRequest:
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
        cluster_id=asker.cluster_id,
        topics=[topic],
        leader_endpoints=[
            end.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
            for each in asker.endpoints
        ],
    )


def _fetch(request: core.FetchRequest, asker: Asker) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.log_end.offset,
        last_fetched_epoch=request.log_end.epoch,
        partition_max_bytes=asker.fetch_bytes_max,
        replica_directory_id=request.sender.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=asker.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.sender.node_id),
        max_wait_ms=request.wait_ms,
        min_bytes=0,
        max_bytes=asker.fetch_bytes_max,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_snapshot(
    request: core.FetchSnapshotRequest, asker: Asker
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
        cluster_id=asker.cluster_id,
        replica_id=request.sender.node_id,
        max_bytes=asker.snapshot_bytes_max,
        topics=[
            fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
                name=METADATA_TOPIC, partitions=[partition]
            )
        ],
    )


def answer_from_wire(
    request: core.PeerRequest, sender: NodeId, answer: Message
) -> tuple[core.Response, Mapping[NodeId, Address]]:
    """The answer, and where it says that nodes are. The records of a fetch come as bytes in
    `entries.data`: whoever reads them makes the slice. Raises UnusableResponse."""
    assert isinstance(
        answer,
        vote.VoteResponse
        | begin.BeginQuorumEpochResponse
        | end.EndQuorumEpochResponse
        | fetch.FetchResponse
        | fetch_snapshot.FetchSnapshotResponse,
    )
    _error_of(answer.error_code)
    addresses = {
        NodeId(each.node_id): Address(each.host, each.port) for each in answer.node_endpoints
    }
    return _response(request, sender, answer), addresses


def _response(
    request: core.PeerRequest,
    sender: NodeId,
    answer: vote.VoteResponse
    | begin.BeginQuorumEpochResponse
    | end.EndQuorumEpochResponse
    | fetch.FetchResponse
    | fetch_snapshot.FetchSnapshotResponse,
) -> core.Response:
    match answer:
        case vote.VoteResponse():
            assert isinstance(request, core.VoteRequest)
            voted = _only(answer.topics)
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
            begun = _only(answer.topics)
            return core.BeginQuorumEpochResponse(
                sender=sender,
                epoch=Epoch(begun.leader_epoch),
                leader=NodeId(begun.leader_id),
                error=_error_of(begun.error_code),
                request_id=request.request_id,
            )
        case end.EndQuorumEpochResponse():
            ended = _only(answer.topics)
            return core.EndQuorumEpochResponse(
                sender=sender,
                epoch=Epoch(ended.leader_epoch),
                leader=NodeId(ended.leader_id),
                error=_error_of(ended.error_code),
                request_id=request.request_id,
            )
        case fetch.FetchResponse():
            return _fetched(request, sender, _only(answer.responses))
        case fetch_snapshot.FetchSnapshotResponse():
            return _fetched_snapshot(request, sender, _only(answer.topics))


def _fetched(
    request: core.PeerRequest, sender: NodeId, answer: fetch.PartitionData
) -> core.FetchResponse:
    leader = answer.current_leader
    if leader is None:
        raise UnusableResponse("it does not know yet who leads the quorum")
    diverging, snapshot = answer.diverging_epoch, answer.snapshot_id
    records = answer.records
    assert not records or isinstance(records, memoryview | bytes)
    return core.FetchResponse(
        sender=sender,
        epoch=Epoch(leader.leader_epoch),
        leader=NodeId(leader.leader_id),
        error=_error_of(answer.error_code),
        high_watermark=Offset(answer.high_watermark),
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
    answer: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot,
) -> core.FetchSnapshotResponse:
    leader = answer.current_leader
    if leader is None:
        raise UnusableResponse("it does not know yet who leads the quorum")
    records = answer.unaligned_records
    assert isinstance(records, memoryview | bytes | bytearray)
    return core.FetchSnapshotResponse(
        sender=sender,
        epoch=Epoch(leader.leader_epoch),
        leader=NodeId(leader.leader_id),
        error=_error_of(answer.error_code),
        snapshot=SnapshotId(Offset(answer.snapshot_id.end_offset), Epoch(answer.snapshot_id.epoch)),
        position=answer.position,
        size_bytes=answer.size,
        data=bytes(records),
        request_id=request.request_id,
    )


def _error_of(code: int) -> core.Error:
    try:
        name = ErrorCode(code)
    except ValueError:
        raise UnusableResponse(f"the answer has the unknown error {code}") from None
    if name is ErrorCode.INCONSISTENT_CLUSTER_ID:
        raise ForeignCluster(
            "it belongs to another cluster than this node's folders (INCONSISTENT_CLUSTER_ID):"
            " one of them was formatted with another id, or controller.quorum.* names a stranger"
        )
    known = _ERROR_OF.get(name)
    if known is None:
        raise UnusableResponse(f"the answer has the error {name.name}")
    return known


class _Topic(Protocol):
    @property
    def partitions(self) -> Sequence[Any]: ...


def _only(topics: Sequence[_Topic]) -> Any:
    """The one partition that was asked about."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise UnusableResponse("the answer is not about the one partition that was asked for")
    return topics[0].partitions[0]
