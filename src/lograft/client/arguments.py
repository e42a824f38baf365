"""Validates arguments of public methods at run time, for applications that use no type checker. A
wrong argument is rejected immediately: later, it would affect more than the call that contains
it."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeVar, cast

from lograft.client.errors import WrongUse
from lograft.client.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

NUMBER_MAX: Final = (1 << 63) - 1


def as_iterable(argument: Iterable[T]) -> Iterable[T]:
    """Returns a single name or partition as a tuple of one: text is not an iterable of letters
    here, and a partition not one of its fields."""
    if isinstance(argument, str | bytes) or hasattr(argument, "_fields"):
        return cast(Iterable[T], (argument,))
    return argument


def check_topic_name(argument: str) -> str:
    if not _is_text(argument):
        raise WrongUse(f"{argument!r} is not a topic name: topic names are of type str")
    return argument


def partition_of(argument: tuple[str, int]) -> TopicPartition:
    if _is_pair(argument) and _is_text(argument[0]) and _is_number(argument[1]):
        return argument if isinstance(argument, TopicPartition) else TopicPartition(*argument)
    raise WrongUse(f"{argument!r} is not a partition: use TopicPartition('topic', 0)")


def check_index(partition: int) -> None:
    """Checks the partition of a record to send."""
    if not _is_number(partition) or isinstance(partition, bool):
        raise WrongUse(f"there is no partition {partition!r}: partitions are numbered from 0")


def lookup_key_of(argument: bytes | str) -> bytes:
    """Returns the bytes of a key whose latest record is requested."""
    if isinstance(argument, str):
        return argument.encode()
    if argument is None or not _is_content(argument):
        raise WrongUse(f"{argument!r} is not a record key: use bytes or str")
    return bytes(argument)


def offset_of(argument: int | OffsetAndMetadata) -> OffsetAndMetadata:
    offset = argument if isinstance(argument, OffsetAndMetadata) else OffsetAndMetadata(argument)
    if not (_is_number(offset.offset) and _is_text(offset.metadata)):
        raise WrongUse(f"{argument!r} is not an offset: offsets are non-negative integers")
    return offset


def offsets_of(
    argument: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition_of(partition): offset_of(offset) for partition, offset in argument.items()}


def timestamp_of(argument: int) -> int:
    if not _is_number(argument):
        raise WrongUse(
            f"{argument!r} is not a timestamp: timestamp_ms is an integer, in milliseconds since"
            " 1970"
        )
    return index(argument)


def check_headers(argument: Sequence[tuple[str, bytes | None]]) -> None:
    for pair in argument:
        if not (_is_pair(pair) and _is_text(pair[0]) and _is_content(pair[1])):
            raise WrongUse(f"{pair!r} is not a header: use pairs such as ('name', b'value')")


def _is_text(argument: Any) -> bool:
    """Whether it is a str that can be sent: one with a lone surrogate cannot be encoded."""
    if not isinstance(argument, str):
        return False
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(argument: Any) -> bool:
    """Whether it is a non-negative integer of 64 bits."""
    try:
        return 0 <= index(argument) <= NUMBER_MAX
    except TypeError:
        return False


def _is_pair(argument: Any) -> bool:
    return isinstance(argument, tuple | list) and len(argument) == 2


def _is_content(argument: Any) -> bool:
    return argument is None or isinstance(argument, bytes | bytearray | memoryview)
