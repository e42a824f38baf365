import pytest

from lograft.model.hosts import is_loopback


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"])
def test_hosts_of_this_machine_only(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "broker-1", "h", "", "2001:db8::1", "localhost.x"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
