"""One side of a Kerberos security context, as the SASL exchanges of `security/` use it."""

from typing import Protocol


class ContextFailed(Exception):
    """The Kerberos library rejected a token or a key. The text contains no secret."""


class SecurityContext(Protocol):
    """All methods raise ContextFailed."""

    @property
    def is_established(self) -> bool: ...

    @property
    def peer(self) -> str:
        """The name of the other side, once it is established: user@REALM or service/host@REALM."""

    def step(self, token: bytes) -> bytes:
        """Returns the next token for the other side; it may be empty once it is established."""

    def wrap(self, message: bytes) -> bytes:
        """Returns the message with a signature, unencrypted."""

    def unwrap(self, message: bytes) -> bytes: ...


class ServerKey(Protocol):
    """The long-term key of a server, from a keytab."""

    @property
    def default_realm(self) -> str: ...

    def accept(self) -> SecurityContext:
        """Returns the context for one client."""
