"""Partitions: where their logs begin and end, who leads them, where their replicas go."""

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

#: Instead of a time in `list_offsets`.
LATEST: Final = -1
EARLIEST: Final = -2
#: The record with the greatest timestamp.
MAX_TIMESTAMP: Final = -3
#: The lowest version that knows what a number means; times are as old as version 1.
_VERSION_OF: Final = {MAX_TIMESTAMP: 7, -4: 8, -5: 9, -6: 11}
#: Partitions in one request.
_CHUNK: Final = 1_000

Isolation = Literal["read_uncommitted", "read_committed"]


class ListedOffset(NamedTuple):
    #: -1: there is no such record.
    offset: int
    timestamp_ms: int
    leader_epoch: int


class Election(IntEnum):
    """The numbers are those on the wire."""

    #: To the first replica.
    PREFERRED = 0
    #: To a replica that lives, even if records are lost.
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """One that is under way."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """One that a partition remembers; -1: none."""

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
    at_least = max((_VERSION_OF.get(at, 1) for at in partitions.values()), default=1)

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
                            partition_index=one.partition, timestamp=partitions[one]
                        )
                        for one in those
                    ],
                )
                for name, those in by_topic(items).items()
            ],
            timeout_ms=driver.request_timeout_ms,
        )
        response = await driver.send(node, request, ListOffsetsResponse, at_least=max(at_least, 2))
        return {
            TopicPartition(topic.name, one.partition_index): failure(
                one.error_code, f"{topic.name}-{one.partition_index}"
            )
            or ListedOffset(one.offset, one.timestamp, one.leader_epoch)
            for topic in response.topics
            for one in topic.partitions
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
                        DeleteRecordsPartition(partition_index=one.partition, offset=before[one])
                        for one in those
                    ],
                )
                for name, those in by_topic(items).items()
            ],
            timeout_ms=driver.request_timeout_ms,
        )
        response = await driver.send(node, request, DeleteRecordsResponse)
        found: dict[TopicPartition, int | ClientError] = {}
        for topic in response.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                error = failure(one.error_code, f"records of {place}")
                found[place] = one.low_watermark if error is None else error
        return found

    return await driver.results_of(before, driver.find_leaders, send)


async def describe_producers(
    driver: RequestDriver, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer] | ClientError]:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=[one.partition for one in those])
                for name, those in by_topic(items).items()
            ]
        )
        response = await driver.send(node, request, DescribeProducersResponse)
        found: dict[TopicPartition, list[ActiveProducer] | ClientError] = {}
        for topic in response.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                error = failure(one.error_code, f"producers of {place}", one.error_message)
                found[place] = (
                    [_producer(each) for each in one.active_producers] if error is None else error
                )
        return found

    return await driver.results_of(partitions, driver.find_leaders, send)


async def elect_leaders(
    driver: RequestDriver,
    election: Election = Election.PREFERRED,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    leader: int | None = None,
) -> dict[TopicPartition, bool]:
    if leader is not None and (partitions is None or election is not Election.PREFERRED):
        raise ValueError("leader= needs the partitions, and an election that is not unclean")
    wanted = None if partitions is None else by_topic(partitions)
    response = await driver.result_of(
        ElectLeadersRequest(
            election_type=election,
            topic_partitions=None
            if wanted is None
            else [
                TopicPartitions(topic=name, partitions=[one.partition for one in those])
                for name, those in wanted.items()
            ],
            timeout_ms=driver.request_timeout_ms,
            leader=NO_NODE if leader is None else leader,
        ),
        ElectLeadersResponse,
        lambda found: raise_for(found.error_code, "elections"),
        lookup=driver.find_controller,
        at_least=1 if leader is None else 2,
        lograft_only=leader is not None,
    )
    outcomes: dict[TopicPartition, bool | ClientError] = {}
    for topic in response.replica_election_results:
        for one in topic.partition_result:
            place = TopicPartition(topic.topic, one.partition_id)
            if one.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                outcomes[place] = False
            else:
                error = failure(one.error_code, f"the leader of {place}", one.error_message)
                outcomes[place] = True if error is None else error
    return raise_failures(outcomes)


async def reassign(
    driver: RequestDriver, replicas: Mapping[TopicPartition, Sequence[int] | None]
) -> None:
    async def send(
        node: Node | None, items: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ClientError | None]:
        found: dict[TopicPartition, ClientError | None] = {}
        for start in range(0, len(items), _CHUNK):
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=driver.request_timeout_ms,
                topics=[
                    ReassignableTopic(
                        name=name,
                        partitions=[
                            ReassignablePartition(
                                partition_index=one.partition, replicas=_listed(replicas[one])
                            )
                            for one in those
                        ],
                    )
                    for name, those in by_topic(items[start : start + _CHUNK]).items()
                ],
            )
            response = await driver.send(node, request, AlterPartitionReassignmentsResponse)
            raise_for(response.error_code, "reassignments", response.error_message)
            for topic in response.responses:
                for one in topic.partitions:
                    place = TopicPartition(topic.name, one.partition_index)
                    found[place] = failure(one.error_code, str(place), one.error_message)
        return found

    await driver.results_of(replicas, driver.find_controller, send)


async def list_reassignments(
    driver: RequestDriver, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    wanted = None if partitions is None else by_topic(partitions)
    response = await driver.result_of(
        ListPartitionReassignmentsRequest(
            timeout_ms=driver.request_timeout_ms,
            topics=None
            if wanted is None
            else [
                ListPartitionReassignmentsTopics(
                    name=name, partition_indexes=[one.partition for one in those]
                )
                for name, those in wanted.items()
            ],
        ),
        ListPartitionReassignmentsResponse,
        lambda found: raise_for(found.error_code, "reassignments", found.error_message),
        lookup=driver.find_controller,
    )
    return {
        TopicPartition(topic.name, one.partition_index): Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in response.topics
        for one in topic.partitions
    }


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for one in map(partition_of, as_iterable(partitions)):
        topics.setdefault(one.topic, []).append(one)
    return topics


def failure(code: int, what: str, message: str | None = None) -> ClientError | None:
    return broker_error(code, what, message) if code else None


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _producer(told: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        told.current_txn_start_offset,
    )
