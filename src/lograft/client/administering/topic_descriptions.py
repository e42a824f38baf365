"""Topics as they are: who holds what, in which mode, and how far each replica is."""

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
    """How far one replica is, as the leader sees it; -1: not known, or never.

    orders = (await admin.describe_topics(["orders"], replicas=True))["orders"]
    states: tuple[ReplicaState, ...] = orders.partitions[0].states
    print({one.node: one.lag for one in states})
    """

    node: int
    start_offset: int
    end_offset: int
    #: Records that the furthest replica has and this one has not.
    lag: int
    last_fetch_age_ms: int
    caught_up_age_ms: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Who holds one partition, who leads it, and how it is replicated.

    orders = (await admin.describe_topics(["orders"]))["orders"]
    partition: PartitionDescription = orders.partitions[0]
    print(partition.leader, partition.isr, partition.mode.name)
    """

    index: int
    #: -1: there is none.
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: Replicas outside the ISR that have every committed record (KIP-966).
    eligible_leaders: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    mode: ReplicationMode = ReplicationMode.ISR
    #: What the topic's settings ask for, and what that waits for.
    wished_mode: ReplicationMode = ReplicationMode.ISR
    mode_reason: str = ""
    #: -1 and () unless the leader was asked, and is a Lograft.
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
        told = await driver.fetch_metadata(None)
        found = [
            TopicListing(one.name, one.topic_id, one.is_internal, len(one.partitions))
            for one in told.topics
            if one.name is not None and (internal or not one.is_internal)
        ]
        return dict.fromkeys(items, sorted(found, key=lambda one: one.name))

    return (await driver.results_of([""], driver.any_node, send))[""]


async def describe_topics(
    driver: RequestDriver, topics: Iterable[str | UUID] | None = None, *, replicas: bool = False
) -> dict[str, TopicDescription]:
    if topics is None:
        names = [one.name for one in await list_topics(driver, internal=True)]
    else:
        names = await _find_names(driver, topics)

    async def send(
        node: Node | None, items: Sequence[str]
    ) -> dict[str, TopicDescription | ClientError]:
        try:
            return await _describe_partitions(driver, node, items)
        except UnsupportedByBroker:
            told = await driver.fetch_metadata(items)
            return {one.name or "": _described(one) for one in told.topics}

    found = await driver.results_of(names, driver.any_node, send)
    return await _add_states(driver, found) if replicas else found


async def _find_names(driver: RequestDriver, topics: Iterable[str | UUID]) -> list[str]:
    wanted = list(as_iterable(topics))

    async def send(_node: Node | None, ids: Sequence[UUID]) -> dict[UUID, str | ClientError]:
        told = await driver.fetch_metadata(ids)
        return {
            one.topic_id: broker_error(one.error_code, f"the topic of id {one.topic_id}")
            if one.error_code or one.name is None
            else one.name
            for one in told.topics
        }

    ids = [one for one in wanted if isinstance(one, UUID)]
    names = await driver.results_of(ids, driver.any_node, send)
    return [names[one] if isinstance(one, UUID) else one for one in wanted]


async def _describe_partitions(
    driver: RequestDriver, node: Node | None, names: Sequence[str]
) -> dict[str, TopicDescription | ClientError]:
    """In pages."""
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
        for one in response.topics:
            page, known = _described(one), found.get(one.name or "")
            if isinstance(page, TopicDescription) and isinstance(known, TopicDescription):
                page = TopicDescription(
                    page.name, page.id, page.is_internal, known.partitions + page.partitions
                )
            found[one.name or ""] = page
        if response.next_cursor is None:
            return found
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )


async def _add_states(
    driver: RequestDriver, topics: Mapping[str, TopicDescription]
) -> dict[str, TopicDescription]:
    """With what the leader of each partition knows of its replicas; where it has just gone,
    what the others know stands."""
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
    seen: dict[TopicPartition, PartitionDescription] = {}
    for leader, view in views.items():
        for name, partition in _leading(leader, view):
            seen[TopicPartition(name, partition.index)] = partition
    return {
        name: TopicDescription(
            topic.name,
            topic.id,
            topic.is_internal,
            tuple(seen.get(TopicPartition(name, one.index), one) for one in topic.partitions),
        )
        for name, topic in topics.items()
    }


def _leading(
    leader: int, view: Mapping[str, TopicDescription | ClientError] | ClientError
) -> Iterator[tuple[str, PartitionDescription]]:
    if isinstance(view, ClientError):
        return
    for name, topic in view.items():
        if isinstance(topic, TopicDescription):
            yield from ((name, one) for one in topic.partitions if one.leader == leader)


def _described(
    told: DescribeTopicPartitionsResponseTopic | MetadataResponseTopic,
) -> TopicDescription | ClientError:
    name = told.name or ""
    if told.error_code:
        return broker_error(told.error_code, f"topic {name!r}")
    partitions = sorted(map(_partition, told.partitions), key=lambda one: one.index)
    return TopicDescription(name, told.topic_id, told.is_internal, tuple(partitions))


def _partition(
    told: DescribeTopicPartitionsResponsePartition | MetadataResponsePartition,
) -> PartitionDescription:
    base = PartitionDescription(
        told.partition_index,
        told.leader_id,
        told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        offline=tuple(told.offline_replicas),
    )
    if isinstance(told, MetadataResponsePartition):
        return base
    return PartitionDescription(
        base.index,
        base.leader,
        base.leader_epoch,
        base.replicas,
        base.isr,
        tuple(told.eligible_leader_replicas or ()),
        tuple(told.last_known_elr or ()),
        base.offline,
        ReplicationMode(told.replication_mode),
        ReplicationMode(told.wished_mode),
        told.mode_reason,
        told.high_watermark,
        tuple(_states(told)),
    )


def _states(told: DescribeTopicPartitionsResponsePartition) -> Iterator[ReplicaState]:
    if not told.replica_end_offsets:
        return
    furthest = max(told.replica_end_offsets)
    for node, start, end, fetched_ms, caught_up_ms in zip_longest(
        told.replica_nodes,
        told.replica_log_start_offsets,
        told.replica_end_offsets,
        told.replica_last_fetch_ages_ms,
        told.replica_last_caught_up_ages_ms,
        fillvalue=-1,
    ):
        lag = furthest - end if end >= 0 else -1
        yield ReplicaState(node, start, end, lag, fetched_ms, caught_up_ms)
