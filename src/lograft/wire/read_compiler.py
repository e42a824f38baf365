"""Compiles a reader for one message class in one version.

The generated code is what one would write by hand: a run of fixed-size fields, with the length byte
or bytes that follow it, is one `unpack_from` directly into the attributes; nested structs are read
in place.

Bounds. Every read of a fixed-size run or of a varint fails at the end of the input. Slices do not,
but the position only increases, so one comparison at the end of the message detects truncation.
Counts are compared with the remaining bytes before a list is filled, and all elements of a message
together may not exceed ELEMENTS_MAX.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct, unpack_from
from typing import Any, Final, NoReturn

from lograft.model.seams import Buffer
from lograft.wire.errors import MalformedMessage
from lograft.wire.message import FRESH, Field, Message
from lograft.wire.source_builder import SourceBuilder
from lograft.wire.varints import UUIDS, continue_uvarint, read_uvarint, skip_tags

#: Elements of all arrays of one request. A slotted object needs up to fifty times the bytes from
#: which it is read, and its handler some microseconds: the remaining bytes are not a sufficient
#: limit.
ELEMENTS_MAX: Final = 1 << 17
#: Responses are sent by nodes that this node has chosen, and may describe a whole cluster.
RESPONSE_ELEMENTS_MAX: Final = 1 << 22

FORMATS: Final = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "float64": "d", "uuid": "16s",
}  # fmt: skip
#: Arrays of numbers up to this length have their own compiled struct.
SHORT_ARRAY: Final = 32


def _reject_null(field: str) -> NoReturn:
    raise MalformedMessage(f"{field} is null")


def _reject_count(field: str, count: int, left: int) -> NoReturn:
    raise MalformedMessage(f"{field} has an invalid count: {count}, with {left} bytes remaining")


def _reject_tag(kind: str, tag: int) -> NoReturn:
    raise MalformedMessage(f"tagged field {tag} of {kind} is out of order or has the wrong size")


def _reject_end(kind: str) -> NoReturn:
    raise MalformedMessage(f"{kind} is truncated")


def smallest(kind: object, version: int, flexible: bool, nullable: bool = False) -> int:
    """Returns the minimum number of bytes of a value."""
    if isinstance(kind, str):
        if kind in FORMATS:
            return Struct(">" + FORMATS[kind]).size
        return 1 if flexible else 2 if kind == "string" else 4
    if nullable:
        return 1
    assert isinstance(kind, type)
    assert issubclass(kind, Message)
    size = 1 if flexible else 0
    for field in kind.FIELDS:
        if field.is_in(version) and not field.is_tagged:
            element = field.element if field.kind == "struct" else field.kind
            size += smallest(element, version, flexible, field.is_nullable_in(version))
    return size


def has_records(kind: type[Message]) -> bool:
    """Returns whether the message has a field of record batches, also in nested structs."""
    return any(
        field.kind == "records" or (isinstance(field.element, type) and has_records(field.element))
        for field in kind.FIELDS
    )


class ReadCompiler(SourceBuilder):
    """Used once, for one class and version."""

    def __init__(self, kind: type[Message], version: int) -> None:
        names = {
            "new": object.__new__,
            "uuids": UUIDS,
            "continue_uvarint": continue_uvarint,
            "read_uvarint": read_uvarint,
            "skip_tags": _skip_tags,
            "tag_count": _tag_count,
            "reject_null": _reject_null,
            "reject_count": _reject_count,
            "reject_tag": _reject_tag,
            "reject_end": _reject_end,
        }
        super().__init__(kind, version, names)
        #: Record batches are returned as views of the input; without them, bytes are faster to
        #: read.
        self._view = has_records(kind)
        #: The current fixed-size run: formats, targets, and the code after it.
        self._formats: list[str] = []
        self._targets: list[str] = []
        self._after: list[str] = []

    def source(self) -> str:
        kind = self._kind
        wanted = "memoryview" if self._view else "bytes"
        self._emit(f"if type(data) is not {wanted}: data = {wanted}(data)")
        self._emit("end = len(data)")
        is_response = kind.__name__.endswith("Response")
        self._emit(f"budget = {RESPONSE_ELEMENTS_MAX if is_response else ELEMENTS_MAX}")
        self._struct(kind, "message")
        self._flush()
        self._emit(f"if position > end: reject_end({kind.__name__!r})")
        self._emit("return message, position")
        return "def read(data, position):\n" + "\n".join(self._lines)

    def compile(self) -> Callable[..., Any]:
        return self._compile(self.source(), "read")

    def _read_fixed(self, form: str, target: str, after: str = "") -> None:
        self._formats.append(form)
        self._targets.append(target)
        if after:
            self._after.append(after)

    def _flush(self) -> None:
        if not self._formats:
            return
        if self._formats == ["B"]:
            self._emit(f"{self._targets[0]} = data[position]; position += 1")
        else:
            shape = Struct(">" + "".join(self._formats))
            unpack = self._name("unpack")
            self._names[unpack] = shape.unpack_from
            self._emit(f"{', '.join(self._targets)}, = {unpack}(data, position)")
            self._emit(f"position += {shape.size}")
        for line in self._after:
            self._emit(line)
        self._formats, self._targets, self._after = [], [], []

    def _struct(self, kind: type[Message], target: str) -> None:
        self._emit(f"{target} = new({self._constant('kind', kind)})")
        tagged = []
        for field in kind.FIELDS:
            attribute = f"{target}.{field.name}"
            if field.is_in(self._version) and not field.is_tagged:
                self._field(kind, field, attribute)
                continue
            self._emit(f"{attribute} = {self._default(field)}")
            if field.is_in(self._version):
                tagged.append(field)
        if not self._flexible:
            return
        count = self._name("tags")
        self._read_fixed("B", count)
        self._flush()
        if tagged:
            self._emit(f"if {count}:")
            self._depth += 1
            self._tags(kind, tagged, target, count)
            self._depth -= 1
        else:
            self._emit(f"if {count}: position = skip_tags(data, position, end, {count})")

    def _default(self, field: Field) -> str:
        if field.default is FRESH:
            if field.kind == "array":
                return "[]"
            assert isinstance(field.element, type)
            return f"{self._constant('kind', field.element)}()"
        if isinstance(field.default, int | float | str | bytes | None):
            return repr(field.default)
        return self._constant("default", field.default)

    def _field(self, kind: type[Message], field: Field, target: str) -> None:
        label = f"{kind.__name__}.{field.name}"
        nullable = field.is_nullable_in(self._version)
        if field.kind == "array":
            assert field.element is not None
            self._array(field.element, target, label, nullable)
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            self._inner_struct(field.element, target, nullable, is_tagged=field.is_tagged)
        else:
            self._value(field.kind, target, label, nullable)

    def _inner_struct(
        self, kind: type[Message], target: str, nullable: bool, *, is_tagged: bool = False
    ) -> None:
        local = self._name("m")
        if not nullable:
            self._struct(kind, local)
            self._emit(f"{target} = {local}")
            return
        presence = self._name("there")
        self._read_fixed("b", presence)
        self._flush()
        # Null is -1, but 0 where the struct is tagged.
        self._emit(f"if {presence} < {1 if is_tagged else 0}: {target} = None")
        self._emit("else:")
        self._depth += 1
        self._struct(kind, local)
        self._flush()
        self._emit(f"{target} = {local}")
        self._depth -= 1

    def _length(self, wide: str, label: str, nullable: bool) -> tuple[str, str]:
        """Reads a length; returns its variable and the condition for null. A compact length is kept
        as encoded: one more than the length, 0 for null."""
        size = self._name("n")
        if self._flexible:
            self._read_fixed("B", size)
            self._flush()
            grow = f"{size}, position = continue_uvarint(data, position, {size})"
            self._emit(f"if {size} > 127: {grow}")
            null = f"not {size}"
        else:
            self._read_fixed(wide, size)
            self._flush()
            null = f"{size} < 0"
        if not nullable:
            self._emit(f"if {null}: reject_null({label!r})")
        return size, null

    def _value(self, kind: str, target: str, label: str, nullable: bool) -> None:
        """Reads a number, UUID, string or bytes."""
        if kind == "uuid":
            raw = self._name("u")
            self._read_fixed("16s", raw, f"{target} = uuids[{raw}]")
            return
        if kind in FORMATS:
            self._read_fixed(FORMATS[kind], target)
            return
        size, null = self._length("h" if kind == "string" else "i", label, nullable)
        if nullable:
            self._emit(f"if {null}: {target} = None")
            self._emit("else:")
            self._depth += 1
        stop = self._name("stop")
        self._emit(f"{stop} = position + {size}" + (" - 1" if self._flexible else ""))
        taken = f"data[position:{stop}]"
        if kind == "string":
            taken = f"str({taken}, 'utf-8')" if self._view else f"{taken}.decode()"
        elif kind == "bytes" and self._view:
            taken = f"bytes({taken})"
        self._emit(f"{target} = {taken}; position = {stop}")
        if nullable:
            self._depth -= 1

    def _array(
        self, element: "str | type[Message]", target: str, label: str, nullable: bool
    ) -> None:
        count, null = self._length("i", label, nullable)
        if nullable:
            self._emit(f"if {null}: {target} = None")
            self._emit("else:")
            self._depth += 1
        if self._flexible:
            self._emit(f"{count} -= 1")
        least = smallest(element, self._version, self._flexible)
        assert least > 0, f"elements of {label} take no bytes: their count could not be bounded"
        too_many = f"{count} * {least} > end - position or {count} > budget"
        self._emit(f"if {too_many}: reject_count({label!r}, {count}, end - position)")
        self._emit(f"budget -= {count}")
        if isinstance(element, str) and element in FORMATS:
            self._numbers(element, target, count)
        else:
            items = self._name("items")
            self._emit(f"{target} = {items} = []")
            self._emit(f"for _ in range({count}):")
            self._depth += 1
            item = self._name("m")
            if isinstance(element, type):
                self._struct(element, item)
            else:
                self._value(element, item, label, nullable=False)
            self._flush()
            self._emit(f"{items}.append({item})")
            self._depth -= 1
        if nullable:
            self._depth -= 1

    def _numbers(self, kind: str, target: str, count: str) -> None:
        size = Struct(">" + FORMATS[kind]).size
        if kind == "uuid":
            where = f"range(position, position + 16 * {count}, 16)"
            self._emit(f"{target} = [uuids[bytes(data[at : at + 16])] for at in {where}]")
        else:
            unpack = self._constant(f"unpack_{kind}", _number_reader(kind))
            self._emit(f"{target} = {unpack}(data, position, {count})")
        self._emit(f"position += {size} * {count}")

    def _tags(self, kind: type[Message], fields: list[Field], target: str, count: str) -> None:
        """Reads tagged fields, which are in ascending order; skips unknown ones."""
        tag, size, stop, last = (self._name(part) for part in ("tag", "size", "stop", "last"))
        self._emit(f"{count}, position = tag_count(data, position, end, {count})")
        self._emit(f"{last} = -1")
        self._emit(f"for _ in range({count}):")
        self._depth += 1
        self._emit(f"{tag}, position = read_uvarint(data, position)")
        self._emit(f"{size}, position = read_uvarint(data, position)")
        self._emit(f"{stop} = position + {size}")
        rejection = f"reject_tag({kind.__name__!r}, {tag})"
        self._emit(f"if {tag} <= {last} or {stop} > end: {rejection}")
        self._emit(f"{last} = {tag}")
        branch = "if"
        for field in fields:
            self._emit(f"{branch} {tag} == {field.tag}:")
            branch = "elif"
            self._depth += 1
            self._field(kind, field, f"{target}.{field.name}")
            self._flush()
            self._depth -= 1
        self._emit(f"else: position = {stop}")
        self._emit(f"if position != {stop}: {rejection}")
        self._depth -= 1


def _tag_count(data: Buffer, position: int, end: int, first: int) -> tuple[int, int]:
    """Returns the count of tagged fields whose first byte is known; each needs at least two
    bytes."""
    if first > 127:
        first, position = continue_uvarint(data, position, first)
    if first > (end - position) // 2:
        raise MalformedMessage(f"{first} tagged fields in {end - position} bytes")
    return first, position


def _skip_tags(data: Buffer, position: int, end: int, first: int) -> int:
    count, position = _tag_count(data, position, end, first)
    return skip_tags(data, position, end, count)


@cache
def _number_reader(kind: str) -> Callable[[Buffer, int, int], list[Any]]:
    form = FORMATS[kind]
    short = [Struct(f">{count}{form}").unpack_from for count in range(SHORT_ARRAY)]

    def read_numbers(data: Buffer, position: int, count: int) -> list[Any]:
        if count < SHORT_ARRAY:
            return list(short[count](data, position))
        return list(unpack_from(f">{count}{form}", data, position))

    return read_numbers
