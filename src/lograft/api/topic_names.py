"""Topics of a request that may be given by id: what is written about them has their names."""

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode


class NamedTopic(Protocol):
    name: str
    topic_id: UUID


T = TypeVar("T", bound=NamedTopic)


class NamedTopics(NamedTuple, Generic[T]):
    #: With their names.
    known: list[T]
    refused: list[tuple[T, ErrorCode]]


def name_topics(image: MetadataImage, topics: Iterable[T], *, by_id: bool) -> NamedTopics[T]:
    """Puts the names in; says which topics do not exist."""
    known: list[T] = []
    refused: list[tuple[T, ErrorCode]] = []
    for topic in topics:
        if not by_id:
            if topic.name in image.topic_ids:
                known.append(topic)
            else:
                refused.append((topic, ErrorCode.unknown_topic_or_partition))
            continue
        state = image.topics.get(topic.topic_id)
        if state is None:
            refused.append((topic, ErrorCode.unknown_topic_id))
        else:
            topic.name = state.name
            known.append(topic)
    return NamedTopics(known, refused)
