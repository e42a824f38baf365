"""The error codes of a response, counted by API."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from lograft.model.errors import ErrorCode
from lograft.model.metrics import API, Counter, Label, Sample
from lograft.wire.message import Message

ERRORS: Final = Counter(
    "lograft_request_errors_total",
    "Errors in responses, of a whole request or of one of its items, such as a partition.",
    API,
    Label("error", len(ErrorCode) + 1),
)

_SUFFIX: Final = "error_code"


class ErrorFields(NamedTuple):
    """Where a message has error codes."""

    #: The field with the code, such as `partition_error_code`; empty if there is none.
    code: str
    #: Arrays whose items have some.
    arrays: tuple[tuple[str, "ErrorFields"], ...]


def find_error_fields(kind: type[Message]) -> ErrorFields:
    arrays = []
    for field in kind.FIELDS:
        if field.kind == "array" and isinstance(field.element, type):
            inner = find_error_fields(field.element)
            if inner.code or inner.arrays:
                arrays.append((field.name, inner))
    names = [field.name for field in kind.FIELDS]
    # Such as partition_error_code, if there is no error_code.
    longer = next((name for name in names if name.endswith(_SUFFIX)), "")
    return ErrorFields(_SUFFIX if _SUFFIX in names else longer, tuple(arrays))


class ErrorCounts:
    """The errors in the responses of one API."""

    __slots__ = ("_api", "_counts", "_fields")

    def __init__(self, api: str, kind: type[Message]) -> None:
        self._api = api
        self._fields = find_error_fields(kind)
        self._counts: dict[int, int] = {}

    @property
    def can_count(self) -> bool:
        """Whether the response has an error code anywhere."""
        return bool(self._fields.code or self._fields.arrays)

    def add(self, code: int) -> None:
        self._counts[code] = self._counts.get(code, 0) + 1

    def add_all_of(self, response: Message) -> None:
        self._add_of(response, self._fields)

    def _add_of(self, message: Message, fields: ErrorFields) -> None:
        name_of_code, arrays = fields
        if name_of_code and (code := getattr(message, name_of_code)):
            self.add(code)
        for name, inner in arrays:
            # Null in some versions.
            items = getattr(message, name) or ()
            if inner.arrays:
                for item in items:
                    self._add_of(item, inner)
            else:
                for code in map(attrgetter(inner.code), items):
                    if code:
                        self.add(code)

    def collect_samples(self) -> Iterator[Sample]:
        for code, count in list(self._counts.items()):
            yield ERRORS.sample(count, self._api, _name_of(code))


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
