import pytest

from lograft.security.strict_json import CONTAINERS_MAX, parse_object


def test_an_object() -> None:
    assert parse_object(b'{"a":[1,{"b":null}],"c":"\\u00e4"}') == {"a": [1, {"b": None}], "c": "ä"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"x":{"a":1,"b":2,"a":1}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":' + b"9" * 5000 + b"}",
        b"[]",
        b'"a"',
        b"",
        b'{"a":1}x',
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 300,
        b'{"a":[' + b"[]," * CONTAINERS_MAX + b"1]}",
        b'{"a":' * 100_000,
    ],
)
def test_what_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^the JSON "):
        parse_object(data)
