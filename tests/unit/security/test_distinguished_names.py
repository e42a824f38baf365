"""Names are compared with Java in tests/golden/test_kafka_principals.py."""

import random

import pytest

from lograft.model.errors import InvalidInput
from lograft.security.distinguished_names import SUBJECT_BYTES_MAX, format_name, subject_of
from tests.golden.principal_questions import NAMES, encode_name


def test_damaged_names_are_rejected() -> None:
    whole = encode_name(NAMES[1])
    for size in range(len(whole)):
        with pytest.raises(InvalidInput):
            format_name(whole[:size])
    with pytest.raises(InvalidInput, match="too long"):
        format_name(bytes(SUBJECT_BYTES_MAX + 1))
    source = random.Random(1)
    for _ in range(2_000):
        damaged = bytearray(whole)
        damaged[source.randrange(len(damaged))] = source.randrange(256)
        try:
            format_name(bytes(damaged))
        except InvalidInput:
            pass


def test_a_certificate_without_a_version_has_a_subject() -> None:
    def element(tag: int, content: bytes) -> bytes:
        return bytes([tag, 0x81, len(content)]) + content

    name = encode_name(NAMES[1])
    fields = element(0x02, b"\1") + 3 * element(0x30, b"") + name
    assert subject_of(element(0x30, element(0x30, fields))) == "CN=alice,O=Example,C=DE"
    version = element(0xA0, b"\2\1\2")
    assert subject_of(element(0x30, element(0x30, version + fields))).startswith("CN=alice")
    with pytest.raises(InvalidInput):
        subject_of(b"")
