"""The subject of a certificate as a distinguished name, in the form of Java's X500Principal.

ACLs and quotas that were written for Kafka contain these names, so they must match character for
character: RFC 2253, the last relative name first, values escaped, and attribute types without a
keyword of RFC 2253 (such as emailAddress) as their number with the encoded value in hexadecimal.
"""

from typing import Final, NamedTuple

from lograft.model.errors import InvalidInput

#: The attribute types with a keyword in RFC 2253.
KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
#: Context tag of the version, the first field of a certificate, which is optional.
VERSION: Final = 0xA0
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString.
#: As in Java, the bytes of all of them are read as UTF-8.
TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
ESCAPED: Final = frozenset(',=+<>#;"\\')
#: Fields of the certificate before the subject: serial number, algorithm, issuer, validity.
FIELDS_BEFORE_SUBJECT: Final = 4
#: Larger certificates cannot be mapped to a principal in reasonable time.
SUBJECT_BYTES_MAX: Final = 16 << 10


class _Element(NamedTuple):
    tag: int
    content: memoryview
    #: With tag and length.
    whole: memoryview
    rest: memoryview


def subject_of(certificate: bytes) -> str:
    """Returns the subject of a DER certificate. Raises InvalidInput if it cannot be read."""
    outer = _read(memoryview(certificate), SEQUENCE)
    fields = _read(outer.content, SEQUENCE).content
    if fields and fields[0] == VERSION:
        fields = _read(fields).rest
    for _ in range(FIELDS_BEFORE_SUBJECT):
        fields = _read(fields).rest
    return format_name(bytes(_read(fields, SEQUENCE).whole))


def format_name(name: bytes) -> str:
    """Returns a DER name as text."""
    if len(name) > SUBJECT_BYTES_MAX:
        raise InvalidInput("the subject of the certificate is too long")
    rest = _read(memoryview(name), SEQUENCE).content
    relative_names = []
    while rest:
        element = _read(rest, SET)
        rest = element.rest
        relative_names.append(_format_relative_name(element.content))
    return ",".join(reversed(relative_names))


def _format_relative_name(attributes: memoryview) -> str:
    texts = []
    while attributes:
        element = _read(attributes, SEQUENCE)
        attributes = element.rest
        kind = _read(element.content, OBJECT_IDENTIFIER)
        value = _read(kind.rest)
        texts.append(_format_attribute(_oid_text(kind.content), value))
    return "+".join(texts)


def _format_attribute(oid: str, value: _Element) -> str:
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escape(bytes(value.content).decode('utf-8', 'replace'))}"


def _escape(value: str) -> str:
    text = "".join(
        f"\\{character}" if character in ESCAPED else "\\00" if character == "\0" else character
        for character in value
    )
    # As in Java, spaces are escaped at the ends only, and carriage returns like them.
    without_start = text.lstrip(" \r")
    start = len(text) - len(without_start)
    middle = without_start.rstrip(" \r")
    end = text[start + len(middle) :]
    return "".join(
        (
            *(f"\\{character}" for character in text[:start]),
            middle,
            *(f"\\{character}" for character in end),
        )
    )


def _oid_text(content: memoryview) -> str:
    parts: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(number)
            number = 0
    if not parts:
        raise _make_error()
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))


def _read(data: memoryview, tag: int | None = None) -> _Element:
    """Returns the first element. Raises InvalidInput."""
    if len(data) < 2 or (tag is not None and data[0] != tag):
        raise _make_error()
    length, at = data[1], 2
    if length & 0x80:
        at += length & 0x7F
        if at > len(data) or not 1 <= at - 2 <= 4:
            raise _make_error()
        length = int.from_bytes(data[2:at], "big")
    end = at + length
    if end > len(data):
        raise _make_error()
    return _Element(data[0], data[at:end], data[:end], data[end:])


def _make_error() -> InvalidInput:
    return InvalidInput("the subject of the certificate is not valid DER")
