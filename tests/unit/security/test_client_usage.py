import pytest

from lograft.security.client_usage import (
    CLIENTS_MAX,
    ClientUsage,
    ConnectionUsage,
    MutationUsage,
)
from lograft.security.quota_limits import PRODUCER_BYTE_RATE, QuotaLimits, limits_of
from lograft.security.quota_rates import QuotaWindow

WINDOW = QuotaWindow(11, 1000)


def limits(**users: float) -> QuotaLimits:
    return limits_of(
        PRODUCER_BYTE_RATE,
        [((("user", name),), {PRODUCER_BYTE_RATE: rate}) for name, rate in users.items()],
    )


def usage_of(**users: float) -> ClientUsage:
    usage = ClientUsage(WINDOW)
    usage.set_limits(limits(**users))
    return usage


def test_clients_of_a_user_share_its_quota() -> None:
    usage = usage_of(alice=1_000)
    assert usage.record("alice", "a", 10_000, 0) == 0
    assert usage.record("alice", "b", 5_000, 0) == 5_000
    assert usage.record("bob", "a", 1e9, 0) == 0
    assert usage.clients == 1


def test_a_changed_limit_applies_to_what_was_recorded() -> None:
    usage = usage_of(alice=1_000)
    usage.record("alice", "a", 10_000, 0)
    usage.set_limits(limits(alice=500))
    assert usage.record("alice", "a", 0, 0) == 10_000
    usage.set_limits(limits(bob=1))
    assert usage.record("alice", "a", 1e9, 0) == 0


def test_taking_back_a_response_restores_the_quota() -> None:
    usage = usage_of(alice=1_000)
    assert usage.record("alice", "a", 20_000, 0) > 0
    usage.take_back("alice", "a", 20_000, 0)
    assert usage.record("alice", "a", 10_000, 0) == 0


def test_a_response_may_use_all_windows_but_one() -> None:
    assert usage_of(alice=1_000).bytes_max("alice", "a") == 10_000
    assert usage_of(alice=1_000).bytes_max("bob", "a") is None


def test_throttle_time_is_bounded() -> None:
    usage = ClientUsage(WINDOW, throttle_ms_max=1_000)
    usage.set_limits(limits(alice=1))
    assert usage.record("alice", "a", 1e9, 0) == 1_000


def test_hostile_client_ids_do_not_grow_without_bound() -> None:
    usage = ClientUsage(WINDOW)
    usage.set_limits(
        limits_of(PRODUCER_BYTE_RATE, [((("client-id", None),), {PRODUCER_BYTE_RATE: 1_000})])
    )
    for number in range(CLIENTS_MAX + 10):
        usage.record("", f"client-{number}", 1, 0)
    assert usage.clients == CLIENTS_MAX
    assert usage.evicted_count == 10
    # Later, all of them are idle, and forgotten with the next new client.
    usage.record("", "another", 1, 11_000)
    assert usage.clients == 1


def test_an_active_client_is_not_forgotten_before_idle_ones() -> None:
    usage = ClientUsage(WINDOW)
    usage.set_limits(
        limits_of(PRODUCER_BYTE_RATE, [((("client-id", None),), {PRODUCER_BYTE_RATE: 1_000})])
    )
    usage.record("", "steady", 10_000, 0)
    for number in range(CLIENTS_MAX * 2):
        usage.record("", f"client-{number}", 1, 0)
        if not number % 1_000:
            usage.record("", "steady", 0, 0)
    assert usage.record("", "steady", 5_000, 0) == 5_000


@pytest.mark.parametrize("is_strict", [True, False])
def test_mutations_beyond_the_bucket_are_throttled(is_strict: bool) -> None:
    usage = MutationUsage(WINDOW)
    usage.set_limits(limits(alice=1))

    def record(permits: float, now_ms: int) -> int:
        return usage.record("alice", "", permits, now_ms, is_strict=is_strict)

    # The bucket of 11 is overdrawn by one request: a strict one is accepted, and the next is not.
    assert record(13, 0) == (0 if is_strict else 2_000)
    assert record(1, 0) == (2_000 if is_strict else 3_000)
    assert record(0, 3_000) == 0


def test_rejected_connections_do_not_count() -> None:
    usage = ConnectionUsage(QuotaWindow(2, 1000))
    assert [usage.record("a", 3, 0) for _ in range(3)] == [0, 0, 0]
    assert usage.record("a", 3, 0) == 333
    assert usage.record("a", 3, 333) == 0
    assert usage.record("b", 3, 0) == 0
