"""The PLAIN mechanism of a client (RFC 4616)."""

from lograft.security.client_sasl import ClientStep, Finished, Rejected


class PlainClientExchange:
    __slots__ = ("_message",)

    def __init__(self, user: str, password: str) -> None:
        """Neither may contain the character NUL."""
        assert "\0" not in user + password, "checked where they are configured"
        self._message = f"\0{user}\0{password}".encode()

    def start(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> ClientStep:
        if challenge:
            return Rejected("the server sent a message, which PLAIN does not allow")
        return Finished()
