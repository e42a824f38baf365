"""Offsets in the JSON format of Spark's Kafka source: `{"topic":{"0":23,"1":-1}}`.

The same text is used in options (`startingOffsets`), checkpoints and query progress, so parsing is
strict and the order of topics and partitions is fixed.

Offsets of a stream also contain topic IDs: `{"orders":{"0":23},"orders@<topic ID>":{}}`. Spark's
Kafka source reads the second entry as a topic without partitions and ignores it, so checkpoints can
still move in both directions (docs/decisions/0014-topic-ids-in-checkpoints.md).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from lograft.model.errors import InvalidConfig
from lograft.model.types import ZERO_UUID, TopicPartition
from lograft.model.uuids import uuid_from_text, uuid_to_text

#: Special values in place of an offset.
LATEST: Final = -1
EARLIEST: Final = -2
#: Separates a topic's name from its ID; not allowed in topic names.
_ID_MARK: Final = "@"

Offsets: TypeAlias = dict[TopicPartition, int]
#: The form that Spark stores for a stream: JSON types only.
OffsetJson: TypeAlias = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class AtEnd:
    """EARLIEST or LATEST for every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition with this timestamp or a later one."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    timestamps_ms: Mapping[TopicPartition, int]


#: Where reading begins or ends.
Position: TypeAlias = AtEnd | AtOffsets | AtTime | AtTimes


def to_json(
    offsets: Mapping[TopicPartition, int], ids: Mapping[str, UUID] | None = None
) -> OffsetJson:
    """Encodes offsets. `ids` are known topic IDs; those of topics without offsets are ignored."""
    written: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    for topic, topic_id in sorted((ids or {}).items()):
        if topic in written and topic_id != ZERO_UUID:
            written[f"{topic}{_ID_MARK}{uuid_to_text(topic_id)}"] = {}
    return written


def from_json(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def ids_in(stored: Mapping[str, Mapping[str, int]]) -> dict[str, UUID]:
    """Returns the topic IDs stored with the offsets; none in a checkpoint of Spark's Kafka
    source."""
    marked = (name.partition(_ID_MARK) for name in stored if _ID_MARK in name)
    return {topic: uuid_from_text(text) for topic, _, text in marked}


def parse_offsets(option: str, text: str, *, lowest: int = EARLIEST) -> Offsets:
    """Parses an option. `lowest` is the smallest value that the option accepts."""
    found: Offsets = {}
    for topic, partitions in _json_object(option, text, _not_offsets).items():
        if not isinstance(partitions, dict):
            raise _not_offsets(option, text)
        for index, offset in partitions.items():
            if (
                not re.fullmatch("[0-9]+", index)
                or not isinstance(offset, int)
                or isinstance(offset, bool)
            ):
                raise _not_offsets(option, text)
            if offset < lowest:
                raise InvalidConfig(
                    f"{option} has {offset} for {topic}-{index}, but must be"
                    + (" at least 0" if lowest == 0 else " an offset, -1 (latest) or -2 (earliest)")
                )
            found[TopicPartition(topic, int(index))] = offset
    if not found:
        raise _not_offsets(option, text)
    return found


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic":[0,1]}`"""
    found = []
    for topic, indexes in _json_object(option, text, _not_partitions).items():
        if not isinstance(indexes, list) or not all(
            type(index) is int and index >= 0 for index in indexes
        ):
            raise _not_partitions(option, text)
        found += [TopicPartition(topic, index) for index in indexes]
    if not found:
        raise _not_partitions(option, text)
    return tuple(sorted(set(found)))


def check_covers(
    option: str, given: Iterable[TopicPartition], existing: set[TopicPartition], advice: str
) -> None:
    """Raises InvalidConfig unless `given` lists exactly the existing partitions."""
    named = set(given)
    if named == existing:
        return
    missing, unknown = sorted(existing - named), sorted(named - existing)
    problems = []
    if missing:
        problems.append(f"is missing {_format(missing)}")
    if unknown:
        problems.append(f"contains {_format(unknown)}, which the query does not read")
    raise InvalidConfig(f"{option} {' and '.join(problems)}: {advice}")


def _format(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in partitions)


def _json_object(
    option: str, text: str, problem: Callable[[str, str], InvalidConfig]
) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise problem(option, text)
    return parsed


def _not_offsets(option: str, text: str) -> InvalidConfig:
    return InvalidConfig(f'{option} is {text!r}, but must be JSON such as {{"topic":{{"0":23}}}}')


def _not_partitions(option: str, text: str) -> InvalidConfig:
    return InvalidConfig(f'{option} is {text!r}, but must be JSON such as {{"topic":[0,1]}}')
