"""The GSSAPI mechanism (Kerberos, RFC 4752), for servers and for clients.

First the two sides exchange tokens until their security contexts are established. Then the server
offers a security layer in four bytes (a bit mask, and how much it can receive), and the client
selects one. As in Kafka, the only layer is none: TLS protects the connection.

The contexts are those of the Kerberos library, behind the protocol `SecurityContext`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from lograft.model.kerberos_names import NameRejected, Rule, shorten
from lograft.model.security_context import ContextFailed, SecurityContext
from lograft.security.sasl import MALFORMED, Challenge, Failure, Step, Success

#: The security layer "none", the only one that is offered and selected; nothing is received in it.
NO_LAYER: Final = bytes([1, 0, 0, 0])
LAYER_BYTES: Final = 4


class _State(Enum):
    CONTEXT = "context"
    #: The last token has been sent; the client replies with an empty message.
    OFFER = "offer"
    SELECTION = "selection"
    ENDED = "ended"


class GssapiExchange:
    """The server's side. `rules` shorten the name of the client to that of the user."""

    __slots__ = ("_context", "_default_realm", "_rules", "_state")

    def __init__(
        self, context: SecurityContext, rules: Sequence[Rule], *, default_realm: str
    ) -> None:
        self._context = context
        self._rules = rules
        self._default_realm = default_realm
        self._state = _State.CONTEXT

    def step(self, message: bytes) -> Step:
        try:
            step = self._take_step(message)
        except ContextFailed as error:
            step = Failure(reason=str(error))
        if not isinstance(step, Challenge):
            self._state = _State.ENDED
        return step

    def _take_step(self, message: bytes) -> Step:
        match self._state:
            case _State.CONTEXT:
                token = self._context.step(message)
                if not self._context.is_established:
                    return Challenge(token)
                if not token:
                    return self._offer_layer()
                self._state = _State.OFFER
                return Challenge(token)
            case _State.OFFER:
                if message:
                    return Failure(reason=MALFORMED, user=self._context.peer)
                return self._offer_layer()
            case _State.SELECTION:
                return self._read_selection(self._context.unwrap(message))
            case _State.ENDED:
                return Failure(reason="a message after the exchange has ended")

    def _offer_layer(self) -> Challenge:
        self._state = _State.SELECTION
        return Challenge(self._context.wrap(NO_LAYER))

    def _read_selection(self, selection: bytes) -> Step:
        name = self._context.peer
        if len(selection) < LAYER_BYTES:
            return Failure(reason=MALFORMED, user=name)
        if selection[0] != NO_LAYER[0]:
            return Failure(reason="the client selected a security layer", user=name)
        # An authorization id may follow. It is ignored, as in Kafka: some clients send the name of
        # the service, and the user is always the one that the ticket names.
        try:
            return Success(user=shorten(name, self._rules, self._default_realm))
        except NameRejected as error:
            return Failure(reason=str(error), user=name)
