"""Resolves and checks the topics of a request, which may be given by name or id."""

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
    #: All have names.
    known: list[T]
    rejected: list[tuple[T, ErrorCode]]


def known_topics(image: MetadataImage, topics: Iterable[T]) -> NamedTopics[T]:
    """Splits topics that are given by name into known and unknown ones."""
    known: list[T] = []
    rejected: list[tuple[T, ErrorCode]] = []
    for topic in topics:
        if topic.name in image.topic_ids:
            known.append(topic)
        else:
            rejected.append((topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return NamedTopics(known, rejected)


def named_topics(image: MetadataImage, topics: Iterable[U]) -> NamedTopics[U]:
    """Sets the names of topics that are given by id, and splits off those with an unknown id."""
    known: list[U] = []
    rejected: list[tuple[U, ErrorCode]] = []
    for topic in topics:
        state = image.topics.get(topic.topic_id)
        if state is None:
            rejected.append((topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = state.name
            known.append(topic)
    return NamedTopics(known, rejected)


def permitted_topics(
    context: Context, permission: Permission, topics: NamedTopics[T]
) -> NamedTopics[T]:
    """Rejects also the topics that the principal may not access, whether or not they exist."""
    if context.authorizer is None:
        return topics
    every = chain(topics.known, (topic for topic, _ in topics.rejected))
    denied = find_denied(context, permission, (topic.name for topic in every if topic.name))
    if not denied:
        return topics
    code = DENIED_CODE[permission.resource_type]
    return NamedTopics(
        [topic for topic in topics.known if topic.name not in denied],
        [
            *((topic, code) for topic in topics.known if topic.name in denied),
            *((topic, code if topic.name in denied else error) for topic, error in topics.rejected),
        ],
    )


def existing_partitions(image: MetadataImage, topics: NamedTopics[P]) -> NamedTopics[P]:
    """Rejects also partitions that do not exist: their topic may then be in both lists."""
    known: list[P] = []
    rejected = list(topics.rejected)
    for topic in topics.known:
        indexes = image.topics[image.topic_ids[topic.name]].partitions
        missing = [p for p in topic.partitions if p.partition_index not in indexes]
        if missing:
            rejected.append((_only(topic, missing), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            existing = [p for p in topic.partitions if p.partition_index in indexes]
            if existing:
                known.append(_only(topic, existing))
        elif topic.partitions:
            known.append(topic)
    return NamedTopics(known, rejected)


def _only(topic: P, partitions: list[Any]) -> P:
    part = copy(topic)
    part.partitions = partitions
    return part


def add_responses(responses: list[P], more: Iterable[P]) -> None:
    """Adds responses for the remaining partitions to those of the same topic."""
    by_topic = {(topic.name, getattr(topic, "topic_id", None)): topic for topic in responses}
    for topic in more:
        response = by_topic.get((topic.name, getattr(topic, "topic_id", None)))
        if response is not None:
            response.partitions += topic.partitions
        elif topic.partitions:
            responses.append(topic)
