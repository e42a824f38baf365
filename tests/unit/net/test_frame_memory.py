"""queued.max.request.bytes: requests beyond the limit wait, in order, and none is lost."""

from lograft.model.metrics import Buckets, Gauge, gather_all
from lograft.net.frame_memory import (
    BUFFER_BYTES,
    CONNECTIONS_PAUSED,
    QUEUED_BYTES,
    FrameBudget,
)
from tests.support.scenarios import scenario
from tests.unit.net.connection_fakes import framed, setting, settle
from tests.unit.net.event_loops import run_on_loop


def gauge(budget: FrameBudget, metric: Gauge) -> float:
    value = gather_all(budget.collect_samples("broker")).by_metric[metric]["broker",]
    assert not isinstance(value, Buckets)
    return value


@scenario(run_on_loop)
async def test_request_waits_until_another_is_handled() -> None:
    budget = FrameBudget(request_bytes_max=100_000)
    big = framed(b"a" * 99_999)
    async with (
        setting(budget=budget) as first,
        setting(budget=budget) as second,
        setting(budget=budget) as third,
    ):
        # The pool admits requests while any of it is free: the first one uses all of it.
        for each in (first, second, third):
            each.channel.deliver(big[:5_000])
        assert [each.channel.reading for each in (first, second, third)] == [True, False, False]
        # Small requests that arrive complete are not counted.
        small = framed(b"s")
        third_answers = third.responses
        assert gauge(budget, CONNECTIONS_PAUSED) == 2
        assert gauge(budget, QUEUED_BYTES) >= 99_999
        assert gauge(budget, BUFFER_BYTES) == budget.total > 0
        first.channel.deliver(big[5_000:] + small)
        await settle()
        assert first.responses == [b"a" * 99_999, b"s"]
        assert [each.channel.reading for each in (second, third)] == [True, False]
        assert third.responses == third_answers
        second.channel.end(None)
        await settle()
        assert third.channel.reading
        assert gauge(budget, CONNECTIONS_PAUSED) == 0
        third.channel.deliver(big[5_000:])
        assert third.responses == [b"a" * 99_999]


@scenario(run_on_loop)
async def test_request_larger_than_the_limit_is_handled() -> None:
    async with setting(budget=FrameBudget(request_bytes_max=10)) as setup:
        body = b"a" * 50_000
        setup.channel.deliver(framed(body)[:100])
        assert setup.channel.reading
        setup.channel.deliver(framed(body)[100:])
        assert setup.responses == [body]


@scenario(run_on_loop)
async def test_closed_connection_lets_the_next_request_continue() -> None:
    budget = FrameBudget(request_bytes_max=1_000)
    big = framed(b"a" * 5_000)
    async with (
        setting(budget=budget) as first,
        setting(budget=budget) as second,
        setting(budget=budget) as third,
    ):
        for each in (first, second, third):
            each.channel.deliver(big[:100])
        second.channel.end(None)
        await settle()
        assert not third.channel.reading
        first.channel.deliver(big[100:])
        assert third.channel.reading


@scenario(run_on_loop)
async def test_without_the_setting_nothing_waits() -> None:
    budget = FrameBudget()
    async with setting(budget=budget) as first, setting(budget=budget) as second:
        for each in (first, second):
            each.channel.deliver(framed(b"a" * 900_000)[:500_000])
            assert each.channel.reading
