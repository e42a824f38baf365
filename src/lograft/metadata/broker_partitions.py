"""Changes to a broker's partitions when the broker leaves or arrives."""

from collections.abc import Callable, Collection, Iterable, Iterator
from uuid import UUID

from lograft.metadata.elections import PartitionChange, controller_elects
from lograft.metadata.image import MetadataImage
from lograft.metadata.leadership_rules import LeadershipRules
from lograft.metadata.mode_switch import collect_again
from lograft.metadata.types import PartitionState
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_NODE, ReplicationMode, TopicIdPartition
from lograft.wire.message import Message


def handle_departure(
    image: MetadataImage, broker_id: int, config: BrokerConfig
) -> Iterator[Message]:
    """For a broker that is fenced or shuts down: it leads no partition and leaves every ISR. It
    keeps its records and remains eligible where it has all committed ones."""
    return _remove_broker(
        image,
        broker_id,
        config,
        lambda state: broker_id in state.isr or state.leader == broker_id,
    )


def handle_loss(image: MetadataImage, broker_id: int, config: BrokerConfig) -> Iterator[Message]:
    """For a broker that stopped without closing its logs or is removed permanently: unflushed
    records are lost, so it is neither in sync nor eligible as a leader."""
    return _remove_broker(
        image,
        broker_id,
        config,
        lambda state: broker_id in state.isr or broker_id in state.elr or state.leader == broker_id,
        crashed=broker_id,
    )


def leads_controller_elected_partition(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker leads a partition for which only the controller can elect another leader.
    In raft mode, the replicas themselves detect the failure of their leader."""
    if not image.leader_counts.get(broker_id, 0):
        return False
    return any(
        state.leader == broker_id and controller_elects(state)
        for topic_id, index in image.held_by.get(broker_id, ())
        for state in (image.topics[topic_id].partitions[index],)
    )


def handle_directory_failure(
    image: MetadataImage, broker_id: int, directories: Collection[UUID], config: BrokerConfig
) -> Iterator[Message]:
    """For a broker that lost some of its log directories: their replicas go offline."""
    return _remove_broker(
        image,
        broker_id,
        config,
        lambda state: state.directories[state.replicas.index(broker_id)] in directories,
    )


def handle_arrival(image: MetadataImage, broker_id: int, config: BrokerConfig) -> Iterator[Message]:
    """For a broker that is active (again): offline partitions may now get a leader."""
    for change in _affected_changes(
        image,
        image.leaderless,
        LeadershipRules(image, config, arriving=broker_id),
        lambda state: broker_id in state.replicas,
    ):
        record = change.build()
        if record is not None:
            yield record


def _remove_broker(
    image: MetadataImage,
    broker_id: int,
    config: BrokerConfig,
    is_affected: Callable[[PartitionState], bool],
    *,
    crashed: int = NO_NODE,
) -> Iterator[Message]:
    leadership_rules = LeadershipRules(image, config, leaving=broker_id)
    for change in _affected_changes(
        image, image.held_by.get(broker_id, ()), leadership_rules, is_affected
    ):
        change.remove_from_isr(broker_id)
        change.crashed = crashed
        record = change.build()
        if record is not None:
            yield record
    for topic_id, index in image.held_by.get(broker_id, ()):
        topic = image.topics[topic_id]
        state = topic.partitions[index]
        if state.mode is ReplicationMode.LEAVING and state.leader == broker_id:
            yield collect_again(topic, index)


def _affected_changes(
    image: MetadataImage,
    keys: Iterable[TopicIdPartition],
    leadership_rules: LeadershipRules,
    is_affected: Callable[[PartitionState], bool],
) -> Iterator[PartitionChange]:
    topics = image.topics
    for topic_id, index in keys:
        topic = topics[topic_id]
        state = topic.partitions[index]
        if is_affected(state) and controller_elects(state):
            change = PartitionChange(leadership_rules, topic, index)
            change.elect_uncleanly_if_allowed()
            yield change
