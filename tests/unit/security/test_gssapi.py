"""The exchange over contexts whose tokens are text; real Kerberos: tests/compatibility."""

from collections.abc import Sequence

import pytest

from lograft.model.kerberos_names import parse_rules
from lograft.model.security_context import ContextFailed
from lograft.security.gssapi import NO_LAYER, GssapiExchange
from lograft.security.sasl import Challenge, Failure, Step, Success

ALICE = "alice@EXAMPLE.COM"
SELECT_NO_LAYER = b"signed:" + NO_LAYER


class FakeContext:
    """Accepts the tokens hello 1, hello 2, …, and replies to each."""

    def __init__(self, replies: Sequence[bytes], peer: str) -> None:
        self._replies = list(replies)
        self._received = 0
        self.peer = peer

    @property
    def is_established(self) -> bool:
        return self._received == len(self._replies)

    def step(self, token: bytes) -> bytes:
        if token != b"hello %d" % (self._received + 1):
            raise ContextFailed("Invalid token was supplied")
        self._received += 1
        return self._replies[self._received - 1]

    def wrap(self, message: bytes) -> bytes:
        return b"signed:" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"signed:"):
            raise ContextFailed("A token had an invalid signature")
        return message.removeprefix(b"signed:")


def exchange(*replies: bytes, peer: str = ALICE) -> GssapiExchange:
    context = FakeContext(replies, peer)
    return GssapiExchange(context, parse_rules(["DEFAULT"]), default_realm="EXAMPLE.COM")


def steps_of(server: GssapiExchange, *messages: bytes) -> list[Step]:
    return [server.step(message) for message in messages]


def test_the_offer_follows_the_clients_reply_to_the_last_token() -> None:
    assert steps_of(exchange(b"welcome"), b"hello 1", b"", SELECT_NO_LAYER) == [
        Challenge(b"welcome"),
        Challenge(b"signed:\1\0\0\0"),
        Success(user="alice"),
    ]


def test_the_offer_follows_at_once_when_the_server_has_no_last_token() -> None:
    messages = (b"hello 1", b"hello 2", SELECT_NO_LAYER)
    assert steps_of(exchange(b"go on", b""), *messages) == [
        Challenge(b"go on"),
        Challenge(b"signed:\1\0\0\0"),
        Success(user="alice"),
    ]


@pytest.mark.parametrize("authorization_id", [ALICE, "bob@EXAMPLE.COM", "kafka@localhost"])
def test_the_user_is_the_one_of_the_ticket(authorization_id: str) -> None:
    assert login(SELECT_NO_LAYER + authorization_id.encode()) == Success(user="alice")


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (b"\1\0\0\0", "invalid signature"),
        (b"signed:\1\0\0", "malformed"),
        (b"signed:\2\0\0\0", "security layer"),
        (b"signed:\5\0\0\0", "security layer"),
    ],
)
def test_other_selections_are_rejected(selection: bytes, reason: str) -> None:
    step = login(selection)
    assert isinstance(step, Failure)
    assert reason in step.reason


def test_a_name_that_no_rule_shortens_is_rejected() -> None:
    step = login(SELECT_NO_LAYER, peer="alice@OTHER.ORG")
    assert isinstance(step, Failure)
    assert step.user == "alice@OTHER.ORG"


@pytest.mark.parametrize("messages", [(b"x",), (b"hello 1", b"x"), (b"",)])
def test_messages_out_of_order_are_rejected(messages: tuple[bytes, ...]) -> None:
    server = exchange(b"welcome")
    assert isinstance(steps_of(server, *messages)[-1], Failure)
    assert isinstance(server.step(SELECT_NO_LAYER), Failure), "nothing may follow a failure"


def login(selection: bytes, peer: str = ALICE) -> Step:
    return steps_of(exchange(b"welcome", peer=peer), b"hello 1", b"", selection)[-1]
