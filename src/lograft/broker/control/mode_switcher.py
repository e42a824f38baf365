"""The active controller's part of the switch between ISR and Raft: looks for partitions that are
not in the mode that is wished for, writes the next step, and asks the replicas where their logs
end when a raft life ends. What to write is decided in `metadata/mode_switch.py`.
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
#: How often the image is looked at while it changes, and replicas are asked.
INTERVAL_MS: Final = 20
IDLE_MS: Final = 100
ASK_TIMEOUT_MS: Final = 1_000
ASK_VERSIONS: Final = Versions(4, 4)
END_VERSIONS: Final = Versions(1, 1)
LANE: Final = "switch"
#: Records of one step: one batch of the metadata log holds them.
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
        #: Brokers that have not answered the last question yet.
        self._asked: set[int] = set()
        self._seen_offset = -1

    async def run(self) -> None:
        """A task of every controller; only the active one does something."""
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
        """Whether a switch is under way."""
        if image.offset != self._seen_offset:
            self._seen_offset = image.offset
            keys = [key for key in _candidates(image) if _has_step(image, key)]
            for first in range(0, len(keys), STEPS_MAX):
                part = keys[first : first + STEPS_MAX]
                await self._controller.submit(_deciding(part))
        self._collect(image)
        return bool(image.switching)

    async def hand_over(self, key: TopicIdPartition, successor: NodeId) -> ErrorCode:
        """Asks the leader of a raft partition to let another replica lead; whether that one can is
        for the voters to say."""
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
                timeout_ms=ASK_TIMEOUT_MS,
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
        questions: dict[int, list[TopicIdPartition]] = {}
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
                if replica not in known.log_ends and replica not in self._asked:
                    questions.setdefault(replica, []).append(key)
        self._collections = collections
        for replica, keys in questions.items():
            address = self._address_of(image, replica)
            if address is not None:
                self._asked.add(replica)
                request = _question(image, keys, collections)
                self._runtime.spawn(self._ask(replica, address, request), name="end of raft life")

    def _address_of(self, image: MetadataImage, replica: int) -> Address | None:
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced:
            return None
        end = broker.endpoint(self._config.inter_broker_listener_name)
        return None if end is None else Address(end.host, end.port)

    async def _ask(
        self, replica: int, address: Address, request: OffsetForLeaderEpochRequest
    ) -> None:
        try:
            response = await self._peers.request(
                address,
                request,
                ASK_VERSIONS,
                OffsetForLeaderEpochResponse,
                timeout_ms=ASK_TIMEOUT_MS,
                lane=LANE,
                listener=self._config.inter_broker_listener_name,
                lograft_only=True,
            )
            await self._controller.submit(
                lambda image: self._take(image, replica, request, response)
            )
        except (PeerUnreachable, PeerLost, NotController):
            return
        finally:
            self._asked.discard(replica)

    def _take(
        self,
        image: MetadataImage,
        replica: int,
        request: OffsetForLeaderEpochRequest,
        response: OffsetForLeaderEpochResponse,
    ) -> ControllerResult[None]:
        records: list[Message] = []
        leadership_rules = LeadershipRules(image, self._config)
        for asked, answered in zip(request.topics, response.topics, strict=False):
            topic = image.topics.get(asked.topic_id)
            if topic is None:
                continue
            for question, answer in zip(asked.partitions, answered.partitions, strict=False):
                key = TopicIdPartition(asked.topic_id, question.partition)
                collection = self._collections.get(key)
                if collection is None or collection.epoch != question.leaving_epoch:
                    continue
                if key.partition not in topic.partitions:
                    continue
                record: Message | None = None
                if answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    record = on_fenced(topic, key.partition, collection, epoch=answer.leader_epoch)
                elif not answer.error_code:
                    record = on_tail(
                        image,
                        topic,
                        key.partition,
                        collection,
                        replica=replica,
                        tail=LogEndPosition(answer.leader_epoch, answer.end_offset),
                        min_isr=leadership_rules.rules_of(topic.name).min_insync_replicas,
                    )
                if record is not None:
                    records.append(record)
        return ControllerResult(tuple(records), None)


def _question(
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
    """Partitions that may not be in the mode that is wished for."""
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


def _deciding(keys: list[TopicIdPartition]) -> Callable[[MetadataImage], ControllerResult[None]]:
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
            LOGGER.info("switching %d partitions %s", count, move)
        return ControllerResult(tuple(records), None)

    return decide
