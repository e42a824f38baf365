"""The SCRAM exchange of a client: the RFC's examples, the server's exchange, and impostors."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.security.client_sasl import ClientStep, Finished, Rejected
from lograft.security.sasl import Challenge, Success
from lograft.security.scram import MESSAGE_BYTES_MAX, ScramExchange
from lograft.security.scram_client import CLIENT_ITERATIONS_MAX, ScramClientExchange
from lograft.security.scram_credentials import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salt_password,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
PASSWORD = "pencil"
SALT = base64.b64encode(b"0123456789abcdef").decode()


def client(nonce: str = "", mechanism: ScramMechanism = SHA_256) -> ScramClientExchange:
    exchange = ScramClientExchange(mechanism, "user", PASSWORD, nonce=b"n" * 24)
    if nonce:
        # The RFC's nonce is not base64.
        exchange._nonce = nonce
        exchange._first = f"n=user,r={nonce}"
    return exchange


def rejection(step: ClientStep) -> str:
    assert isinstance(step, Rejected), step
    assert PASSWORD not in repr(step)
    return step.cause


def test_example_of_rfc_7677() -> None:
    exchange = client("rOprNGfwEbeRWgbNEkqO")
    assert exchange.start() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.step(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == Finished()


def credential(name: str, password: str, mechanism: ScramMechanism) -> ScramCredential:
    salted = salt_password(mechanism, password, b"salt", ITERATIONS_MIN)
    return credential_of(
        name, mechanism, salted_password=salted, salt=b"salt", iterations=ITERATIONS_MIN
    )


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@settings(deadline=None, max_examples=50)
@given(mechanism=st.sampled_from(ScramMechanism), name=TEXT, password=TEXT)
def test_the_server_accepts_every_name_and_password(
    mechanism: ScramMechanism, name: str, password: str
) -> None:
    stored = credential(name, password, mechanism)
    server = ScramExchange(mechanism, {name: stored}.get, lambda: stored, nonce=b"s" * 24)
    exchange = ScramClientExchange(mechanism, name, password, nonce=b"c" * 24)
    challenge = server.step(exchange.start())
    assert isinstance(challenge, Challenge)
    final = exchange.step(challenge.message)
    assert isinstance(final, bytes)
    success = server.step(final)
    assert isinstance(success, Success)
    assert success.user == name
    assert exchange.step(success.message) == Finished()


def test_delegation_tokens_are_announced() -> None:
    exchange = ScramClientExchange(SHA_512, "id", "hmac", nonce=b"n" * 24, token_auth=True)
    assert exchange.start().endswith(b",tokenauth=true")
    assert b"tokenauth" not in client().start()


NONCE = base64.b64encode(b"n" * 24).decode()
CHALLENGE = f"r={NONCE}more,s={SALT},i=4096"


@pytest.mark.parametrize(
    ("challenge", "cause"),
    [
        ("", "malformed"),
        (f"r={NONCE}more,s={SALT}", "malformed"),
        (f"r={NONCE}more,s=====,i=4096", "malformed"),
        (f"r={NONCE}more,s={SALT},i=-4096", "malformed"),
        (f"r={NONCE}more,s={SALT},i=99999999999999999999", "malformed"),
        (f"s={SALT},{CHALLENGE}", "malformed"),
        (f"m=new,{CHALLENGE}", "unknown extension"),
        (f"r={NONCE},s={SALT},i=4096", "nonce"),
        (f"r=another,s={SALT},i=4096", "nonce"),
        (f"r={NONCE}more,s={SALT},i=4095", "4095 SCRAM iterations"),
        (f"r={NONCE}more,s={SALT},i=1", "1 SCRAM iterations"),
        (f"r={NONCE}more,s={SALT},i={CLIENT_ITERATIONS_MAX + 1}", "SCRAM iterations"),
    ],
)
def test_challenges_that_are_rejected(challenge: str, cause: str) -> None:
    exchange = client()
    exchange.start()
    assert cause in rejection(exchange.step(challenge.encode()))


def test_long_and_undecodable_messages_are_rejected() -> None:
    assert "too long" in rejection(client().step(b"x" * (MESSAGE_BYTES_MAX + 1)))
    assert "malformed" in rejection(client().step(b"\xff"))


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"v=",
        b"v=AAAA",
        b"v=====",
        b"v=" + base64.b64encode(b"\0" * 32),
        b"r=x,v=" + base64.b64encode(b"\0" * 32),
        CHALLENGE.encode(),
    ],
)
def test_a_server_without_the_credential_is_rejected(final: bytes) -> None:
    exchange = client()
    exchange.start()
    assert isinstance(exchange.step(CHALLENGE.encode()), bytes)
    assert "impostor" in rejection(exchange.step(final))


def test_the_error_of_the_server_is_reported_in_one_line() -> None:
    exchange = client()
    exchange.start()
    exchange.step(CHALLENGE.encode())
    assert "other\\nerror" in rejection(exchange.step(b"e=other\nerror"))


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_random_messages_never_finish_a_login(messages: list[bytes]) -> None:
    exchange = client()
    exchange.start()
    for message in messages:
        if isinstance(step := exchange.step(message), Rejected):
            break
        assert step != Finished()
