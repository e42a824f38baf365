"""The background task of the active controller that switches partitions between ISR and Raft.

It finds partitions that are not in their desired mode, writes the next step, and collects the log
ends of the replicas when a raft life ends. `metadata/mode_switch.py` decides which record is
written and explains why a switch is safe. This module only has to keep it making progress.

Steps. The task checks the image at a fixed interval, but only if it has changed, and only the
partitions that can have a step: those that are not in isr mode, and those of topics with a mode in
their configs. The decisions are submitted like all others, so they see every earlier record, and a
step that is no longer due writes nothing. Steps are limited to one batch of the metadata log each,
so that a switch of thousands of partitions does not block other decisions.

Two of the transitions are not initiated here. From entering to raft the leader reports that all
in-sync replicas have the first batch of its epoch on disk (AlterPartition), since only the leader
knows their fetch offsets. From leaving to isr the leader reports an ISR that has reached
min.insync.replicas.

Log ends. In a leaving epoch without a leader, each replica must report its log end after it has
voted for the controller and fsynced its log. The task requests it with OffsetForLeaderEpoch (with a
tag for the leaving epoch) and collects the responses in a `Collection` per partition. A replica
that is not ready responds with an error, and the next round requests it again; one that is in a
higher epoch responds with FENCED_LEADER_EPOCH, and the controller starts a higher leaving epoch. At
most one request is in flight to each broker, with all of its partitions.

Why lost state is harmless. Collections are in memory only. They belong to one leaving epoch, and a
response counts only if the epoch in its request is that of the collection, so delayed responses
have no effect. A new controller starts with empty collections: the replicas' votes are on disk and
block elections meanwhile, and it requests the log ends again. A controller that is no longer active
cannot append the result, because its decisions raise NotController.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from lograft.broker.errors import NotController, PeerLost, PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.mode_switch import (
    MODE,
    MODE_OF_PARTITIONS,
    Collection,
    LogEndPosition,
    next_step,
    on_fenced,
    on_tail,
)
from lograft.metadata.types import ControllerResult, ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_NODE, NodeId, ReplicationMode, TopicIdPartition
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages import end_quorum_epoch as ends
from lograft.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from lograft.broker.control.controller import Controller

LOGGER: Final = logging.getLogger(__name__)
#: Interval of checks while a switch is in progress, and otherwise.
INTERVAL_MS: Final = 20
IDLE_MS: Final = 100
REQUEST_TIMEOUT_MS: Final = 1_000
LOG_END_VERSIONS: Final = Versions(4, 4)
END_VERSIONS: Final = Versions(1, 1)
LANE: Final = "switch"
#: Maximum number of records in one step, which fit into one batch of the metadata log.
STEPS_MAX: Final = 500


class ModeSwitcher:
    def __init__(
        self,
        runtime: Runtime,
        controller: "Controller",
        peers: Peers,
        *,
        config: BrokerConfig,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._peers = peers
        self._config = config
        self._collections: dict[TopicIdPartition, Collection] = {}
        #: Brokers with a request in flight.
        self._in_flight: set[int] = set()
        self._seen_offset = -1

    async def run(self) -> None:
        """Runs as a task of every controller, but only the active one does anything."""
        while True:
            image = self._controller.image
            busy = False
            if image is None:
                self._collections.clear()
                self._seen_offset = -1
            else:
                try:
                    busy = await self._step(image)
                except NotController:
                    pass
            await asyncio.sleep((INTERVAL_MS if busy else IDLE_MS) / 1000)

    async def _step(self, image: MetadataImage) -> bool:
        """Writes due steps and requests log ends. Returns whether a switch is in progress."""
        if image.offset != self._seen_offset:
            self._seen_offset = image.offset
            keys = [key for key in _candidates(image) if _has_step(image, key)]
            for first in range(0, len(keys), STEPS_MAX):
                part = keys[first : first + STEPS_MAX]
                await self._controller.submit(_build_decision(part))
        self._collect(image)
        return bool(image.switching)

    async def hand_over(self, key: TopicIdPartition, successor: NodeId) -> ErrorCode:
        """Requests that the leader of a raft partition hand over leadership to another replica.
        Whether that one wins is up to the voters."""
        image = self._controller.image
        topic = None if image is None else image.topics.get(key.topic_id)
        state = None if topic is None else topic.partitions.get(key.partition)
        if image is None or topic is None or state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        address = self._address_of(image, state.leader)
        if address is None or successor not in state.replicas:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        chosen = ends.ReplicaInfo(
            candidate_id=successor,
            candidate_directory_id=state.directories[state.replicas.index(successor)],
        )
        data = ends.EndQuorumEpochRequestPartitionData(
            partition_index=key.partition,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            preferred_candidates=[chosen],
            raft_life=state.life,
        )
        request = ends.EndQuorumEpochRequest(
            topics=[
                ends.EndQuorumEpochRequestTopicData(
                    topic_name=topic.name, topic_id=topic.topic_id, partitions=[data]
                )
            ]
        )
        try:
            response = await self._peers.request(
                address,
                request,
                END_VERSIONS,
                ends.EndQuorumEpochResponse,
                timeout_ms=REQUEST_TIMEOUT_MS,
                lane=LANE,
                listener=self._config.inter_broker_listener_name,
                lograft_only=True,
            )
        except (PeerUnreachable, PeerLost):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        code = response.topics[0].partitions[0].error_code
        return ErrorCode.NONE if not code else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    # ── ending a life ────────────────────────────────────────────────────────────────────────

    def _collect(self, image: MetadataImage) -> None:
        missing: dict[int, list[TopicIdPartition]] = {}
        collections: dict[TopicIdPartition, Collection] = {}
        for key in image.switching:
            state = image.topics[key.topic_id].partitions[key.partition]
            if state.mode is not ReplicationMode.LEAVING or state.leader != NO_NODE:
                continue
            known = self._collections.get(key)
            if known is None or known.epoch != state.leader_epoch:
                known = Collection(state.leader_epoch)
            collections[key] = known
            for replica in state.replicas:
                if replica not in known.log_ends and replica not in self._in_flight:
                    missing.setdefault(replica, []).append(key)
        self._collections = collections
        for replica, keys in missing.items():
            address = self._address_of(image, replica)
            if address is not None:
                self._in_flight.add(replica)
                request = _build_request(image, keys, collections)
                work = self._request_log_ends(replica, address, request)
                self._runtime.spawn(work, name="end of raft life")

    def _address_of(self, image: MetadataImage, replica: int) -> Address | None:
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced:
            return None
        end = broker.endpoint(self._config.inter_broker_listener_name)
        return None if end is None else Address(end.host, end.port)

    async def _request_log_ends(
        self, replica: int, address: Address, request: OffsetForLeaderEpochRequest
    ) -> None:
        try:
            response = await self._peers.request(
                address,
                request,
                LOG_END_VERSIONS,
                OffsetForLeaderEpochResponse,
                timeout_ms=REQUEST_TIMEOUT_MS,
                lane=LANE,
                listener=self._config.inter_broker_listener_name,
                lograft_only=True,
            )
            await self._controller.submit(
                lambda image: self._on_response(image, replica, request, response)
            )
        except (PeerUnreachable, PeerLost, NotController):
            return
        finally:
            self._in_flight.discard(replica)

    def _on_response(
        self,
        image: MetadataImage,
        replica: int,
        request: OffsetForLeaderEpochRequest,
        response: OffsetForLeaderEpochResponse,
    ) -> ControllerResult[None]:
        records: list[Message] = []
        leadership_rules = LeadershipRules(image, self._config)
        for requested, responded in zip(request.topics, response.topics, strict=False):
            topic = image.topics.get(requested.topic_id)
            if topic is None:
                continue
            for partition, result in zip(requested.partitions, responded.partitions, strict=False):
                key = TopicIdPartition(requested.topic_id, partition.partition)
                collection = self._collections.get(key)
                if collection is None or collection.epoch != partition.leaving_epoch:
                    continue
                if key.partition not in topic.partitions:
                    continue
                record: Message | None = None
                if result.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    record = on_fenced(topic, key.partition, collection, epoch=result.leader_epoch)
                elif not result.error_code:
                    record = on_tail(
                        image,
                        topic,
                        key.partition,
                        collection,
                        replica=replica,
                        tail=LogEndPosition(result.leader_epoch, result.end_offset),
                        min_isr=leadership_rules.rules_of(topic.name).min_insync_replicas,
                    )
                if record is not None:
                    records.append(record)
        return ControllerResult(tuple(records), None)


def _build_request(
    image: MetadataImage,
    keys: list[TopicIdPartition],
    collections: dict[TopicIdPartition, Collection],
) -> OffsetForLeaderEpochRequest:
    by_topic: dict[str, OffsetForLeaderTopic] = {}
    for key in keys:
        name = image.topics[key.topic_id].name
        topic = by_topic.get(name)
        if topic is None:
            topic = by_topic[name] = OffsetForLeaderTopic(topic=name, topic_id=key.topic_id)
        epoch = collections[key].epoch
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=key.partition,
                current_leader_epoch=epoch,
                leader_epoch=epoch,
                leaving_epoch=epoch,
            )
        )
    return OffsetForLeaderEpochRequest(topics=list(by_topic.values()))


def _candidates(image: MetadataImage) -> Iterator[TopicIdPartition]:
    """Yields partitions that may not be in their desired mode."""
    yield from image.not_isr
    for resource, values in image.configs.items():
        if resource.type == ResourceType.TOPIC and (MODE in values or MODE_OF_PARTITIONS in values):
            topic = image.topic(resource.name)
            if topic is not None:
                for index, state in topic.partitions.items():
                    if state.mode is ReplicationMode.ISR:
                        yield TopicIdPartition(topic.topic_id, index)


def _has_step(image: MetadataImage, key: TopicIdPartition) -> bool:
    return next_step(image, image.topics[key.topic_id], key.partition) is not None


def _build_decision(
    keys: list[TopicIdPartition],
) -> Callable[[MetadataImage], ControllerResult[None]]:
    def decide(image: MetadataImage) -> ControllerResult[None]:
        records: list[Message] = []
        moves: Counter[str] = Counter()
        for key in keys:
            topic = image.topics.get(key.topic_id)
            if topic is None or key.partition not in topic.partitions:
                continue
            record = next_step(image, topic, key.partition)
            if record is not None:
                before = topic.partitions[key.partition].mode
                after = ReplicationMode(record.replication_mode)
                moves[f"of {topic.name} from {before.text} to {after.text}"] += 1
                records.append(record)
        for move, count in moves.items():
            LOGGER.info("switching %d partition(s) %s", count, move)
        return ControllerResult(tuple(records), None)

    return decide
