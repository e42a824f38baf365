"""Requests about partitions: offsets, records, leaders and replicas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from lograft.client.administering.request_driver import RequestDriver, raise_failures
from lograft.client.arguments import as_iterable, partition_of
from lograft.client.errors import ClientError, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_NODE, TopicPartition
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from lograft.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lograft.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from lograft.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

#: Special timestamps of `list_offsets`.
LATEST: Final = -1
EARLIEST: Final = -2
#: The record with the greatest timestamp.
MAX_TIMESTAMP: Final = -3
#: First ListOffsets version that supports each special timestamp; others require version 1.
_VERSION_OF: Final = {MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
#: Maximum number of partitions in one request.
_PARTITIONS_MAX: Final = 1_000

Isolation = Literal["read_uncommitted", "read_committed"]


class ListedOffset(NamedTuple):
    #: -1: there is no such record.
    offset: int
    timestamp_ms: int
    leader_epoch: int


class Election(IntEnum):
    """The values are those of the protocol."""

    #: Elects the first replica of the assignment.
    PREFERRED = 0
    #: Elects any live replica, even if records are lost.
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """The state of an idempotent producer in a partition; fields are -1 if unset."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


async def list_offsets(
    driver: RequestDriver,
    partitions: Mapping[TopicPartition, int],
    *,
    isolation: Isolation = "read_uncommitted",
) -> dict[TopicPartition, ListedOffset]:
    at_least = max((_VERSION_OF.get(timestamp, 1) for timestamp in partitions.values()), default=1)

    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | ClientError]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(isolation == "read_committed"),
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.partition, timestamp=partitions[partition]
                        )
                        for partition in group
                    ],
                )
                for name, group in group_by_topic(items).items()
            ],
            timeout_ms=driver.request_timeout_ms,
        )
        response = await driver.send(node, request, ListOffsetsResponse, at_least=max(at_least, 2))
        return {
            TopicPartition(topic.name, result.partition_index): error_if_failed(
                result.error_code, f"{topic.name}-{result.partition_index}"
            )
            or ListedOffset(result.offset, result.timestamp, result.leader_epoch)
            for topic in response.topics
            for result in topic.partitions
        }

    return await driver.results_of(partitions, driver.find_leaders, send)


async def delete_records(
    driver: RequestDriver, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | ClientError]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=partition.partition, offset=before[partition]
                        )
                        for partition in group
                    ],
                )
                for name, group in group_by_topic(items).items()
            ],
            timeout_ms=driver.request_timeout_ms,
        )
        response = await driver.send(node, request, DeleteRecordsResponse)
        outcomes: dict[TopicPartition, int | ClientError] = {}
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                error = error_if_failed(result.error_code, f"records of {partition}")
                outcomes[partition] = result.low_watermark if error is None else error
        return outcomes

    return await driver.results_of(before, driver.find_leaders, send)


async def describe_producers(
    driver: RequestDriver, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in group_indexes_by_topic(items).items()
            ]
        )
        response = await driver.send(node, request, DescribeProducersResponse)
        outcomes: dict[TopicPartition, list[ActiveProducer] | ClientError] = {}
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                error = error_if_failed(
                    result.error_code, f"producers of {partition}", result.error_message
                )
                outcomes[partition] = (
                    list(map(_producer_of, result.active_producers)) if error is None else error
                )
        return outcomes

    return await driver.results_of(partitions, driver.find_leaders, send)


async def elect_leaders(
    driver: RequestDriver,
    election: Election = Election.PREFERRED,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    leader: int | None = None,
) -> dict[TopicPartition, bool]:
    if leader is not None and (partitions is None or election is not Election.PREFERRED):
        raise ValueError("leader= requires partitions= and a preferred election")
    topics = None if partitions is None else group_indexes_by_topic(partitions)
    response = await driver.result_of(
        ElectLeadersRequest(
            election_type=election,
            topic_partitions=None
            if topics is None
            else [
                TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics.items()
            ],
            timeout_ms=driver.request_timeout_ms,
            leader=NO_NODE if leader is None else leader,
        ),
        ElectLeadersResponse,
        lambda response: raise_for(response.error_code, "elections"),
        lookup=driver.find_controller,
        at_least=1 if leader is None else 2,
        lograft_only=leader is not None,
    )
    outcomes: dict[TopicPartition, bool | ClientError] = {}
    for topic in response.replica_election_results:
        for result in topic.partition_result:
            partition = TopicPartition(topic.topic, result.partition_id)
            if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                outcomes[partition] = False
            else:
                error = error_if_failed(
                    result.error_code, f"the leader of {partition}", result.error_message
                )
                outcomes[partition] = True if error is None else error
    return raise_failures(outcomes)


async def reassign(
    driver: RequestDriver, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ClientError | None]:
        outcomes: dict[TopicPartition, ClientError | None] = {}
        for start in range(0, len(items), _PARTITIONS_MAX):
            chunk = items[start : start + _PARTITIONS_MAX]
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=driver.request_timeout_ms,
                topics=[
                    ReassignableTopic(
                        name=name,
                        partitions=[
                            ReassignablePartition(
                                partition_index=partition.partition,
                                replicas=_list_or_none(replicas[partition]),
                            )
                            for partition in group
                        ],
                    )
                    for name, group in group_by_topic(chunk).items()
                ],
            )
            response = await driver.send(node, request, AlterPartitionReassignmentsResponse)
            raise_for(response.error_code, "reassignments", response.error_message)
            for topic in response.responses:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    outcomes[partition] = error_if_failed(
                        result.error_code, str(partition), result.error_message
                    )
        return outcomes

    await driver.results_of(replicas, driver.find_controller, send)


async def list_reassignments(
    driver: RequestDriver, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    topics = None if partitions is None else group_indexes_by_topic(partitions)
    response = await driver.result_of(
        ListPartitionReassignmentsRequest(
            timeout_ms=driver.request_timeout_ms,
            topics=None
            if topics is None
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        ),
        ListPartitionReassignmentsResponse,
        lambda response: raise_for(response.error_code, "reassignments", response.error_message),
        lookup=driver.find_controller,
    )
    return {
        TopicPartition(topic.name, result.partition_index): Reassignment(
            tuple(result.replicas), tuple(result.adding_replicas), tuple(result.removing_replicas)
        )
        for topic in response.topics
        for result in topic.partitions
    }


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in map(partition_of, as_iterable(partitions)):
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def group_indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return {
        topic: [partition.partition for partition in group]
        for topic, group in group_by_topic(partitions).items()
    }


def error_if_failed(code: int, what: str, message: str | None = None) -> ClientError | None:
    return broker_error(code, what, message) if code else None


def _list_or_none(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _producer_of(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )
