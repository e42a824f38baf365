"""Messages of OAUTHBEARER, as Kafka's clients and others write them."""

import pytest

from lograft.security.oauthbearer import (
    INSUFFICIENT_SCOPE,
    MESSAGE_BYTES_MAX,
    AcceptedToken,
    OAuthBearerExchange,
    RejectedToken,
)
from lograft.security.oauthbearer_client import OAuthBearerClientExchange
from lograft.security.sasl import Challenge, Failure, Success


def first_message_of(token: str) -> bytes:
    return OAuthBearerClientExchange(token).start()


def check(token: str) -> AcceptedToken | RejectedToken:
    if token == "a.b.c":
        return AcceptedToken("alice", 1_000)
    if token == "no.scope.":
        return RejectedToken("lacks a scope", INSUFFICIENT_SCOPE, "read write", user="bob")
    return RejectedToken("wrong")


GOOD = first_message_of("a.b.c")


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        b"n,,\x01auth=bearer  a.b.c\x01\x01",
        b"n,a=alice,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01traceId=x y\x01host=h\x01\x01",
        b"n,,\x01host=h\x01auth=Bearer a.b.c\x01\x01",
    ],
)
def test_a_token_is_accepted(message: bytes) -> None:
    assert OAuthBearerExchange(check).step(message) == Success(user="alice", expires_at_ms=1_000)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,auth=Bearer a.b.c\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x.y.z\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01k1=v\x01\x01",
        b"n,a=bob,\x01auth=Bearer a.b.c\x01\x01",
        GOOD + b"x",
        b"\xff" + GOOD,
        b"n,,\x01x=" + b"y" * MESSAGE_BYTES_MAX + GOOD[4:],
        b"\0alice\0secret",
    ],
)
def test_messages_that_fail_immediately(message: bytes) -> None:
    exchange = OAuthBearerExchange(check)
    step = exchange.step(message)
    assert isinstance(step, Failure)
    assert "a.b.c" not in f"{step}"


@pytest.mark.parametrize("second", [b"\x01", GOOD, b""])
def test_a_rejected_token_is_reported_before_the_failure(second: bytes) -> None:
    exchange = OAuthBearerExchange(check)
    step = exchange.step(first_message_of("x.y.z"))
    assert isinstance(step, Challenge)
    assert step.message == b'{"status":"invalid_token"}'
    failure = exchange.step(second)
    assert failure == step.failure == Failure(reason="wrong", message='{"status":"invalid_token"}')
    assert "x.y.z" not in f"{step}"


def test_a_missing_scope_is_reported() -> None:
    step = OAuthBearerExchange(check).step(first_message_of("no.scope."))
    assert isinstance(step, Challenge)
    assert step.message == b'{"status":"insufficient_scope","scope":"read write"}'
