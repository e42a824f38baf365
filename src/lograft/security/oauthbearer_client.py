"""The OAUTHBEARER mechanism of a client (RFC 7628)."""

from typing import Final

from lograft.security.client_sasl import ClientStep, Finished

_HEADER: Final = "n,,"
#: The answer to the error of a server, which then ends the login.
_ACKNOWLEDGEMENT: Final = b"\x01"


class OAuthBearerClientExchange:
    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        self._token = token

    def start(self) -> bytes:
        return f"{_HEADER}\x01auth=Bearer {self._token}\x01\x01".encode()

    def step(self, challenge: bytes) -> ClientStep:
        return _ACKNOWLEDGEMENT if challenge else Finished()
