"""Which limit applies is compared with Kafka in tests/golden/test_kafka_quotas.py."""

from lograft.security.quota_limits import (
    CONNECTION_CREATION_RATE,
    PRODUCER_BYTE_RATE,
    ClientKey,
    connection_rates_of,
    limits_of,
)


def test_the_most_specific_limit_applies_and_is_shared() -> None:
    limits = limits_of(
        PRODUCER_BYTE_RATE,
        [
            ((("user", "alice"),), {PRODUCER_BYTE_RATE: 1.0}),
            ((("client-id", "c"), ("user", "alice")), {PRODUCER_BYTE_RATE: 2.0}),
            ((("user", None),), {PRODUCER_BYTE_RATE: 3.0, CONNECTION_CREATION_RATE: 9.0}),
            ((("client-id", None),), {"another": 4.0}),
        ],
    )
    assert limits.find("alice", "c") == (ClientKey("alice", "c"), 2)
    assert limits.find("alice", "d") == limits.find("alice", "e") == (ClientKey("alice", ""), 1)
    assert limits.find("bob", "d") == (ClientKey("bob", ""), 3)


def test_connections_are_limited_by_address() -> None:
    rates = connection_rates_of(
        [
            ((("ip", "10.0.0.1"),), {CONNECTION_CREATION_RATE: 5.0}),
            ((("ip", None),), {CONNECTION_CREATION_RATE: 7.0}),
            ((("user", "alice"),), {PRODUCER_BYTE_RATE: 1.0}),
        ]
    )
    assert (rates.find("10.0.0.1"), rates.find("10.0.0.2")) == (5, 7)
    assert connection_rates_of([]).find("10.0.0.1") is None
