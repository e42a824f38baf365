"""Credentials of a client, and the mechanism that each name selects."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.jaas import PLAIN_MODULE, SCRAM_MODULE
from lograft.security.client_mechanisms import Credentials, jaas_credentials, start_exchange

ALICE = Credentials("alice", "c4n4ry")


def test_credentials_hide_the_password() -> None:
    assert repr(ALICE) == "Credentials(user='alice', password=[hidden])"


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "\0")])
def test_credentials_that_no_mechanism_can_send(user: str, password: str) -> None:
    with pytest.raises(InvalidConfig, match="user name and the password"):
        Credentials(user, password)


def test_credentials_are_read_from_a_jaas_entry() -> None:
    text = f'{SCRAM_MODULE} required username="alice" password="a \\"b\\"" tokenauth="true";'
    found = jaas_credentials(text, "SCRAM-SHA-256", setting="sasl.jaas.config")
    assert found == Credentials("alice", 'a "b"', token_auth=True)
    users_only = f'{PLAIN_MODULE} required user_alice="x";'
    assert jaas_credentials(users_only, "PLAIN", setting="sasl.jaas.config") is None


def test_the_login_module_must_be_that_of_the_mechanism() -> None:
    text = f'{PLAIN_MODULE} required username="alice" password="c4n4ry";'
    with pytest.raises(InvalidConfig, match=SCRAM_MODULE) as raised:
        jaas_credentials(text, "SCRAM-SHA-512", setting="sasl.jaas.config")
    assert "c4n4ry" not in str(raised.value)


@pytest.mark.parametrize(
    ("mechanism", "start"),
    [
        ("PLAIN", b"\0alice\0c4n4ry"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=bm5u"),
        ("SCRAM-SHA-512", b"n,,n=alice,r=bm5u"),
    ],
)
def test_each_mechanism_has_an_exchange(mechanism: str, start: bytes) -> None:
    exchange = start_exchange(mechanism, ALICE, nonce=b"nnn")
    assert exchange.start() == start
    assert "c4n4ry" not in repr(exchange)
