"""Random messages of any class and version, for the tests of the codec and the fuzzer."""

import random
from uuid import UUID

from lograft.model.errors import ErrorCode
from lograft.wire.message import FRESH, Field, Message

_ERROR_CODES = [int(code) for code in ErrorCode]
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: Tags from this number on are Lograft's own.
OWN_TAGS = 10_000
_TEXTS = ("", "a", "topic-7", "grün", "日本", "x" * 126, "y" * 127, "z" * 128, "w" * 300)


class RandomMessages:
    """`fullness` is the probability that an array has elements, a nullable is not null, a tag is
    set. `own_fields`: includes fields that Kafka does not have."""

    def __init__(self, seed: int | str, *, fullness: float, own_fields: bool = False) -> None:
        self.chance = random.Random(seed)
        self._fullness = fullness
        self._own_fields = own_fields

    def build(self, kind: type[Message], version: int) -> Message:
        values = {}
        for field in kind.FIELDS:
            if not field.is_in(version) or (field.tag >= OWN_TAGS and not self._own_fields):
                continue
            if field.is_tagged and not self._is_full():
                continue
            values[field.name] = self._field(field, version)
        return kind(**values)

    def _is_full(self) -> bool:
        return self.chance.random() < self._fullness

    def _field(self, field: Field, version: int) -> object:
        if field.is_nullable_in(version) and not self._is_full():
            return None
        element = field.element
        if field.kind == "array":
            assert element is not None
            count = self.chance.randint(1, 3) if self._is_full() else 0
            if isinstance(element, str):
                count *= self.chance.choice((1, 1, 20))
                return [self.scalar(element, field.name) for _ in range(count)]
            return [self.build(element, version) for _ in range(count)]
        if field.kind == "struct":
            assert isinstance(element, type)
            value = self.build(element, version)
            # A tagged struct of defaults is not written, so it would be read as None.
            hidden = field.is_tagged and value == element()
            return field.default if hidden and field.default is not FRESH else value
        return self.scalar(field.kind, field.name)

    def scalar(self, kind: str, name: str) -> object:
        """Returns a value for a field of that type; the fuzzer has better ones for some names."""
        chance = self.chance
        if kind == "bool":
            return chance.random() < 0.5
        if name.endswith("error_code"):
            return chance.choice(_ERROR_CODES)
        if kind == "int64" and ("time" in name or name.endswith("_ms")):
            return chance.choice((0, chance.randrange(1 << 40)))
        if kind in _BITS:
            top = 1 << _BITS[kind] - 1
            return chance.choice((-top, -1, 0, 1, top - 1, chance.randrange(-top, top)))
        if kind == "uint16":
            return chance.choice((0, 0xFFFF, chance.randrange(1 << 16)))
        if kind == "uint32":
            return chance.choice((0, 0xFFFFFFFF, chance.randrange(1 << 32)))
        if kind == "float64":
            return chance.uniform(-1e9, 1e9)
        if kind == "uuid":
            return UUID(int=chance.choice((0, 1, chance.getrandbits(128))))
        if kind == "string":
            return chance.choice(_TEXTS)
        assert kind in ("bytes", "records"), kind
        return chance.randbytes(chance.choice((0, 1, 126, 127, 128, 200)))
