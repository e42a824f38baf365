"""Compiles a writer for one message class in one version: the counterpart of `read_compiler`.

A writer collects pieces in a list and joins them. Fixed-size fields, and the length that follows
them, are one `pack`. Record batches are not joined with the rest: the bytes before them become a
part, then they become one, so that files and large buffers are passed on without a copy.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct, pack
from typing import Any, Final, NoReturn

from lograft.model.seams import FileSlice
from lograft.wire.errors import UnwritableMessage
from lograft.wire.message import FRESH, Field, Message
from lograft.wire.read_compiler import FORMATS, SHORT_ARRAY
from lograft.wire.source_builder import SourceBuilder
from lograft.wire.varints import SMALL, uvarint

#: Record batches in memory below this size are joined with their neighbors: a copy is cheaper than
#: another part to send.
COPY_BYTES_MAX: Final = 4096

#: Fields for the elements of arrays of strings and bytes.
_ELEMENTS: Final = {"string": Field("string", ""), "bytes": Field("bytes", b"")}


def _reject_field(field: str, version: int) -> NoReturn:
    raise UnwritableMessage(f"{field} is set, but version {version} has no such field")


class WriteCompiler(SourceBuilder):
    """Used once, for one class and version."""

    def __init__(self, kind: type[Message], version: int) -> None:
        names = {
            "SMALL": SMALL,
            "uvarint": uvarint,
            "reject_field": _reject_field,
            "FileSlice": FileSlice,
        }
        super().__init__(kind, version, names)
        self._functions: list[str] = []
        #: The current fixed-size run. Format "x" is a zero byte and has no value.
        self._formats: list[str] = []
        self._values: list[str] = []

    def source(self) -> str:
        self._emit("out = []; w = out.append")
        self._struct(self._kind, "message")
        self._flush()
        self._emit("return b''.join(out)")
        return "\n".join([*self._functions, "def write(message, parts):", *self._lines])

    def compile(self) -> Callable[..., bytes]:
        return self._compile(self.source(), "write")

    def _write_fixed(self, form: str, value: str) -> None:
        self._formats.append(form)
        if form != "x":
            self._values.append(value)

    def _pack_expression(self, *more: str) -> str:
        """Returns an expression for the bytes of the run, with more (format, value) pairs
        appended."""
        formats = "".join([*self._formats, *more[::2]])
        values = [*self._values, *(value for value in more[1::2] if value)]
        if not values:
            return repr(b"\0" * len(formats))
        shape = self._name("pack")
        self._names[shape] = Struct(">" + formats).pack
        return f"{shape}({', '.join(values)})"

    def _flush(self) -> None:
        if self._formats == ["16s"]:
            self._emit(f"w({self._values[0]})")
        elif self._formats:
            self._emit(f"w({self._pack_expression()})")
        self._formats, self._values = [], []

    def _flush_with_uvarint(self, value: str) -> None:
        """Writes the run and a varint: in one pack if the varint has one byte."""
        if self._formats == ["16s"]:
            self._flush()
        if self._formats:
            short = self._pack_expression("B", value)
            self._emit(
                f"w({short} if {value} < 128 else {self._pack_expression()} + uvarint({value}))"
            )
        else:
            self._emit(f"w(SMALL[{value}] if {value} < 128 else uvarint({value}))")
        self._formats, self._values = [], []

    def _struct(self, kind: type[Message], source: str) -> None:
        version = self._version
        ordinary, tagged = [], []
        for field in kind.FIELDS:
            if not field.is_in(version):
                if not field.ignorable:
                    label = f"{kind.__name__}.{field.name}"
                    rejection = f"reject_field({label!r}, {version})"
                    self._emit(f"if {self._is_set(field, source)}: {rejection}")
            elif field.is_tagged:
                tagged.append(field)
            else:
                ordinary.append(field)
        at = 0
        while at < len(ordinary):
            stop = at
            while stop < len(ordinary) and self._fuses(ordinary[stop]):
                stop += 1
            if any(field.kind not in FORMATS for field in ordinary[at:stop]):
                at = self._often_plain(ordinary, at, stop, tagged, source)
                if at > len(ordinary):
                    return
            else:
                self._field(ordinary[at], f"{source}.{ordinary[at].name}")
                at += 1
        self._tags(tagged, source)

    def _fuses(self, field: Field) -> bool:
        """Returns whether the field can be part of a run: it has a fixed size, or it is usually
        empty or null (guessed from its type) and then has one."""
        if field.kind in FORMATS:
            return True
        if field.kind == "array":
            element = field.element
            return isinstance(element, type) and all(f.kind != "array" for f in element.FIELDS)
        return field.kind in ("string", "bytes") and field.is_nullable_in(self._version)

    def _often_plain(
        self, fields: list[Field], at: int, stop: int, tagged: list[Field], source: str
    ) -> int:
        """Writes fields[at:stop], and the length of a string or records after them, as a single run
        if all optional fields are absent, otherwise one by one. Returns the index of the next
        field; one past the last field means that the tags have been written too."""
        run = fields[at:stop]
        absent = [self._is_absent(field, source) for field in run if field.kind not in FORMATS]
        follower = fields[stop] if stop < len(fields) else None
        ends = follower is None
        if ends:
            absent += [f"not ({self._is_set(field, source)})" for field in tagged]
        body = size = ""
        if follower is not None and follower.kind in ("string", "bytes", "records"):
            body, size = self._measure(follower, f"{source}.{follower.name}")
        before = self._formats, self._values
        self._emit(f"if {' and '.join(absent)}:")
        self._depth += 1
        self._formats, self._values = list(before[0]), list(before[1])
        for field in run:
            self._plain(field, f"{source}.{field.name}")
        if ends and self._flexible:
            self._write_fixed("x", "")
        self._end_run(follower, size)
        self._emit("else:")
        self._depth += 1
        self._formats, self._values = list(before[0]), list(before[1])
        for field in run:
            self._field(field, f"{source}.{field.name}")
        if ends:
            self._tags(tagged, source)
        self._end_run(follower, size)
        if ends:
            return len(fields) + 1
        if follower is None or not size:
            return stop
        self._append(follower.kind, body, size)
        return stop + 1

    def _end_run(self, follower: Field | None, size: str) -> None:
        if follower is not None and size:
            self._length("h" if follower.kind == "string" else "i", size)
        self._flush()
        self._depth -= 1

    def _is_absent(self, field: Field, source: str) -> str:
        value = f"{source}.{field.name}"
        return f"not {value}" if field.kind == "array" else f"{value} is None"

    def _plain(self, field: Field, source: str) -> None:
        """Writes an absent field, or one of fixed size."""
        if field.kind in FORMATS:
            self._value(field.kind, source)
        elif field.kind == "array":
            empty = "1" if self._flexible else "0"
            null = "0" if self._flexible else "-1"
            if field.is_nullable_in(self._version):
                empty = f"{null} if {source} is None else {empty}"
            self._write_fixed("B" if self._flexible else "i", empty)
        elif self._flexible:
            self._write_fixed("x", "")
        else:
            self._write_fixed("h" if field.kind == "string" else "i", "-1")

    def _tags(self, tagged: list[Field], source: str) -> None:
        if not self._flexible:
            return
        if not tagged:
            self._write_fixed("x", "")
            return
        any_set = " or ".join(self._is_set(field, source) for field in tagged)
        function = self._tags_function(tagged)
        self._emit(f"if {any_set}:")
        if self._formats:
            self._emit(f"  w({self._pack_expression()})")
        self._emit(f"  w({function}({source}))")
        self._emit("else:")
        self._emit(f"  w({self._pack_expression('x', '')})")
        self._formats, self._values = [], []

    def _is_set(self, field: Field, source: str) -> str:
        """Returns an expression for whether the field differs from its default."""
        value = f"{source}.{field.name}"
        if field.kind == "struct":
            assert isinstance(field.element, type)
            is_nullable = field.nullable <= field.until
            if field.default is None and is_nullable:
                return f"{value} is not None"
            blank = self._name("blank")
            self._names[blank] = field.element()
            if is_nullable:
                return f"{value} != {blank}"
            return f"({value} is not None and {value} != {blank})"
        if field.default is FRESH:
            never_null = field.nullable > field.until
            return value if never_null and field.kind == "array" else f"{value} != []"
        if field.default is None:
            return f"{value} is not None"
        if field.kind in ("uuid", "records"):
            return f"{value} != {self._constant('default', field.default)}"
        return f"{value} != {field.default!r}"

    def _tags_function(self, fields: list[Field]) -> str:
        """Tagged fields of a struct are rare, so they are written by a separate function."""
        function = self._name("write_tags")
        saved = self._lines, self._depth, self._formats, self._values
        self._lines, self._depth, self._formats, self._values = [], 1, [], []
        self._emit("tags = []")
        for field in sorted(fields, key=lambda field: field.tag):
            self._emit(f"if {self._is_set(field, 'struct')}:")
            self._depth += 1
            if field.kind in FORMATS and field.kind != "uuid":
                shape = Struct(">" + FORMATS[field.kind])
                head = self._constant("tag", uvarint(field.tag) + uvarint(shape.size))
                pack_value = self._constant("pack", shape.pack)
                self._emit(f"tags.append({head} + {pack_value}(struct.{field.name}))")
                self._depth -= 1
                continue
            self._emit("out = []; w = out.append")
            self._field(field, f"struct.{field.name}")
            self._flush()
            self._emit("body = b''.join(out)")
            self._emit(f"tags.append(uvarint({field.tag}) + uvarint(len(body)) + body)")
            self._depth -= 1
        self._emit("return uvarint(len(tags)) + b''.join(tags)")
        self._functions += [f"def {function}(struct):", *self._lines]
        self._lines, self._depth, self._formats, self._values = saved
        return function

    def _field(self, field: Field, source: str) -> None:
        nullable = field.is_nullable_in(self._version)
        if field.kind == "array":
            assert field.element is not None
            self._array(field.element, source, nullable)
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            self._inner_struct(field.element, source, nullable, is_tagged=field.is_tagged)
        elif field.kind in FORMATS:
            self._value(field.kind, source)
        else:
            self._write_sized(field, source)

    def _inner_struct(
        self, kind: type[Message], source: str, nullable: bool, *, is_tagged: bool = False
    ) -> None:
        local = self._name("m")
        self._emit(f"{local} = {source}")
        if not nullable:
            self._struct(kind, local)
            return
        self._flush()
        # Null is -1, but 0 where the struct is tagged.
        null = b"\0" if is_tagged else b"\xff"
        self._emit(f"if {local} is None: w({null!r})")
        self._emit("else:")
        self._depth += 1
        self._write_fixed("b", "1")
        self._struct(kind, local)
        self._flush()
        self._depth -= 1

    def _length(self, wide: str, size: str) -> None:
        """Ends the run with a length; `size` is as encoded: one more if compact."""
        if self._flexible:
            self._flush_with_uvarint(size)
        else:
            self._write_fixed(wide, size)

    def _value(self, kind: str, source: str) -> None:
        """Writes a number or UUID."""
        if kind == "uuid":
            self._write_fixed("16s", f"{source}.int.to_bytes(16, 'big')")
        else:
            self._write_fixed(FORMATS[kind], source)

    def _write_sized(self, field: Field, source: str) -> None:
        """Writes a string, bytes or record batches."""
        body, size = self._measure(field, source)
        self._length("h" if field.kind == "string" else "i", size)
        self._flush()
        self._append(field.kind, body, size)

    def _measure(self, field: Field, source: str) -> tuple[str, str]:
        """Returns variables for the bytes of a sized value and for its encoded length."""
        body, size = self._name("s"), self._name("n")
        more = " + 1" if self._flexible else ""
        length = f"{size} = len({body}){more}"
        if field.kind == "string":
            length = f"{body} = {body}.encode(); {length}"
        elif field.kind == "records":
            length = f"{size} = ({body}.size if type({body}) is FileSlice else len({body})){more}"
        self._emit(f"{body} = {source}")
        if field.is_nullable_in(self._version):
            self._emit(f"if {body} is None: {body} = b''; {size} = {0 if self._flexible else -1}")
            self._emit(f"else: {length}")
        else:
            self._emit(length)
        return body, size

    def _append(self, kind: str, body: str, size: str) -> None:
        if kind != "records":
            self._emit(f"w({body})")
            return
        self._emit(f"if {size} > {COPY_BYTES_MAX} or type({body}) is FileSlice:")
        self._emit(f"  parts.append(b''.join(out)); out.clear(); parts.append({body})")
        self._emit(f"else: w({body})")

    def _array(self, element: "str | type[Message]", source: str, nullable: bool) -> None:
        items, count = self._name("items"), self._name("n")
        extra = " + 1" if self._flexible else ""
        self._emit(f"{items} = {source}")
        if nullable:
            null = 0 if self._flexible else -1
            self._emit(f"if {items} is None: {items} = (); {count} = {null}")
            self._emit(f"else: {count} = len({items}){extra}")
        else:
            self._emit(f"{count} = len({items}){extra}")
        self._length("i", count)
        self._flush()
        if isinstance(element, str) and element in FORMATS:
            if element == "uuid":
                self._emit(f"w(b''.join([u.int.to_bytes(16, 'big') for u in {items}]))")
            else:
                write = self._constant(f"write_{element}", _number_writer(element))
                self._emit(f"if {items}: w({write}({items}))")
            return
        item = self._name("m")
        self._emit(f"for {item} in {items}:")
        self._depth += 1
        if isinstance(element, type):
            self._struct(element, item)
        else:
            self._write_sized(_ELEMENTS[element], item)
        self._flush()
        self._depth -= 1


@cache
def _number_writer(kind: str) -> Callable[[list[Any]], bytes]:
    form = FORMATS[kind]
    short = [Struct(f">{count}{form}").pack for count in range(SHORT_ARRAY)]

    def write_numbers(numbers: list[Any]) -> bytes:
        count = len(numbers)
        if count < SHORT_ARRAY:
            return short[count](*numbers)
        return pack(f">{count}{form}", *numbers)

    return write_numbers
