"""Connection limits, decided without sockets and with the time as an argument."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from lograft.model.settings.broker import broker_config
from lograft.net.connection_limits import (
    UNTIL_RELEASED,
    ConnectionLimits,
    ConnectionQuota,
    RateLimit,
    limits_of,
)


@dataclass
class OpenConnection:
    active_ms: int
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class OpenListener:
    connections: list[OpenConnection] = field(default_factory=list)
    woken: int = 0

    def accept_waiting(self) -> None:
        self.woken += 1

    def open_connections(self) -> list[OpenConnection]:
        return [connection for connection in self.connections if not connection.closed]


def test_limits_of_a_listener_and_of_the_node() -> None:
    quota = ConnectionQuota(
        ConnectionLimits(connections_max=3, listener_connections_max={"A": 1}, per_ip_max=10)
    )
    quota.add("A", OpenListener())
    quota.add("B", listener := OpenListener())
    assert quota.take("A", "h", 0) is None
    assert quota.wait_ms("A", 0) == UNTIL_RELEASED
    assert quota.wait_ms("B", 0) == 0
    assert quota.take("B", "h", 0) is None
    assert quota.take("B", "h", 0) is None
    assert quota.wait_ms("B", 0) == UNTIL_RELEASED
    quota.release("A", "h")
    assert listener.woken == 1
    assert quota.wait_ms("A", 0) == quota.wait_ms("B", 0) == 0


def test_inter_broker_listener_closes_the_least_active_connection_of_another() -> None:
    limits = ConnectionLimits(connections_max=2, creation_rate=1, protected_listener="INTERNAL")
    quota = ConnectionQuota(limits)
    quota.add("INTERNAL", OpenListener())
    assert quota.wait_ms("INTERNAL", 0) == 0
    clients = OpenListener([OpenConnection(active_ms=7), OpenConnection(active_ms=5)])
    quota.add("CLIENTS", clients)
    for now_ms in (0, 1000):
        assert quota.wait_ms("CLIENTS", now_ms) == 0
        quota.take("CLIENTS", "h", now_ms)
    assert quota.wait_ms("CLIENTS", 9000) == UNTIL_RELEASED
    # Neither the limit nor the rate of the node applies to it.
    assert quota.wait_ms("INTERNAL", 1000) == 0
    quota.take("INTERNAL", "peer", 1000)
    assert [connection.closed for connection in clients.connections] == [False, True]
    # Brokers connect even if they alone use up the limit, as in Kafka.
    for peers in (2, 3):
        assert quota.wait_ms("INTERNAL", 1000) == 0
        quota.take("INTERNAL", f"peer {peers}", 1000)
    assert [connection.closed for connection in clients.connections] == [True, True]
    assert quota.wait_ms("CLIENTS", 9000) == UNTIL_RELEASED


def test_single_listener_is_not_protected() -> None:
    quota = ConnectionQuota(ConnectionLimits(connections_max=1, protected_listener="A"))
    quota.add("A", OpenListener())
    quota.take("A", "h", 0)
    assert quota.wait_ms("A", 0) == UNTIL_RELEASED


def test_rates_of_a_listener_and_of_the_node() -> None:
    quota = ConnectionQuota(ConnectionLimits(creation_rate=4, listener_creation_rates={"A": 2}))
    for _ in range(2):
        assert quota.wait_ms("A", 0) == 0
        quota.take("A", "h", 0)
    assert quota.wait_ms("A", 0) == 500
    assert quota.wait_ms("B", 0) == 0
    for _ in range(2):
        quota.take("B", "h", 0)
    assert quota.wait_ms("B", 0) == 250
    assert quota.wait_ms("A", 500) == 0
    # Other limits may change without resetting the counts.
    quota.update(ConnectionLimits(creation_rate=4, listener_creation_rates={"A": 2}, per_ip_max=99))
    assert quota.wait_ms("B", 0) == 250
    quota.update(ConnectionLimits())
    assert quota.wait_ms("A", 0) == quota.wait_ms("B", 0) == 0


def test_rate_0_allows_one_connection_per_second() -> None:
    quota = ConnectionQuota(ConnectionLimits(creation_rate=0, listener_creation_rates={"A": 0}))
    for listener in ("A", "B"):
        quota = ConnectionQuota(quota.limits)
        assert quota.wait_ms(listener, 0) == 0
        quota.take(listener, "h", 0)
        assert quota.wait_ms(listener, 0) == 1000
        assert quota.wait_ms(listener, 1000) == 0


@given(
    st.integers(1, 50),
    st.lists(st.integers(0, 300), min_size=1, max_size=60),
)
def test_no_second_has_more_than_twice_the_rate(rate: int, pauses: list[int]) -> None:
    limit = RateLimit(rate)
    now_ms = 0
    admitted = []
    for pause in pauses:
        now_ms += pause
        now_ms += limit.wait_ms(now_ms)
        assert limit.wait_ms(now_ms) == 0
        limit.record(now_ms)
        admitted.append(now_ms)
    for first in admitted:
        assert sum(first <= each < first + 1000 for each in admitted) <= 2 * rate


def test_limits_of_a_nodes_settings() -> None:
    config = broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "max.connections": "100",
            "listener.name.plaintext.max.connections": "50",
            "max.connection.creation.rate": "9",
            "listener.name.controller.max.connection.creation.rate": "5",
        }
    )
    limits = limits_of(config, ["PLAINTEXT", "CONTROLLER"], per_ip_overrides={"::1": 3})
    assert limits == ConnectionLimits(
        connections_max=100,
        creation_rate=9,
        per_ip_overrides={"::1": 3},
        listener_connections_max={"PLAINTEXT": 50},
        listener_creation_rates={"CONTROLLER": 5},
        protected_listener="PLAINTEXT",
    )
