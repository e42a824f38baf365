"""Encodes principals as bytes, in which form a broker sends a client's principal to the controller.

The format is that of Kafka's default principal builder: a version, then type, name and whether the
client authenticated with a delegation token.
"""

from struct import Struct
from typing import Final, NamedTuple

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


class ForwardedPrincipal(NamedTuple):
    #: As in an ACL: "User:alice".
    name: str
    #: The client has authenticated with a delegation token.
    with_token: bool


def encode_principal(principal: str, *, with_token: bool = False) -> bytes:
    """`principal` as in an ACL: "User:alice"."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=with_token)
    return _VERSION.pack(CURRENT_VERSION) + write(data, CURRENT_VERSION)


def decode_principal(data: bytes) -> ForwardedPrincipal:
    if len(data) < _VERSION.size:
        raise InvalidInput("The principal of the forwarded request is empty.")
    (version,) = _VERSION.unpack_from(data)
    if version != CURRENT_VERSION:
        raise InvalidInput(
            f"The principal of the forwarded request has version {version}, but only version"
            f" {CURRENT_VERSION} is supported."
        )
    try:
        principal = read_all(DefaultPrincipalData, version, data, _VERSION.size)
    except WireError as error:
        raise InvalidInput(f"The principal of the forwarded request is invalid: {error}") from None
    if not principal.type:
        raise InvalidInput("The principal of the forwarded request has no type.")
    return ForwardedPrincipal(f"{principal.type}:{principal.name}", principal.token_authenticated)
