from collections.abc import Sequence

import pytest

from lograft.model.security_context import ContextFailed
from lograft.security.client_sasl import ClientStep, Finished, Rejected
from lograft.security.gssapi_client import GssapiClientExchange

OFFER = b"signed:\1\0\0\0"


class FakeContext:
    """Established after the given number of tokens; a token is the number of its step."""

    peer = "kafka/localhost@EXAMPLE.COM"

    def __init__(self, tokens: int) -> None:
        self._missing = tokens

    @property
    def is_established(self) -> bool:
        return self._missing == 0

    def step(self, token: bytes) -> bytes:
        if token == b"forged":
            raise ContextFailed("Invalid token was supplied")
        self._missing -= 1
        return b"" if self.is_established else b"token"

    def wrap(self, message: bytes) -> bytes:
        return b"signed:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"signed:"):
            raise ContextFailed("A token had an invalid signature")
        return message.removeprefix(b"signed:")


def answers(challenges: Sequence[bytes], tokens: int = 1) -> list[ClientStep]:
    exchange = GssapiClientExchange(FakeContext(tokens), b"first")
    assert exchange.start() == b"first"
    return [exchange.step(challenge) for challenge in challenges]


def test_the_client_selects_no_layer() -> None:
    assert answers([b"welcome", OFFER, b""]) == [b"", b"signed:\1\0\0\0", Finished()]


def test_contexts_may_need_several_tokens() -> None:
    steps = answers([b"go on", b"welcome", OFFER, b""], tokens=2)
    assert steps == [b"token", b"", b"signed:\1\0\0\0", Finished()]


def test_several_layers_include_no_layer() -> None:
    assert answers([b"welcome", b"signed:\7\0\1\0", b""])[-1] == Finished()


@pytest.mark.parametrize(
    ("challenges", "cause"),
    [
        ([b"forged"], "Invalid token"),
        ([b"welcome", b"\1\0\0\0"], "invalid signature"),
        ([b"welcome", b"signed:\6\0\1\0"], "requires a security layer"),
        ([b"welcome", b"signed:\1"], "malformed"),
        ([b"welcome", OFFER, b"more"], "after the exchange has ended"),
    ],
)
def test_a_server_that_breaks_the_rules_is_rejected(challenges: list[bytes], cause: str) -> None:
    step = answers(challenges)[-1]
    assert isinstance(step, Rejected)
    assert cause in step.cause
