import pytest

from lograft.security.quota_rates import THROTTLE_MS_MAX, QuotaWindow, SampledRate, TokenBucket

WINDOW = QuotaWindow(11, 1000)


def test_a_rate_is_measured_over_at_least_ten_windows() -> None:
    rate = SampledRate(WINDOW)
    rate.record(5_000, 0)
    assert rate.measure(0) == 500
    assert rate.throttle_ms(1_000, 0) == 0
    # (1500 - 1000) / 1000 of 10 s.
    rate.record(10_000, 0)
    assert rate.throttle_ms(1_000, 0) == 5_000


@pytest.mark.parametrize("size", [100, 5_000, 40_000])
@pytest.mark.parametrize("limit", [1_000, 100_000])
def test_a_client_that_waits_gets_its_quota(size: int, limit: int) -> None:
    """The first windows allow a burst; afterwards the rate is accurate."""
    rate = SampledRate(WINDOW)
    now_ms, sent = 0, []
    while now_ms < 200_000:
        sent.append((now_ms, size))
        rate.record(size, now_ms)
        now_ms += 1 + rate.throttle_ms(limit, now_ms)
    later = sum(count for at_ms, count in sent if 11_000 <= at_ms < 198_000)
    assert later / 187 == pytest.approx(limit, rel=0.05, abs=size / 100)


def test_idle_state_cannot_be_told_from_new_state() -> None:
    rate = SampledRate(WINDOW)
    rate.record(1_000, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)
    bucket = TokenBucket(WINDOW)
    bucket.record(33, 1, 0)
    assert not bucket.is_idle(32_999)
    assert bucket.is_idle(33_000)


def test_a_bucket_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(WINDOW)
    assert bucket.measure(2, 0) == 22
    bucket.record(30, 2, 0)
    assert bucket.throttle_ms(2, 0) == 4_000
    assert bucket.throttle_ms(2, 4_000) == 0
    assert bucket.measure(2, 100_000) == 22


def test_a_tiny_limit_has_the_longest_throttle_time() -> None:
    rate = SampledRate(WINDOW)
    rate.record(1e12, 0)
    assert rate.throttle_ms(1e-9, 0) == THROTTLE_MS_MAX
    assert rate.throttle_ms(0, 0) == THROTTLE_MS_MAX
