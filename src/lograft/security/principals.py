"""Who asks, as bytes: the form in which a broker hands a client's principal to the controller.

Kafka's default principal builder writes the same: a version, then type, name and whether a
delegation token was the proof.
"""

from struct import Struct
from typing import Final

from lograft.model.errors import InvalidInput
from lograft.wire.codec import read_all, write
from lograft.wire.errors import WireError
from lograft.wire.message import Message, boolean, string

_VERSION: Final = Struct(">h")
CURRENT_VERSION: Final = 0


class DefaultPrincipalData(Message, versions=(0, 0), flexible=0):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


def encode_principal(principal: str) -> bytes:
    """`principal` as in an ACL: "User:alice"."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name)
    return _VERSION.pack(CURRENT_VERSION) + write(data, CURRENT_VERSION)


def decode_principal(data: bytes) -> str:
    if len(data) < _VERSION.size:
        raise InvalidInput("a principal of no bytes")
    (version,) = _VERSION.unpack_from(data)
    if version != CURRENT_VERSION:
        raise InvalidInput(f"a principal in version {version}; only {CURRENT_VERSION} is known")
    try:
        found = read_all(DefaultPrincipalData, version, data, _VERSION.size)
    except WireError as error:
        raise InvalidInput(f"not a principal: {error}") from None
    if not found.type:
        raise InvalidInput("a principal without a type")
    return f"{found.type}:{found.name}"
