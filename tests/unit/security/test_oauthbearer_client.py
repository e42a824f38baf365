"""The OAUTHBEARER exchange of a client (RFC 7628, section 4)."""

from lograft.security.client_sasl import Finished
from lograft.security.oauthbearer_client import OAuthBearerClientExchange


def test_first_message_carries_the_token() -> None:
    exchange = OAuthBearerClientExchange("c4n4ry")
    assert exchange.start() == b"n,,\x01auth=Bearer c4n4ry\x01\x01"
    assert exchange.step(b"") == Finished()
    assert "c4n4ry" not in repr(exchange)


def test_the_error_of_a_server_is_acknowledged() -> None:
    exchange = OAuthBearerClientExchange("token")
    exchange.start()
    assert exchange.step(b'{"status":"invalid_token"}') == b"\x01"
