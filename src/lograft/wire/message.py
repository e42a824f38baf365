"""The base class of all messages, and the descriptors that declare their fields.

    class FetchTopic(Message):
        topic: str = string(until=12, ignorable=True)
        topic_id: UUID = uuid(since=13, ignorable=True)

One class is used for every version: a field that a version does not have keeps its default. Type
checkers see keyword-only dataclasses; at run time a class has only slots and a tuple of Field
descriptors, and its constructor is compiled on its first call, so that importing a module of
messages takes microseconds.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, TypeAlias, dataclass_transform

from lograft.model.seams import Buffer, FileSlice
from lograft.model.types import ZERO_UUID

#: The value of a `records` field: opaque record batches, in memory or in a file.
Records: TypeAlias = Buffer | FileSlice

LATEST: Final = 0x7FFF
#: `nullable` of a field that is never null.
NEVER: Final = LATEST + 1

Kind: TypeAlias = Literal[
    "bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid",
    "string", "bytes", "records", "array", "struct",
]  # fmt: skip


class _Fresh:
    """The default of a list or struct: a new, empty one for every message."""

    def __repr__(self) -> str:
        return "FRESH"


FRESH: Final = _Fresh()


#: Tags from this number on are Lograft's own.
OWN_TAGS_SINCE: Final = 10_000


class Field:
    """One field of a message: its type and the versions in which it exists or may be null."""

    __slots__ = (
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "nullable_until",
        "since",
        "tag",
        "until",
    )

    def __init__(
        self,
        kind: Kind,
        default: Any,
        element: "Kind | type[Message] | None" = None,
        *,
        since: int = 0,
        until: int = LATEST,
        nullable: int = NEVER,
        nullable_until: int = LATEST,
        tag: int = -1,
        ignorable: bool = False,
    ) -> None:
        self.name = ""
        self.kind: Kind = kind
        #: Value of a field that was not given, or that the version does not have.
        self.default = default
        #: Of an array: the type of its elements. Of a struct: its class.
        self.element = element
        self.since = since
        self.until = until
        self.nullable = nullable
        self.nullable_until = nullable_until
        #: Number of a tagged field, or -1. A field is tagged in all its versions or in none.
        self.tag = tag
        #: Whether a value may be dropped silently in a version without the field.
        self.ignorable = ignorable

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable <= version <= self.nullable_until

    @property
    def is_tagged(self) -> bool:
        return self.tag >= 0

    def new_default(self) -> Any:
        if self.default is not FRESH:
            return self.default
        if self.kind == "array":
            return []
        assert isinstance(self.element, type)
        return self.element()


def _scalar(kind: Kind, zero: object) -> Callable[..., Any]:
    def declare(default: Any = zero, **where: Any) -> Any:
        return Field(kind, default, **where)

    return declare


boolean: Final = _scalar("bool", False)
int8: Final = _scalar("int8", 0)
int16: Final = _scalar("int16", 0)
uint16: Final = _scalar("uint16", 0)
int32: Final = _scalar("int32", 0)
uint32: Final = _scalar("uint32", 0)
int64: Final = _scalar("int64", 0)
float64: Final = _scalar("float64", 0.0)
uuid: Final = _scalar("uuid", ZERO_UUID)
string: Final = _scalar("string", "")
binary: Final = _scalar("bytes", b"")
record_batches: Final = _scalar("records", b"")


def array(element: "Kind | type[Message]", default: Any = FRESH, **where: Any) -> Any:
    return Field("array", default, element, **where)


def struct(element: "type[Message]", default: Any = FRESH, **where: Any) -> Any:
    """A tagged struct has the default None, which means that the tag is absent. (In Kafka that is
    the struct with all its defaults; both are encoded the same.) If it is nullable, null is encoded
    as a tag, and an absent tag means the struct with all its defaults."""
    return Field("struct", default, element, **where)


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Converts the Field descriptors of a class body into slots and the tuple FIELDS."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int = -1,
        versions: tuple[int, int] = (0, LATEST),
        flexible: int = NEVER,
    ) -> "MessageType":
        fields = []
        for field_name, field in tuple(namespace.items()):
            if type(field) is Field:
                field.name = field_name
                fields.append(field)
                del namespace[field_name]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        namespace["KEY"] = key
        namespace["VERSIONS"] = versions
        namespace["FLEXIBLE_SINCE"] = flexible
        namespace["READERS"] = {}
        namespace["WRITERS"] = {}
        return super().__new__(mcs, name, bases, namespace)


class Message(metaclass=MessageType):
    """Base class of all messages. Equality is by value; messages are mutable and not hashable."""

    FIELDS: ClassVar[tuple[Field, ...]]
    #: API key of a request or response, type number of a record; -1 for a struct inside another.
    KEY: ClassVar[int]
    #: First and last existing version.
    VERSIONS: ClassVar[tuple[int, int]]
    #: First version with compact lengths and tagged fields.
    FLEXIBLE_SINCE: ClassVar[int]
    #: Compiled by `codec` on first use, by version.
    READERS: ClassVar[dict[int, Callable[..., Any]]]
    WRITERS: ClassVar[dict[int, Callable[..., Any]]]

    def __init__(self, **values: Any) -> None:
        kind = type(self)
        kind.__init__ = _compile_constructor(kind)  # type: ignore[method-assign]
        kind.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Shows only the fields that differ from their defaults: most do not."""
        values = (
            f"{field.name}={value!r}"
            for field in self.FIELDS
            if (value := getattr(self, field.name)) != field.new_default()
        )
        return f"{type(self).__name__}({', '.join(values)})"


def has_own_tags(message: Message) -> bool:
    """Returns whether the message has a value in a tag of Lograft's own: other servers would ignore
    the tag and execute the rest of the request."""
    return any(
        field.tag is not None
        and field.tag >= OWN_TAGS_SINCE
        and getattr(message, field.name) != field.new_default()
        for field in message.FIELDS
    )


def _compile_constructor(kind: type[Message]) -> Callable[..., None]:
    names: dict[str, Any] = {"FRESH": FRESH}
    parameters, lines = ["self"], []
    if kind.FIELDS:
        parameters.append("*")
    for field in kind.FIELDS:
        name = field.name
        names[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}")
        value = name
        if field.default is FRESH:
            names[f"new_{name}"] = list if field.kind == "array" else field.element
            value = f"new_{name}() if {name} is FRESH else {name}"
        lines.append(f"    self.{name} = {value}\n")
    source = f"def __init__({', '.join(parameters)}):\n{''.join(lines) or '    pass'}"
    exec(compile(source, f"<{kind.__name__}.__init__>", "exec"), names)
    constructor: Callable[..., None] = names["__init__"]
    return constructor
