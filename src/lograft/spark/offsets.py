"""Offsets as Spark's Kafka source writes them: `{"topic":{"0":23,"1":-1}}`.

The same text is an option (`startingOffsets`), a line of a checkpoint and what a query reports, so
it is read strictly and written always in the same order.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition

#: In an offset's place.
LATEST: Final = -1
EARLIEST: Final = -2

Offsets: TypeAlias = dict[TopicPartition, int]
#: What Spark keeps of a stream: JSON's own types.
OffsetJson: TypeAlias = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class AtEnd:
    """EARLIEST or LATEST, of every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of every partition that is not older."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    timestamps_ms: Mapping[TopicPartition, int]


#: Where reading begins or ends.
Position: TypeAlias = AtEnd | AtOffsets | AtTime | AtTimes


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    written: OffsetJson = {}
    for (topic, partition), offset in sorted(offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    return written


def from_json(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def parse_offsets(option: str, text: str, *, lowest: int = EARLIEST) -> Offsets:
    """Of an option. `lowest`: the least number that means something there."""
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
            type(one) is int and one >= 0 for one in indexes
        ):
            raise _not_partitions(option, text)
        found += [TopicPartition(topic, index) for index in indexes]
    if not found:
        raise _not_partitions(option, text)
    return tuple(sorted(set(found)))


def check_covers(
    option: str, given: Iterable[TopicPartition], there: set[TopicPartition], advice: str
) -> None:
    """Offsets by partition name all partitions, and no others."""
    named = set(given)
    if named == there:
        return
    missing, unknown = sorted(there - named), sorted(named - there)
    problems = []
    if missing:
        problems.append(f"does not name {_listed(missing)}")
    if unknown:
        problems.append(f"names {_listed(unknown)}, which is not among the partitions read")
    raise InvalidConfig(f"{option} {' and '.join(problems)}: {advice}")


def _listed(partitions: Iterable[TopicPartition]) -> str:
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
