"""Topics of a request that may be given by id: what is written about them has their names."""

from collections.abc import Iterable
from copy import copy
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from lograft.api.authorization import DENIED_CODE, find_denied
from lograft.api.context import Context
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.security.authorization import Permission


class NamedTopic(Protocol):
    name: str


class IdentifiedTopic(NamedTopic, Protocol):
    topic_id: UUID


class PartitionedTopic(NamedTopic, Protocol):
    #: Each with its `partition_index`.
    partitions: list[Any]


T = TypeVar("T", bound=NamedTopic)
P = TypeVar("P", bound=PartitionedTopic)
U = TypeVar("U", bound=IdentifiedTopic)


class NamedTopics(NamedTuple, Generic[T]):
    #: With their names.
    known: list[T]
    refused: list[tuple[T, ErrorCode]]


def known_topics(image: MetadataImage, topics: Iterable[T]) -> NamedTopics[T]:
    """Says which topics, given by name, do not exist."""
    known: list[T] = []
    refused: list[tuple[T, ErrorCode]] = []
    for topic in topics:
        if topic.name in image.topic_ids:
            known.append(topic)
        else:
            refused.append((topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return NamedTopics(known, refused)


def named_topics(image: MetadataImage, topics: Iterable[U]) -> NamedTopics[U]:
    """Puts the names in where ids were given; says which do not exist."""
    known: list[U] = []
    refused: list[tuple[U, ErrorCode]] = []
    for topic in topics:
        state = image.topics.get(topic.topic_id)
        if state is None:
            refused.append((topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = state.name
            known.append(topic)
    return NamedTopics(known, refused)


def permitted_topics(
    context: Context, permission: Permission, topics: NamedTopics[T]
) -> NamedTopics[T]:
    """Says also which topics the principal has no access to, whether or not they exist."""
    every = chain(topics.known, (topic for topic, _ in topics.refused))
    denied = find_denied(context, permission, (topic.name for topic in every if topic.name))
    if not denied:
        return topics
    code = DENIED_CODE[permission.resource_type]
    return NamedTopics(
        [topic for topic in topics.known if topic.name not in denied],
        [
            *((topic, code) for topic in topics.known if topic.name in denied),
            *((topic, code if topic.name in denied else why) for topic, why in topics.refused),
        ],
    )


def existing_partitions(image: MetadataImage, topics: NamedTopics[P]) -> NamedTopics[P]:
    """Says also which partitions do not exist: their topic is among both then."""
    known: list[P] = []
    refused = list(topics.refused)
    for topic in topics.known:
        there = image.topics[image.topic_ids[topic.name]].partitions
        missing = [one for one in topic.partitions if one.partition_index not in there]
        if missing:
            refused.append((_only(topic, missing), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            found = [one for one in topic.partitions if one.partition_index in there]
            if found:
                known.append(_only(topic, found))
        elif topic.partitions:
            known.append(topic)
    return NamedTopics(known, refused)


def _only(topic: P, partitions: list[Any]) -> P:
    part = copy(topic)
    part.partitions = partitions
    return part


def add_answers(answers: list[P], more: Iterable[P]) -> None:
    """What is answered for the rest of the partitions, to the same topics."""
    by_topic = {(topic.name, getattr(topic, "topic_id", None)): topic for topic in answers}
    for topic in more:
        same = by_topic.get((topic.name, getattr(topic, "topic_id", None)))
        if same is not None:
            same.partitions += topic.partitions
        elif topic.partitions:
            answers.append(topic)
