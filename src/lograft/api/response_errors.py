"""The error codes of a response, counted by API."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

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


def compile_counting(kind: type[Message], add: Callable[[int], None]) -> Callable[[Message], None]:
    """Returns a function that calls `add` with each error code of a response. It is compiled for
    the fields of the response, so that nothing else is called: nearly no response has errors."""
    lines = ["def add_all_of(response):", *_counting_of(find_error_fields(kind), "response")]
    names: dict[str, Any] = {"add": add}
    exec(compile("\n".join([*lines, " pass"]), f"<{kind.__name__} errors>", "exec"), names)
    compiled: Callable[[Message], None] = names["add_all_of"]
    return compiled


def _counting_of(fields: ErrorFields, message: str, depth: int = 1) -> Iterator[str]:
    indent = " " * depth
    if fields.code:
        yield f"{indent}if {message}.{fields.code}: add({message}.{fields.code})"
    for name, inner in fields.arrays:
        # An array is null in some versions.
        yield f"{indent}for item{depth} in {message}.{name} or ():"
        yield from _counting_of(inner, f"item{depth}", depth + 1)


class ErrorCounts:
    """The errors in the responses of one API."""

    __slots__ = ("_api", "_counts", "add_all_of")

    def __init__(self, api: str, kind: type[Message]) -> None:
        self._api = api
        self._counts: dict[int, int] = {}
        #: Counts the errors of a response.
        self.add_all_of = compile_counting(kind, self.add)

    def add(self, code: int) -> None:
        self._counts[code] = self._counts.get(code, 0) + 1

    def collect_samples(self) -> Iterator[Sample]:
        for code, count in list(self._counts.items()):
            yield ERRORS.sample(count, self._api, _name_of(code))


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
