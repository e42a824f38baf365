"""SASL exchanges of a server: what every mechanism has in common.

An exchange gets the messages of one client, in order, and returns a step for each:

    Challenge ... Challenge, then Success or Failure; nothing may follow either of these.

Exchanges perform no I/O. They get the credentials that they compare with as functions.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The client has authenticated."""

    #: The last message of the server.
    message: bytes = b""
    #: The verified name, without the type of the principal.
    user: str
    #: When the credential expires, in wall clock time; None: never.
    expires_at_ms: int | None = None
    #: The delegation token of the user with which the client has authenticated.
    token_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The client has not authenticated. Never contains a secret."""

    #: For the security log of the node.
    reason: str
    #: The user that the client claimed to be, as far as it is known.
    user: str = ""
    #: For the client; None for the general message. Must not depend on whether the user exists.
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """The next message of the server; the client has to continue."""

    message: bytes
    #: The message reports this failure, and the client only acknowledges it. Logged even if the
    #: client closes the connection instead.
    failure: Failure | None = None


Step: TypeAlias = Challenge | Success | Failure


class Exchange(Protocol):
    def step(self, message: bytes) -> Step:
        """Returns the server's response to a message of the client. Never raises."""


class RejectingExchange:
    """Rejects a login whatever the client sends."""

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def step(self, message: bytes) -> Failure:
        return Failure(reason=self._reason)


MALFORMED: str = "malformed message"
#: Kafka's message for an authorization id that is not the name of the user.
OTHER_AUTHORIZATION_ID: str = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
