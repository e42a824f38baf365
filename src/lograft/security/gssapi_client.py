"""The GSSAPI mechanism of a client (Kerberos, RFC 4752)."""

from typing import Final

from lograft.model.security_context import ContextFailed, SecurityContext
from lograft.security.client_sasl import ClientStep, Finished, Rejected
from lograft.security.gssapi import LAYER_BYTES, NO_LAYER

ADVICE: Final = "check the principal, the keytab and sasl.kerberos.service.name"


class GssapiClientExchange:
    __slots__ = ("_context", "_first_token", "_has_selected")

    def __init__(self, context: SecurityContext, first_token: bytes) -> None:
        """`first_token` is the context's: to make it, the library may ask a key distribution
        center."""
        self._context = context
        self._first_token = first_token
        self._has_selected = False

    def start(self) -> bytes:
        return self._first_token

    def step(self, challenge: bytes) -> ClientStep:
        if self._has_selected:
            if challenge:
                return Rejected("the server sent a message after the exchange has ended")
            return Finished()
        try:
            if not self._context.is_established:
                return self._context.step(challenge)
            offer = self._context.unwrap(challenge)
            if len(offer) != LAYER_BYTES:
                return Rejected("the server's offer of security layers is malformed")
            if not offer[0] & NO_LAYER[0]:
                return Rejected(
                    "the server requires a security layer of Kerberos, which is not supported",
                    "use SASL_SSL to encrypt the connection",
                )
            self._has_selected = True
            return self._context.wrap(NO_LAYER)
        except ContextFailed as error:
            return Rejected(str(error), ADVICE)
