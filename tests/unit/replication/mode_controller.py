"""The controller's actual decisions about one partition. All records are kept, so that brokers can
lag behind."""

from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from lograft.metadata import mode_switch
from lograft.metadata.alter_partition import alter_partition
from lograft.metadata.broker_partitions import handle_arrival, handle_departure, handle_loss
from lograft.metadata.image import MetadataImage
from lograft.metadata.mode_switch import Collection, LogEndPosition
from lograft.metadata.partitions import new_partition
from lograft.metadata.types import (
    ELR_VERSION,
    REPLICATION_VERSION,
    PartitionState,
    TopicState,
)
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import BrokerEpoch, NodeId, Offset, ReplicationMode
from lograft.replication.types import Assignment
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from lograft.wire.records.fence_broker_record import FenceBrokerRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.topic_record import TopicRecord
from lograft.wire.records.unfence_broker_record import UnfenceBrokerRecord
from tests.unit.metadata.conftest import make_config

TOPIC = UUID(int=0xA)


def disk_of(node: int) -> UUID:
    return UUID(int=1000 + node)


class Written(NamedTuple):
    """The parts of the image that brokers use, after a write of the controller."""

    state: PartitionState
    #: Registration, and whether it is fenced.
    brokers: dict[int, tuple[BrokerEpoch, bool]]

    @property
    def assignment(self) -> Assignment:
        state = self.state
        return Assignment(
            tuple(NodeId(node) for node in state.replicas),
            tuple(NodeId(node) for node in state.isr),
            NodeId(state.leader),
            state.leader_epoch,  # type: ignore[arg-type]
            state.partition_epoch,
            state.leader_recovery != 0,
            state.mode,
            state.life,  # type: ignore[arg-type]
            state.directories,
        )


class ModeController:
    def __init__(self, nodes: tuple[NodeId, ...], *, min_isr: int) -> None:
        self.config: BrokerConfig = make_config(min_insync_replicas=str(min_isr))
        self.min_isr = min_isr
        self.image = MetadataImage()
        self.history: list[Written] = []
        self.collection = Collection(-1)
        # Replaced by mutants.
        self.on_tail: Callable[..., Message | None] = mode_switch.on_tail
        self._apply(
            [
                FeatureLevelRecord(name="metadata.version", feature_level=30),
                FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
                FeatureLevelRecord(name=REPLICATION_VERSION, feature_level=1),
                *(self._registration(node, fenced=False, epoch=node) for node in nodes),
                TopicRecord(name="a", topic_id=TOPIC),
            ]
        )
        self.write([new_partition(self.image, TOPIC, 0, nodes)])

    @property
    def topic(self) -> TopicState:
        return self.image.topics[TOPIC]

    @property
    def state(self) -> PartitionState:
        return self.topic.partitions[0]

    def _registration(self, node: int, *, fenced: bool, epoch: int) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=node, broker_epoch=epoch, fenced=fenced, log_dirs=[disk_of(node)]
        )

    def _apply(self, records: list[Message]) -> None:
        offset = Offset(self.image.offset + len(records))
        self.image.apply(records, offset=offset, epoch=self.image.epoch)

    def write(self, records: Iterable[Message]) -> None:
        batch = list(records)
        if not batch:
            return
        self._apply(batch)
        brokers = {
            broker.broker_id: (broker.epoch, broker.fenced)
            for broker in self.image.brokers.values()
        }
        self.history.append(Written(self.state, brokers))

    # Brokers.

    def register(self, node: NodeId) -> BrokerEpoch:
        """After an unclean stop: its log may lack records that were not on disk."""
        epoch = BrokerEpoch(self.image.offset + 100)
        lost = list(handle_loss(self.image, node, self.config))
        self.write([self._registration(node, fenced=True, epoch=epoch), *lost])
        return epoch

    def fence(self, node: NodeId) -> None:
        broker = self.image.brokers[node]
        if not broker.fenced:
            left = list(handle_departure(self.image, node, self.config))
            self.write([*left, FenceBrokerRecord(id=node, epoch=broker.epoch)])

    def unfence(self, node: NodeId) -> None:
        broker = self.image.brokers[node]
        if broker.fenced:
            came = list(handle_arrival(self.image, node, self.config))
            self.write([UnfenceBrokerRecord(id=node, epoch=broker.epoch), *came])

    # The mode switch.

    def set_mode(self, mode: ReplicationMode) -> None:
        self.write(
            [
                ConfigRecord(
                    resource_type=2, resource_name="a", name=mode_switch.MODE, value=mode.text
                )
            ]
        )

    def step(self) -> None:
        record = mode_switch.next_step(self.image, self.topic, 0)
        if record is not None:
            self.write([record])

    @property
    def is_collecting(self) -> bool:
        return self.state.mode is ReplicationMode.LEAVING and self.state.leader < 0

    def on_response(self, node: NodeId, epoch: int, answer: LogEndPosition | int) -> None:
        """The response of a replica to the request that ends the life with `epoch`."""
        if not self.is_collecting or self.state.leader_epoch != epoch:
            return
        if self.collection.epoch != epoch:
            self.collection = Collection(epoch)
        if isinstance(answer, LogEndPosition):
            record = self.on_tail(
                self.image,
                self.topic,
                0,
                self.collection,
                replica=node,
                tail=answer,
                min_isr=self.min_isr,
            )
        else:
            record = mode_switch.on_fenced(self.topic, 0, self.collection, epoch=answer)
        if record is not None:
            self.write([record])

    def alter(
        self,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: list[BrokerState],
        recovering: bool = False,
        mode: int = -1,
        life: int = -1,
        voters: tuple[NodeId, ...] = (),
    ) -> AlterPartitionResponsePartitionData:
        request = AlterPartitionRequest(
            broker_id=node,
            broker_epoch=broker_epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=TOPIC,
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=0,
                            leader_epoch=leader_epoch,
                            new_isr_with_epochs=isr,
                            leader_recovery_state=int(recovering),
                            partition_epoch=partition_epoch,
                            replication_mode=mode,
                            raft_life=life,
                            raft_voters=list(voters),
                        )
                    ],
                )
            ],
        )
        outcome = alter_partition(self.image, request, 3, config=self.config)
        self.write(outcome.records)
        return outcome.reply.topics[0].partitions[0]
