"""How the HTTP listener asks whether a client may read what it serves."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol

from lograft.model.seams import Address


class Refusal(NamedTuple):
    """The response to a client that may not read a path."""

    status: HTTPStatus
    message: str
    #: Values of WWW-Authenticate.
    challenges: Sequence[str] = ()
    retry_after_seconds: int | None = None


class HttpAccess(Protocol):
    async def check(self, authorization: Sequence[bytes], peer: Address) -> Refusal | None:
        """Returns None if the client may read everything. `authorization` has the values of its
        Authorization headers."""
