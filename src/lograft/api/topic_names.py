"""Topics of a request that may be given by id: what is written about them has their names."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode


class NamedTopic(Protocol):
    name: str


class IdentifiedTopic(NamedTopic, Protocol):
    topic_id: UUID


T = TypeVar("T", bound=NamedTopic)
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
            refused.append((topic, ErrorCode.unknown_topic_or_partition))
    return NamedTopics(known, refused)


def named_topics(image: MetadataImage, topics: Iterable[U]) -> NamedTopics[U]:
    """Puts the names in where ids were given; says which do not exist."""
    known: list[U] = []
    refused: list[tuple[U, ErrorCode]] = []
    for topic in topics:
        state = image.topics.get(topic.topic_id)
        if state is None:
            refused.append((topic, ErrorCode.unknown_topic_id))
        else:
            topic.name = state.name
            known.append(topic)
    return NamedTopics(known, refused)
