"""Distinguished names and ssl.principal.mapping.rules, in the format of tools/PrincipalOracle.java.
These commands made the recorded sample:

    python -m tests.golden.principal_questions > tests/golden/principals/questions.txt
    java -cp ".cache/kafka/4.3.1/*" tools/PrincipalOracle.java \
        < tests/golden/principals/questions.txt > tests/golden/principals/answers.txt
"""

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Final

from lograft.model.errors import LograftError
from lograft.security.distinguished_names import format_name
from lograft.security.principal_rules import PrincipalRules

UTF8, PRINTABLE, IA5, T61, BMP, BITS = 0x0C, 0x13, 0x16, 0x14, 0x1E, 0x03
CN, O, OU, C, L, ST, DC, UID, STREET, EMAIL, SERIAL, GIVEN, TITLE = (  # noqa: E741
    "2.5.4.3", "2.5.4.10", "2.5.4.11", "2.5.4.6", "2.5.4.7", "2.5.4.8",
    "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1", "2.5.4.9",
    "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.42", "2.5.4.12",
)  # fmt: skip
Attribute = tuple[str, int, str]
#: Relative names, each with its attributes.
NAMES: Final[list[list[list[Attribute]]]] = [
    [],
    [[(C, PRINTABLE, "DE")], [(O, UTF8, "Example")], [(CN, UTF8, "alice")]],
    [[(CN, UTF8, "alice"), (UID, UTF8, "a1")], [(OU, PRINTABLE, "x"), (OU, PRINTABLE, "y")]],
    [[(DC, IA5, "org")], [(DC, IA5, "example")], [(L, UTF8, "Köln")], [(ST, UTF8, "NRW")]],
    [[(EMAIL, IA5, "a@example.org")], [(CN, UTF8, "mail")]],
    [[(SERIAL, PRINTABLE, "12")], [(GIVEN, UTF8, "A")], [(TITLE, UTF8, "t")]],
    [[(STREET, UTF8, "s")]],
    [[("1.3.6.1.4.1.99999.300.1", UTF8, "own")], [("2.999.3", UTF8, "large")]],
    [[(CN, UTF8, value)] for value in (
        "a,b", "a+b", 'a"b', "a\\b", "a<b>c;d", "a=b", "#a", "a#b", " a", "a ", "  a  ", " ", "  ",
        "", "a  b", "\ra\r", "a\0b", "a\tb", "a\nb", "日本語", "\U0001f600", "ü,ü",
        "a/b", "*", "A'b(c)",
    )],
    [[(CN, T61, "t61")], [(CN, BMP, "bmp")], [(CN, IA5, "ia5")], [(CN, BITS, "bits")]],
]  # fmt: skip
RULES: Final = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
    "RULE:CN=(.*?),.*/$1/L, RULE:.*O=(.*?)/x$1/\n DEFAULT",
    "RULE:^CN=([^,]+).*$/$1/,",
    "RULE:CN=a/$0!/",
    "RULE:CN=(a)/$1$2$12/,DEFAULT",
    "RULE:CN=(a)/$10-$2/",
    r"RULE:CN=(\w+)\/x/\$1/,DEFAULT",
    r"RULE:CN=(?<name>\w+),.*/$1/",
    "RULE:.*/x/",
    "RULE:(.*)/[$1]/",
    "RULE:^CN=b/missing",
    "nonsense,DEFAULT",
    "RULE:CN=(x*)y/$1/L extra",
    "RULE:^cn=(.*)$/$1/",
    "RULE:/x/",
)
MAPPED: Final = (
    "CN=kafka-server1,OU=KAFKA", "CN=Alice,OU=ServiceUsers,O=Org,L=City,ST=State,C=US", "CN=a",
    "CN=A.b,O=x", "O=Org", "CN=a/x", "CN=ü,OU=X", "CN=xxy", r"CN=a\,b,OU=ServiceUsers",
)  # fmt: skip


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def _oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    encoded = b""
    for number in (first * 40 + second, *rest):
        part = bytes([number & 0x7F])
        while number := number >> 7:
            part = bytes([number & 0x7F | 0x80]) + part
        encoded += part
    return _element(0x06, encoded)


def encode_name(name: list[list[Attribute]]) -> bytes:
    """Returns the name in DER."""
    return _element(
        0x30,
        b"".join(
            _element(
                0x31,
                b"".join(
                    _element(0x30, _oid(kind) + _element(tag, _encode_text(tag, value)))
                    for kind, tag, value in relative_name
                ),
            )
            for relative_name in name
        ),
    )


def _encode_text(tag: int, value: str) -> bytes:
    if tag == BMP:
        return value.encode("utf-16-be")
    return (b"\0" if tag == BITS else b"") + value.encode()


def make_questions() -> Iterator[str]:
    for name in NAMES:
        yield f"name {b64encode(encode_name(name)).decode()}"
    for rules in RULES:
        for mapped in MAPPED:
            words = (b64encode(text.encode()).decode() for text in (rules, mapped))
            yield " ".join(("map", *words))


def answer(question: str) -> str | None:
    """Returns Lograft's answer."""
    kind, *words = question.split(" ")
    values = [b64decode(word) for word in words]
    try:
        if kind == "name":
            return format_name(values[0])
        return PrincipalRules(values[0].decode()).name_of(values[1].decode())
    except LograftError:
        return None


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in make_questions())
