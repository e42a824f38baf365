"""Votes among the replicas of data partitions: Kafka's Vote, BeginQuorumEpoch and EndQuorumEpoch on
the inter-broker listener, with many partitions in a request.

Requests contain the topic id and the life of each group in tagged fields of Lograft. When a node
fails, all its followers start elections at once, so messages of the same type to the same node in
one iteration of the event loop are combined into one request.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.replicas.raft_partition import RaftPartition
from lograft.consensus import messages as raft
from lograft.consensus.types import LogEnd, ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset, TopicIdPartition
from lograft.replication.raft_replica import RaftReplica
from lograft.wire.message import Message
from lograft.wire.messages import begin_quorum_epoch, end_quorum_epoch, vote

if TYPE_CHECKING:
    from lograft.broker.replicas.raft_partitions import RaftPartitions

LANE: Final = "votes"
#: Maximum number of partitions in one request.
PARTITIONS_MAX: Final = 2_000

Item: TypeAlias = tuple[RaftPartition, raft.PeerRequest]

CODE_OF: Final = {
    raft.Error.NONE: ErrorCode.NONE,
    raft.Error.FENCED_EPOCH: ErrorCode.FENCED_LEADER_EPOCH,
    raft.Error.UNKNOWN_EPOCH: ErrorCode.UNKNOWN_LEADER_EPOCH,
    raft.Error.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    raft.Error.WRONG_VOTER: ErrorCode.INVALID_VOTER_KEY,
    raft.Error.WRONG_LIFE: ErrorCode.INCONSISTENT_TOPIC_ID,
    raft.Error.INVALID: ErrorCode.INVALID_REQUEST,
}
ERROR_OF: Final = {code: error for error, code in CODE_OF.items()}


class RaftVotes:
    def __init__(self, host: "RaftPartitions") -> None:
        self._host = host
        #: Requests to send, by node.
        self._outgoing: dict[NodeId, list[Item]] = {}
        #: Requests from other nodes to which the core has not responded yet, by a local id.
        self._pending: dict[int, asyncio.Future[raft.Response]] = {}
        self._numbers = 0
        self.requests = 0

    # ── requests of this node ────────────────────────────────────────────────────────────────

    def send(self, port: RaftPartition, to: NodeId, message: raft.Message) -> None:
        if isinstance(
            message,
            raft.VoteRequest | raft.BeginQuorumEpochRequest | raft.EndQuorumEpochRequest,
        ):
            queue = self._outgoing.get(to)
            if queue is None:
                queue = self._outgoing[to] = []
                self._host.spawn(self._drain(to), name=f"votes to {to}")
            queue.append((port, message))
            return
        future = self._pending.pop(message.request_id, None)
        if future is not None and not future.done():
            future.set_result(message)  # type: ignore[arg-type]

    async def _drain(self, to: NodeId) -> None:
        """Sends the collected requests; runs in the next iteration of the event loop."""
        items = self._outgoing.pop(to)
        kinds: dict[type, list[Item]] = {}
        for item in items:
            kinds.setdefault(type(item[1]), []).append(item)
        for kind, same in kinds.items():
            for first in range(0, len(same), PARTITIONS_MAX):
                part = same[first : first + PARTITIONS_MAX]
                self._host.spawn(self._exchange(to, kind, part), name=f"votes to {to}")

    async def _exchange(self, to: NodeId, kind: type, items: list[Item]) -> None:
        address = self._host.address_of(to)
        if address is None:
            return
        self.requests += 1
        wire = _request_of(kind, items, to, self._host.cluster_id)
        try:
            response: Any = await self._host.request(to, address, wire, lane=LANE)
        except PeerUnreachable as error:
            if error.refused:
                self._host.on_rejected(to)
            return
        except PeerLost:
            return
        results = {
            (topic.topic_name, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        for port, request in items:
            data = results.get((port.partition.topic, port.partition.index))
            replica = port.modes.raft
            if data is None or replica is None or port.partition.is_deleted:
                continue
            replica.step(_response_from(request, to, data))

    # ── requests of other nodes ──────────────────────────────────────────────────────────────

    async def on_request(self, request: Message) -> Message:
        """Returns the response to a Vote, BeginQuorumEpoch or EndQuorumEpoch request for data
        partitions."""
        futures: list[tuple[str, int, asyncio.Future[raft.Response] | None]] = []
        for name, index, key, make in _read(request):
            futures.append((name, index, self._pass_to_core(key, make)))
        waiting = [future for _, _, future in futures if future is not None]
        if waiting:
            timeout_s = self._host.settings.election_timeout_ms / 1000
            await asyncio.wait(waiting, timeout=timeout_s)
        responses = [
            (name, index, None if future is None or not future.done() else future.result())
            for name, index, future in futures
        ]
        return _response_of(request, responses)

    def _pass_to_core(
        self, key: TopicIdPartition, make: Callable[[ReplicaKey, int], raft.PeerRequest]
    ) -> "asyncio.Future[raft.Response] | None":
        port = self._host.find(key)
        replica = None if port is None else port.modes.raft
        if port is None or replica is None:
            return None
        number = self._numbers + 1
        request = make(replica.core.me, number)
        assert isinstance(request.sender, ReplicaKey)
        if request.sender.node_id not in port.partition.assignment.replicas:
            # Only replicas can request votes; a new one that the image lacks will retry.
            return None
        self._numbers = number
        future: asyncio.Future[raft.Response] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        future.add_done_callback(lambda _: self._pending.pop(number, None))
        if isinstance(request, raft.EndQuorumEpochRequest) and request.sender.node_id == (
            replica.core.me.node_id
        ):
            # The sender is not a resigning leader: the controller asks this leader to hand over.
            future.set_result(self._hand_over(port, replica, request))
        else:
            replica.step(request)
        return future

    def _hand_over(
        self, port: RaftPartition, replica: RaftReplica, request: raft.EndQuorumEpochRequest
    ) -> raft.EndQuorumEpochResponse:
        core = replica.core
        error = raft.Error.NONE
        if request.life != core.life:
            error = raft.Error.WRONG_LIFE
        elif replica.leader is None or request.epoch != core.epoch:
            error = raft.Error.NOT_LEADER
        else:
            for key in request.successors[:1]:
                port.hand_over(key.node_id)
        return raft.EndQuorumEpochResponse(
            sender=core.me.node_id, epoch=core.epoch, leader=core.leader, error=error
        )


# ── to the wire ──────────────────────────────────────────────────────────────────────────────


def _by_topic(items: Iterable[Item]) -> dict[tuple[str, UUID], list[Item]]:
    topics: dict[tuple[str, UUID], list[Item]] = {}
    for item in items:
        partition = item[0].partition
        topics.setdefault((partition.topic, partition.topic_id), []).append(item)
    return topics


def _request_of(kind: type, items: list[Item], to: NodeId, cluster_id: str) -> Message:
    topics = _by_topic(items)
    if kind is raft.VoteRequest:
        return vote.VoteRequest(
            cluster_id=cluster_id,
            voter_id=to,
            topics=[
                vote.VoteRequestTopicData(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[_vote_data(*item) for item in of_topic],
                )
                for (name, topic_id), of_topic in topics.items()
            ],
        )
    if kind is raft.BeginQuorumEpochRequest:
        return begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            voter_id=to,
            topics=[
                begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[_begin_data(*item) for item in of_topic],
                )
                for (name, topic_id), of_topic in topics.items()
            ],
        )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[
            end_quorum_epoch.EndQuorumEpochRequestTopicData(
                topic_name=name,
                topic_id=topic_id,
                partitions=[_end_data(*item) for item in of_topic],
            )
            for (name, topic_id), of_topic in topics.items()
        ],
    )


def _vote_data(port: RaftPartition, request: raft.PeerRequest) -> vote.VoteRequestPartitionData:
    assert isinstance(request, raft.VoteRequest)
    return vote.VoteRequestPartitionData(
        partition_index=port.partition.index,
        replica_epoch=request.epoch,
        replica_id=request.sender.node_id,
        replica_directory_id=request.sender.directory_id,
        voter_directory_id=request.to.directory_id,
        last_offset_epoch=request.log_end.epoch,
        last_offset=request.log_end.offset,
        pre_vote=request.pre_vote,
        raft_life=request.life,
    )


def _begin_data(
    port: RaftPartition, request: raft.PeerRequest
) -> begin_quorum_epoch.BeginQuorumEpochRequestPartitionData:
    assert isinstance(request, raft.BeginQuorumEpochRequest)
    return begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        partition_index=port.partition.index,
        voter_directory_id=request.to.directory_id,
        leader_id=request.sender.node_id,
        leader_epoch=request.epoch,
        raft_life=request.life,
    )


def _end_data(
    port: RaftPartition, request: raft.PeerRequest
) -> end_quorum_epoch.EndQuorumEpochRequestPartitionData:
    assert isinstance(request, raft.EndQuorumEpochRequest)
    return end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        partition_index=port.partition.index,
        leader_id=request.sender.node_id,
        leader_epoch=request.epoch,
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=key.node_id, candidate_directory_id=key.directory_id
            )
            for key in request.successors
        ],
        raft_life=request.life,
    )


# ── from the wire ────────────────────────────────────────────────────────────────────────────

Make: TypeAlias = Callable[[ReplicaKey, int], raft.PeerRequest]


def _read(request: Any) -> Iterator[tuple[str, int, TopicIdPartition, Make]]:
    make: Callable[[Any], Make] = _end_from
    if isinstance(request, vote.VoteRequest):
        make = _vote_from
    elif isinstance(request, begin_quorum_epoch.BeginQuorumEpochRequest):
        make = _begin_from
    for topic in request.topics:
        for data in topic.partitions:
            key = TopicIdPartition(topic.topic_id, data.partition_index)
            yield topic.topic_name, data.partition_index, key, make(data)


def _vote_from(data: vote.VoteRequestPartitionData) -> Make:
    return lambda me, number: raft.VoteRequest(
        sender=ReplicaKey(NodeId(data.replica_id), data.replica_directory_id),
        to=ReplicaKey(me.node_id, data.voter_directory_id),
        epoch=Epoch(data.replica_epoch),
        log_end=LogEnd(Epoch(data.last_offset_epoch), Offset(data.last_offset)),
        pre_vote=data.pre_vote,
        request_id=number,
        life=Epoch(data.raft_life),
    )


def _begin_from(data: begin_quorum_epoch.BeginQuorumEpochRequestPartitionData) -> Make:
    return lambda me, number: raft.BeginQuorumEpochRequest(
        sender=ReplicaKey(NodeId(data.leader_id)),
        to=ReplicaKey(me.node_id, data.voter_directory_id),
        epoch=Epoch(data.leader_epoch),
        request_id=number,
        life=Epoch(data.raft_life),
    )


def _end_from(data: end_quorum_epoch.EndQuorumEpochRequestPartitionData) -> Make:
    return lambda me, number: raft.EndQuorumEpochRequest(
        sender=ReplicaKey(NodeId(data.leader_id)),
        epoch=Epoch(data.leader_epoch),
        successors=tuple(
            ReplicaKey(NodeId(candidate.candidate_id), candidate.candidate_directory_id)
            for candidate in data.preferred_candidates
        ),
        request_id=number,
        life=Epoch(data.raft_life),
    )


def _response_from(request: raft.PeerRequest, sender: NodeId, data: Any) -> raft.Response:
    try:
        error = ERROR_OF.get(ErrorCode(data.error_code), raft.Error.WRONG_LIFE)
    except ValueError:
        error = raft.Error.WRONG_LIFE
    common: dict[str, Any] = {
        "sender": sender,
        "epoch": Epoch(data.leader_epoch),
        "leader": NodeId(data.leader_id),
        "error": error,
        "request_id": request.request_id,
    }
    if isinstance(request, raft.VoteRequest):
        return raft.VoteResponse(granted=data.vote_granted, pre_vote=request.pre_vote, **common)
    if isinstance(request, raft.BeginQuorumEpochRequest):
        return raft.BeginQuorumEpochResponse(**common)
    return raft.EndQuorumEpochResponse(**common)


def _response_of(
    request: Message, responses: list[tuple[str, int, raft.Response | None]]
) -> Message:
    if isinstance(request, vote.VoteRequest):
        votes: dict[str, list[vote.VoteResponsePartitionData]] = {}
        for name, index, result in responses:
            granted = isinstance(result, raft.VoteResponse) and result.granted
            data = vote.VoteResponsePartitionData(vote_granted=granted)
            votes.setdefault(name, []).append(_fill_partition(data, index, result))
        return vote.VoteResponse(
            topics=[
                vote.VoteResponseTopicData(topic_name=name, partitions=data)
                for name, data in votes.items()
            ]
        )
    module: Any = begin_quorum_epoch
    name_of = "BeginQuorumEpochResponse"
    if isinstance(request, end_quorum_epoch.EndQuorumEpochRequest):
        module, name_of = end_quorum_epoch, "EndQuorumEpochResponse"
    by_topic: dict[str, list[Any]] = {}
    for name, index, result in responses:
        data = getattr(module, f"{name_of}PartitionData")()
        by_topic.setdefault(name, []).append(_fill_partition(data, index, result))
    topic_kind = getattr(module, f"{name_of}TopicData")
    response: Message = getattr(module, name_of)(
        topics=[topic_kind(topic_name=name, partitions=data) for name, data in by_topic.items()]
    )
    return response


def _fill_partition(data: Any, index: int, result: raft.Response | None) -> Any:
    """Fills the partition's data. Without a result, the group does not exist on this node (yet), or
    its disk is too slow."""
    data.partition_index = index
    if result is None:
        data.error_code = ErrorCode.INCONSISTENT_TOPIC_ID
        data.leader_id, data.leader_epoch = NO_NODE, NO_EPOCH
    else:
        data.error_code = CODE_OF[result.error]
        data.leader_id, data.leader_epoch = result.leader, result.epoch
    return data
