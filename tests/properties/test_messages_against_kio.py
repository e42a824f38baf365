"""kio, an independent implementation, must agree on every RPC: fields, bytes and values."""

import datetime
import io
from dataclasses import MISSING, fields
from pkgutil import resolve_name
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)
from kio.static.constants import EntityType

from lograft.model.types import ZERO_UUID
from lograft.wire import codec
from lograft.wire.apis import API_VERSIONS, request_class, response_class
from lograft.wire.message import FRESH, Field, Message
from tests.properties.random_messages import OWN_TAGS, RandomMessages

#: kio converts some numbers into other types; these are the types on the wire.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_class(key: int, direction: Any, version: int) -> Any:
    return resolve_name(schema_name_map[api_key_map[key]][version][direction])


def matched(ours: type[Message], kio: Any, version: int) -> list[tuple[Field, Any]]:
    """Returns pairs of Lograft's fields and kio's."""
    kafkas = (f for f in ours.FIELDS if f.is_in(version) and f.tag < OWN_TAGS)
    return list(zip(kafkas, fields(kio), strict=True))


def pairs(key: int) -> list[tuple[type[Message], Any, int]]:
    found = []
    for ours, direction in (
        (request_class(key), EntityType.request),
        (response_class(key), EntityType.response),
    ):
        first, last = ours.VERSIONS
        for version in range(first, last + 1):
            found.append((ours, kio_class(key, direction, version), version))
    return found


def to_kio(message: Message, kind: Any) -> Any:
    """Converts a message to kio's class for its version."""
    both = matched(type(message), kind, kind.__version__)
    return kind(**{t.name: value_to_kio(getattr(message, f.name), t) for f, t in both})


def value_to_kio(value: Any, field: Any) -> Any:
    shape = classify_field(field)
    match shape:
        case EntityField(kind):
            if value is None:
                is_tag = get_field_tag(field) is not None
                return get_tagged_field_default(field) if is_tag else None
            return to_kio(value, kind)
        case EntityTupleField(kind):
            return None if value is None else tuple(to_kio(item, kind) for item in value)
        case PrimitiveTupleField():
            if value is None:
                return None
            return tuple(scalar_to_kio(item, get_schema_field_type(field)) for item in value)
        case _:
            assert isinstance(shape, PrimitiveField)
            if value == ZERO_UUID and is_optional(field):
                return None
            return scalar_to_kio(value, get_schema_field_type(field), optional=is_optional(field))


def scalar_to_kio(value: Any, kafka_type: str, *, optional: bool = False) -> Any:
    if value is None:
        return None
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return None if optional and value == -1 else EPOCH + value * MILLISECOND
        case "uuid":
            return None if value == ZERO_UUID else value
        case _:
            return value


def assert_same_fields(ours: type[Message], kio: Any, version: int) -> None:
    for field, theirs in matched(ours, kio, version):
        where = (ours.__name__, version, field.name)
        assert plain(field.name) == plain(theirs.name), where
        shape = classify_field(theirs)
        tag = get_field_tag(theirs)
        assert (field.tag if field.is_tagged else None) == tag, where
        assert (field.kind == "array") == shape.is_array, where
        if isinstance(shape, EntityField | EntityTupleField):
            assert isinstance(field.element, type), where
            assert_same_fields(field.element, shape.type_, version)
        else:
            kafka_type = get_schema_field_type(theirs)
            kind = field.element if field.kind == "array" else field.kind
            assert kind == WIRE_TYPES.get(kafka_type, kafka_type), where
            # kio uses None for a missing UUID and the timestamp -1: not a null on the wire.
            if kafka_type not in ("uuid", "datetime_i64"):
                assert field.is_nullable_in(version) == is_optional(theirs), where
            assert_same_default(field.default, theirs, where)


def plain(name: str) -> str:
    """kio converts milliseconds to durations and drops the unit, and writes `id_`, `k_raft`."""
    return name.removesuffix("_ms").replace("_", "")


def assert_same_default(ours: Any, theirs: Any, where: object) -> None:
    if theirs.default is MISSING:
        return
    expected: Any = ()
    if ours is not FRESH:
        expected = scalar_to_kio(ours, get_schema_field_type(theirs), optional=is_optional(theirs))
    assert theirs.default == expected, where


def test_kio_has_the_same_apis_and_versions() -> None:
    assert set(api_key_map) == set(API_VERSIONS)
    for key, spec in API_VERSIONS.items():
        last = spec.unstable_version or spec.max_version
        versions = set(range(spec.min_version, last + 1))
        assert set(schema_name_map[api_key_map[key]]) == versions, spec.name
        assert request_class(key).VERSIONS == response_class(key).VERSIONS
        assert request_class(key).KEY == response_class(key).KEY == key


@pytest.mark.parametrize("key", API_VERSIONS, ids=lambda key: API_VERSIONS[key].name)
def test_fields_match_kio(key: int) -> None:
    for ours, kio, version in pairs(key):
        assert kio.__flexible__ == (version >= ours.FLEXIBLE_SINCE)
        assert_same_fields(ours, kio, version)


@pytest.mark.parametrize("key", API_VERSIONS, ids=lambda key: API_VERSIONS[key].name)
def test_bytes_and_values_match_kio(key: int) -> None:
    for ours, kio, version in pairs(key):
        write_kio, read_kio = entity_writer(kio), entity_reader(kio)
        for fullness in (0.0, 0.4, 0.8, 1.0):
            seed = f"{ours.__name__} {version} {fullness}"
            message = RandomMessages(seed, fullness=fullness).build(ours, version)
            twin = to_kio(message, kio)
            buffer = io.BytesIO()
            write_kio(buffer, twin)
            expected = buffer.getvalue()
            assert codec.write(message, version) == expected, (seed, message)
            assert codec.read(ours, version, expected) == (message, len(expected)), seed
            assert read_kio(expected, 0) == (twin, len(expected)), seed
