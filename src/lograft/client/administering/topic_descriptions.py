"""Requests that list and describe topics: their partitions, modes and replica states."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from uuid import UUID

from lograft.client.administering.request_driver import RequestDriver
from lograft.client.arguments import as_iterable
from lograft.client.errors import ClientError, UnsupportedByBroker, broker_error
from lograft.client.network import Node
from lograft.model.types import ReplicationMode, TopicPartition
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from lograft.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    id: UUID
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of a replica as known to the leader; -1: unknown, or never.

    orders = (await admin.describe_topics(["orders"], replicas=True))["orders"]
    states: tuple[ReplicaState, ...] = orders.partitions[0].states
    print({replica.node: replica.lag for replica in states})
    """

    node: int
    start_offset: int
    end_offset: int
    #: The number of records that the most advanced replica has and this one does not.
    lag: int
    last_fetch_age_ms: int
    caught_up_age_ms: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The leader and the replicas of a partition, and its replication mode.

    orders = (await admin.describe_topics(["orders"]))["orders"]
    partition: PartitionDescription = orders.partitions[0]
    print(partition.leader, partition.isr, partition.mode.name)
    """

    index: int
    #: -1: no leader.
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: Replicas outside the ISR that have every committed record (KIP-966).
    eligible_leaders: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    mode: ReplicationMode = ReplicationMode.ISR
    #: The mode that the topic's settings require, and why a switch to it has not completed.
    target_mode: ReplicationMode = ReplicationMode.ISR
    mode_reason: str = ""
    #: -1 and () unless replica states were requested and the leader is Lograft.
    high_watermark: int = -1
    states: tuple[ReplicaState, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


async def list_topics(driver: RequestDriver, *, internal: bool = False) -> list[TopicListing]:
    async def send(_node: Node | None, items: Sequence[str]) -> dict[str, list[TopicListing]]:
        metadata = await driver.fetch_metadata(None)
        listings = [
            TopicListing(topic.name, topic.topic_id, topic.is_internal, len(topic.partitions))
            for topic in metadata.topics
            if topic.name is not None and (internal or not topic.is_internal)
        ]
        return dict.fromkeys(items, sorted(listings, key=lambda listing: listing.name))

    return (await driver.results_of([""], driver.any_node, send))[""]


async def describe_topics(
    driver: RequestDriver, topics: Iterable[str | UUID] | None = None, *, replicas: bool = False
) -> dict[str, TopicDescription]:
    if topics is None:
        names = [topic.name for topic in await list_topics(driver, internal=True)]
    else:
        names = await _find_names(driver, topics)

    async def send(
        node: Node | None, items: Sequence[str]
    ) -> dict[str, TopicDescription | ClientError]:
        try:
            return await _describe_partitions(driver, node, items)
        except UnsupportedByBroker:
            metadata = await driver.fetch_metadata(items)
            return {topic.name or "": _describe_topic(topic) for topic in metadata.topics}

    found = await driver.results_of(names, driver.any_node, send)
    return await _add_states(driver, found) if replicas else found


async def _find_names(driver: RequestDriver, topics: Iterable[str | UUID]) -> list[str]:
    requested = list(as_iterable(topics))

    async def send(_node: Node | None, ids: Sequence[UUID]) -> dict[UUID, str | ClientError]:
        metadata = await driver.fetch_metadata(ids)
        return {
            topic.topic_id: broker_error(topic.error_code, f"the topic with id {topic.topic_id}")
            if topic.error_code or topic.name is None
            else topic.name
            for topic in metadata.topics
        }

    ids = [topic for topic in requested if isinstance(topic, UUID)]
    names = await driver.results_of(ids, driver.any_node, send)
    return [names[topic] if isinstance(topic, UUID) else topic for topic in requested]


async def _describe_partitions(
    driver: RequestDriver, node: Node | None, names: Sequence[str]
) -> dict[str, TopicDescription | ClientError]:
    """Describes the topics, with one request for each page of the response."""
    found: dict[str, TopicDescription | ClientError] = {}
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    while True:
        response = await driver.send(
            node,
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in sorted(names)], cursor=cursor
            ),
            DescribeTopicPartitionsResponse,
        )
        for topic in response.topics:
            page, known = _describe_topic(topic), found.get(topic.name or "")
            if isinstance(page, TopicDescription) and isinstance(known, TopicDescription):
                page = TopicDescription(
                    page.name, page.id, page.is_internal, known.partitions + page.partitions
                )
            found[topic.name or ""] = page
        if response.next_cursor is None:
            return found
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )


async def _add_states(
    driver: RequestDriver, topics: Mapping[str, TopicDescription]
) -> dict[str, TopicDescription]:
    """Adds the replica states that the leader of each partition reports. A partition whose leader
    fails keeps its description without them."""
    by_leader: dict[int, set[str]] = {}
    for name, topic in topics.items():
        for partition in topic.partitions:
            if partition.leader >= 0:
                by_leader.setdefault(partition.leader, set()).add(name)

    async def send(
        node: Node | None, leaders: Sequence[int]
    ) -> dict[int, dict[str, TopicDescription | ClientError]]:
        (leader,) = leaders
        return {leader: await _describe_partitions(driver, node, sorted(by_leader[leader]))}

    views = await driver.outcomes_of(by_leader, driver.find_brokers, send)
    reported: dict[TopicPartition, PartitionDescription] = {}
    for leader, view in views.items():
        for name, partition in _led_partitions(leader, view):
            reported[TopicPartition(name, partition.index)] = partition
    return {
        name: TopicDescription(
            topic.name,
            topic.id,
            topic.is_internal,
            tuple(
                reported.get(TopicPartition(name, partition.index), partition)
                for partition in topic.partitions
            ),
        )
        for name, topic in topics.items()
    }


def _led_partitions(
    leader: int, view: Mapping[str, TopicDescription | ClientError] | ClientError
) -> Iterator[tuple[str, PartitionDescription]]:
    if isinstance(view, ClientError):
        return
    for name, topic in view.items():
        if isinstance(topic, TopicDescription):
            for partition in topic.partitions:
                if partition.leader == leader:
                    yield name, partition


def _describe_topic(
    topic: DescribeTopicPartitionsResponseTopic | MetadataResponseTopic,
) -> TopicDescription | ClientError:
    name = topic.name or ""
    if topic.error_code:
        return broker_error(topic.error_code, f"topic {name!r}")
    partitions = sorted(
        map(_describe_partition, topic.partitions), key=lambda partition: partition.index
    )
    return TopicDescription(name, topic.topic_id, topic.is_internal, tuple(partitions))


def _describe_partition(
    partition: DescribeTopicPartitionsResponsePartition | MetadataResponsePartition,
) -> PartitionDescription:
    base = PartitionDescription(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
    )
    if isinstance(partition, MetadataResponsePartition):
        return base
    return PartitionDescription(
        base.index,
        base.leader,
        base.leader_epoch,
        base.replicas,
        base.isr,
        tuple(partition.eligible_leader_replicas or ()),
        tuple(partition.last_known_elr or ()),
        base.offline,
        ReplicationMode(partition.replication_mode),
        ReplicationMode(partition.desired_mode),
        partition.mode_reason,
        partition.high_watermark,
        tuple(_replica_states(partition)),
    )


def _replica_states(partition: DescribeTopicPartitionsResponsePartition) -> Iterator[ReplicaState]:
    if not partition.replica_end_offsets:
        return
    furthest = max(partition.replica_end_offsets)
    for node, start, end, fetched_ms, caught_up_ms in zip_longest(
        partition.replica_nodes,
        partition.replica_log_start_offsets,
        partition.replica_end_offsets,
        partition.replica_last_fetch_ages_ms,
        partition.replica_last_caught_up_ages_ms,
        fillvalue=-1,
    ):
        lag = furthest - end if end >= 0 else -1
        yield ReplicaState(node, start, end, lag, fetched_ms, caught_up_ms)
