import socket

import pytest

from lograft.cli.host_names import check_host, is_host_name, own_host, own_hosts
from lograft.model.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("node1.example.com", "node1.example.com"),
        ("node_1", "node_1"),
        ("192.0.2.7", "192.0.2.7"),
        ("[2001:DB8::0:7]", "2001:db8::7"),
    ],
)
def test_names_and_addresses(text: str, host: str) -> None:
    assert check_host(text) == host


@pytest.mark.parametrize(
    "text", ["", "host:9092", "http://host", "0.0.0.0", "::", "a b", "-a", "a..b", "ü", "x" * 64]
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="without a port, at which clients"):
        check_host(text)


def test_the_own_host_can_be_reached_from_here() -> None:
    assert socket.getaddrinfo(own_host(), None)
    assert all(check_host(host) for host in own_hosts())


def test_a_name_that_cannot_be_resolved_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "unknown.invalid")
    assert own_host() != "unknown.invalid"
    assert own_hosts()[0] == "unknown.invalid"
    assert is_host_name(own_hosts()[0])
