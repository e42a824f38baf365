"""The PLAIN exchange of a client, against the server's and alone."""

from lograft.model.settings.keys import Secret
from lograft.security.client_sasl import Finished, Rejected
from lograft.security.plain import PlainExchange
from lograft.security.plain_client import PlainClientExchange
from lograft.security.sasl import Success


def test_message_of_rfc_4616() -> None:
    assert PlainClientExchange("tim", "tanstaaftanstaaf").start() == b"\0tim\0tanstaaftanstaaf"


def test_the_server_accepts_the_message() -> None:
    exchange = PlainClientExchange("jörg", "pass=word, x")
    server = PlainExchange({"jörg": Secret("pass=word, x")})
    assert server.step(exchange.start()) == Success(user="jörg")
    assert exchange.step(b"") == Finished()


def test_a_challenge_is_rejected() -> None:
    exchange = PlainClientExchange("tim", "c4n4ry")
    exchange.start()
    assert isinstance(exchange.step(b"more?"), Rejected)
    assert "c4n4ry" not in repr(exchange)
