"""Decisions about partitions: new ones for a topic that exists."""

from collections import Counter
from collections.abc import Container, Sequence
from typing import Final
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.metadata.placement import Candidate, place_partitions
from lograft.metadata.types import (
    UNASSIGNED_DIRECTORY,
    ControllerResult,
    TopicState,
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

#: One batch of the metadata log holds a request's records: it must not grow without limit.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest
) -> ControllerResult[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        if counts[topic.name] < 1:
            continue
        try:
            if counts[topic.name] > 1:
                counts[topic.name] = -1  # said once
                raise Rejected(
                    ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is in the request twice."
                )
            if topic.name in INTERNAL_TOPICS and image.topic(topic.name) is not None:
                # Kafka takes it, and loses sight of all positions at the next restart.
                raise Rejected(
                    ErrorCode.INVALID_PARTITIONS,
                    f"{topic.name} keeps its number of partitions: groups and transactions are"
                    " found by it, and with another number would be looked for elsewhere.",
                )
            made = _grow(image, topic)
            if len(records) + len(made) > PARTITIONS_PER_REQUEST_MAX:
                raise Rejected(
                    ErrorCode.INVALID_PARTITIONS,
                    f"One request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions:"
                    " split it.",
                )
            records += made
        except Rejected as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
        results.append(result)
    if request.validate_only:
        records.clear()
    return ControllerResult(tuple(records), CreatePartitionsResponse(results=results))


def placed(
    image: MetadataImage,
    topic_name: str,
    indexes: range,
    *,
    replication_factor: int,
    holders: Container[int] = (),
) -> list[tuple[int, ...]]:
    """A broker whose log dirs are all cordoned takes no new replica; `holders` have theirs."""
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
    """Replicas that a person chose."""
    if not replicas:
        problem = "names no broker"
    elif len(replicas) != len(set(replicas)):
        problem = f"names a broker twice: {list(replicas)}"
    elif unknown := [broker_id for broker_id in replicas if broker_id not in image.brokers]:
        problem = f"names broker {unknown[0]}, which is not registered"
    elif len(replicas) != replication_factor:
        problem = f"has {len(replicas)} replicas, the partitions before it {replication_factor}"
    elif not any(image.brokers[broker_id].is_active for broker_id in replicas):
        problem = "names only brokers that are fenced or shutting down"
    else:
        return
    raise Rejected(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {index} {problem}."
    )


def _grow(image: MetadataImage, wanted: CreatePartitionsTopic) -> list[PartitionRecord]:
    topic = image.topic(wanted.name)
    if topic is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{wanted.name}'.")
    present = len(topic.partitions)
    if wanted.count == present:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS, f"Topic '{wanted.name}' has {present} partitions already."
        )
    if wanted.count < present:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{wanted.name}' has {present} partitions, {wanted.count} would be fewer:"
            " partitions cannot be taken away.",
        )
    if wanted.count - present > PARTITIONS_PER_REQUEST_MAX:
        raise Rejected(
            ErrorCode.INVALID_PARTITIONS,
            f"{wanted.count - present} new partitions are more than the"
            f" {PARTITIONS_PER_REQUEST_MAX} that one request may create.",
        )
    replicas = _new_replicas(image, topic, wanted)
    return [
        new_partition(image, topic.topic_id, index, chosen)
        for index, chosen in enumerate(replicas, start=present)
    ]


def _new_replicas(
    image: MetadataImage, topic: TopicState, wanted: CreatePartitionsTopic
) -> list[tuple[int, ...]]:
    present = len(topic.partitions)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return placed(image, topic.name, range(present, wanted.count), replication_factor=factor)
    if len(wanted.assignments) != wanted.count - present:
        raise Rejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{wanted.count - present} partitions are added, but {len(wanted.assignments)}"
            " assignments are given.",
        )
    chosen = [tuple(assignment.broker_ids) for assignment in wanted.assignments]
    for index, replicas in enumerate(chosen, start=present):
        check_assignment(image, index, replicas, replication_factor=factor)
    return chosen
