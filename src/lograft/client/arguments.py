"""What programs get wrong where only types would tell. It is said at once and in words: further in,
it would break more than the call that it came with."""

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeVar, cast

from lograft.client.errors import WrongUse
from lograft.client.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

NUMBER_MAX: Final = (1 << 63) - 1


def several(given: Iterable[T]) -> Iterable[T]:
    """A text is one name and not its letters, a partition one partition and not its fields."""
    if isinstance(given, str | bytes) or hasattr(given, "_fields"):
        return cast(Iterable[T], (given,))
    return given


def topic_name(given: str) -> str:
    if not _is_text(given):
        raise WrongUse(f"{given!r} is not the name of a topic: names are text")
    return given


def partition_of(given: tuple[str, int]) -> TopicPartition:
    if _is_pair(given) and _is_text(given[0]) and _is_number(given[1]):
        return given if isinstance(given, TopicPartition) else TopicPartition(*given)
    raise WrongUse(f"{given!r} is not a partition: give TopicPartition('topic', 0)")


def check_index(partition: int) -> None:
    """Of a partition that a record is to go to."""
    if not _is_number(partition) or isinstance(partition, bool):
        raise WrongUse(f"there is no partition {partition!r}: they are numbered from 0")


def key_of(given: bytes | str) -> bytes:
    """That a record is looked for by."""
    if isinstance(given, str):
        return given.encode()
    if given is None or not _is_content(given):
        raise WrongUse(f"{given!r} is not a key to look for: give bytes or text")
    return bytes(given)


def place_of(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    place = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
    if not (_is_number(place.offset) and _is_text(place.metadata)):
        raise WrongUse(f"{given!r} is not an offset: they are whole numbers from 0 on")
    return place


def places_of(
    given: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition_of(one): place_of(place) for one, place in given.items()}


def timestamp_of(given: int) -> int:
    if not _is_number(given):
        raise WrongUse(
            f"{given!r} is not a timestamp: timestamp_ms is whole milliseconds since 1970"
        )
    return index(given)


def check_headers(given: Sequence[tuple[str, bytes | None]]) -> None:
    for pair in given:
        if not (_is_pair(pair) and _is_text(pair[0]) and _is_content(pair[1])):
            raise WrongUse(f"{pair!r} is not a header: they are pairs such as ('name', b'content')")


def _is_text(given: Any) -> bool:
    """Half a surrogate pair is none: it cannot be sent."""
    if not isinstance(given, str):
        return False
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(given: Any) -> bool:
    """Whole, from 0 on, in 64 bits."""
    try:
        return 0 <= index(given) <= NUMBER_MAX
    except TypeError:
        return False


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2


def _is_content(given: Any) -> bool:
    return given is None or isinstance(given, bytes | bytearray | memoryview)
