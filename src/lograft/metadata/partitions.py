"""Decides the creation of new partitions of existing topics."""

from collections import Counter
from collections.abc import Container, Sequence
from typing import Final
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.metadata.placement import Candidate, place_partitions
from lograft.metadata.types import (
    UNASSIGNED_DIRECTORY,
    Admit,
    ControllerResult,
    TopicState,
    admit_all,
)
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.types import INTERNAL_TOPICS
from lograft.wire.message import Message
from lograft.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from lograft.wire.records.partition_record import PartitionRecord

#: The records of one request form one batch of the metadata log, whose size must be limited.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, *, admit: Admit = admit_all
) -> ControllerResult[CreatePartitionsResponse]:
    """`admit` counts the new partitions of each topic, and raises Rejected beyond the client's
    quota."""
    counts = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        if counts[topic.name] < 1:
            continue
        try:
            if counts[topic.name] > 1:
                counts[topic.name] = -1  # Reported only once.
                raise Rejected(
                    ErrorCode.INVALID_REQUEST, f"The request contains topic '{topic.name}' twice."
                )
            if topic.name in INTERNAL_TOPICS and image.topic(topic.name) is not None:
                # Kafka allows this, and no longer finds any committed offset after a restart.
                raise Rejected(
                    ErrorCode.INVALID_PARTITIONS,
                    f"The partition count of {topic.name} cannot change, because it determines"
                    " the coordinator of each group and transaction.",
                )
            new_records = _new_partitions(image, topic)
            if len(records) + len(new_records) > PARTITIONS_PER_REQUEST_MAX:
                raise Rejected(
                    ErrorCode.INVALID_PARTITIONS,
                    f"One request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions."
                    " Split it.",
                )
            admit(len(new_records))
            records += new_records
        except Rejected as rejection:
            result.error_code = rejection.code
            result.error_message = rejection.message
        results.append(result)
    if request.validate_only:
        records.clear()
    return ControllerResult(tuple(records), CreatePartitionsResponse(results=results))


def place_replicas(
    image: MetadataImage,
    topic_name: str,
    indexes: range,
    *,
    replication_factor: int,
    holders: Container[int] = (),
) -> list[tuple[int, ...]]:
    """Brokers with only cordoned log directories get no new replicas; `holders` keep theirs."""
    topic = image.topic(topic_name)
    led = Counter(p.leader for p in topic.partitions.values()) if topic is not None else None
    return place_partitions(
        topic_name,
        indexes,
        replication_factor=replication_factor,
        candidates=[
            Candidate(
                broker.broker_id,
                broker.rack,
                broker.is_active,
                image.leader_counts.get(broker.broker_id, 0),
                len(image.held_by.get(broker.broker_id, ())),
            )
            for broker in image.brokers.values()
            if broker.takes_replicas or broker.broker_id in holders
        ],
        topic_leaders=led,
    )


def new_partition(
    image: MetadataImage, topic_id: UUID, index: int, replicas: Sequence[int]
) -> PartitionRecord:
    brokers = image.brokers
    active = [broker_id for broker_id in replicas if brokers[broker_id].is_active]
    assert active, (topic_id, index, replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=active,
        leader=active[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[
            brokers[broker_id].default_directory if broker_id in brokers else UNASSIGNED_DIRECTORY
            for broker_id in replicas
        ],
    )


def check_assignment(
    image: MetadataImage, index: int, replicas: Sequence[int], *, replication_factor: int
) -> None:
    """Checks replicas that were assigned manually."""
    if not replicas:
        problem = "contains no broker"
    elif len(replicas) != len(set(replicas)):
        problem = f"contains duplicate brokers: {list(replicas)}"
    elif unknown := [broker_id for broker_id in replicas if broker_id not in image.brokers]:
        problem = f"contains broker {unknown[0]}, which is not registered"
    elif len(replicas) != replication_factor:
        problem = (
            f"has {len(replicas)} replicas, but the other partitions have {replication_factor}"
        )
    elif not any(image.brokers[broker_id].is_active for broker_id in replicas):
        problem = "contains only brokers that are fenced or shutting down"
    else:
        return
    raise Rejected(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {index} {problem}."
    )


def _new_partitions(
    image: MetadataImage, requested: CreatePartitionsTopic
) -> list[PartitionRecord]:
    topic = image.topic(requested.name)
    if topic is None:
        raise Rejected(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{requested.name}' does not exist."
        )
    present = len(topic.partitions)
    if requested.count == present:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{requested.name}' already has {present} partitions.",
        )
    if requested.count < present:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{requested.name}' has {present} partitions, and the partition count cannot be"
            f" decreased to {requested.count}.",
        )
    if requested.count - present > PARTITIONS_PER_REQUEST_MAX:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"The request creates {requested.count - present} partitions, more than the maximum of"
            f" {PARTITIONS_PER_REQUEST_MAX}.",
        )
    replicas = _new_replicas(image, topic, requested)
    return [
        new_partition(image, topic.topic_id, index, assignments)
        for index, assignments in enumerate(replicas, start=present)
    ]


def _new_replicas(
    image: MetadataImage, topic: TopicState, requested: CreatePartitionsTopic
) -> list[tuple[int, ...]]:
    present = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        return place_replicas(
            image, topic.name, range(present, requested.count), replication_factor=factor
        )
    if len(requested.assignments) != requested.count - present:
        raise Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The request adds {requested.count - present} partitions but contains"
            f" {len(requested.assignments)} assignments.",
        )
    assignments = [tuple(assignment.broker_ids) for assignment in requested.assignments]
    for index, replicas in enumerate(assignments, start=present):
        check_assignment(image, index, replicas, replication_factor=factor)
    return assignments
