"""Connections over a channel of the test: order, back-pressure, ends. No sockets, no sleeps."""

import asyncio
import logging

import pytest

from lograft.model.exchange import CloseConnection
from lograft.model.metrics import gather_all
from lograft.net.closed_connections import CLOSED, THROTTLED
from lograft.net.connection import TIMINGS_MAX, FlowLimits
from lograft.net.frame_memory import FrameBudget
from tests.support.scenarios import scenario
from tests.unit.net.connection_fakes import Setting, framed, setting, settle
from tests.unit.net.event_loops import run_on_loop
from tests.unit.net.receivers import RunOnLoop


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Returns what connections logged. On a loaded machine asyncio's debug mode also logs slow
    callbacks."""
    return [record for record in caplog.records if record.name != "asyncio"]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100, 1 << 30])
@scenario(run_on_loop)
async def test_frames_may_arrive_in_any_pieces(chunk: int) -> None:
    bodies = [b"a", b"", b"c" * 100, b"d" * 70_000, b"e"]

    async with setting() as setup:
        setup.channel.deliver(b"".join(map(framed, bodies)), chunk=chunk)
        assert setup.handler.handled == bodies
        assert setup.responses == bodies


@scenario(run_on_loop)
async def test_responses_to_one_read_are_sent_together() -> None:
    async with setting() as setup:
        setup.deliver(*[b"a%d" % number for number in range(50)])
        assert len(setup.responses) == 50
        assert setup.channel.sends == 1


@scenario(run_on_loop)
async def test_waiting_request_blocks_those_behind_it() -> None:
    async with setting() as setup:
        setup.deliver(b"a", b"w1", b"b2", b"w3", b"c4")
        assert setup.handler.handled == [b"a", b"w1"]
        assert setup.responses == [b"a"]
        assert not setup.reads()
        await setup.open(b"w1")
        assert setup.handler.handled == [b"a", b"w1", b"b2", b"w3"]
        await setup.open(b"w3")
        assert setup.responses == [b"a", b"w1", b"b2", b"w3", b"c4"]
        assert setup.reads()


@scenario(run_on_loop)
async def test_pipelined_request_only_blocks_responses() -> None:
    async with setting() as setup:
        setup.deliver(b"p1", b"p2", b"a", b"n", b"p3")
        assert setup.handler.handled == [b"p1", b"p2", b"a", b"n", b"p3"]
        assert setup.reads()
        await setup.open(b"p2")
        await setup.open(b"p3")
        assert setup.responses == []
        await setup.open(b"p1")
        assert setup.responses == [b"p1", b"p2", b"a", b"p3"]


@scenario(run_on_loop)
async def test_a_response_may_close_the_connection() -> None:
    async with setting() as setup:
        setup.deliver(b"a1", b"e2", b"a3")
        assert setup.responses == [b"a1", b"e2"]
        assert setup.handler.handled == [b"a1", b"e2"]
        assert setup.channel.closed


@scenario(run_on_loop)
async def test_a_delayed_response_may_close_the_connection() -> None:
    async with setting() as setup:
        setup.deliver(b"p1", b"E2", b"a3")
        await setup.open(b"E2")
        assert not setup.channel.closed
        await setup.open(b"p1")
        assert setup.responses == [b"p1", b"E2"]
        assert setup.handler.handled == [b"p1", b"E2"]
        assert setup.channel.closed


@scenario(run_on_loop)
async def test_no_request_is_handled_behind_a_closing_response_that_waits_for_its_turn() -> None:
    async with setting() as setup:
        setup.deliver(b"p1", b"e2", b"a3")
        assert setup.handler.handled == [b"p1", b"e2"]
        await setup.open(b"p1")
        assert setup.responses == [b"p1", b"e2"]
        assert setup.handler.handled == [b"p1", b"e2"]
        assert setup.channel.closed


@scenario(run_on_loop)
async def test_wait_may_end_without_a_response() -> None:
    async with setting() as setup:
        setup.deliver(b"N1", b"a")
        await setup.open(b"N1")
        assert setup.responses == [b"a"]


@scenario(run_on_loop)
async def test_disconnect_is_detected_while_a_request_waits() -> None:
    async with setting() as setup:
        setup.deliver(b"w1")
        await settle()
        # Reading continues, so that the end of the stream is detected.
        assert setup.reads()
        setup.channel.end(None)
        await settle()
        assert setup.handler.cancelled == [b"w1"]
        assert setup.handler.closed == 1


@scenario(run_on_loop)
async def test_request_that_never_started_is_dropped_without_a_warning() -> None:
    async with setting() as setup:
        setup.deliver(b"p1", b"w2")
        setup.channel.end(ConnectionResetError())


@scenario(run_on_loop)
async def test_incomplete_frame_behind_a_waiting_request() -> None:
    async with setting() as setup:
        setup.deliver(b"w1")
        whole = framed(b"a" * 1000) + framed(b"b")
        setup.channel.deliver(whole[:500])
        assert setup.reads()
        setup.channel.deliver(whole[500:])
        assert not setup.reads()
        assert setup.handler.handled == [b"w1"]
        await setup.open(b"w1")
        assert setup.responses == [b"w1", b"a" * 1000, b"b"]


@scenario(run_on_loop)
async def test_requests_of_a_slow_reader_are_not_handled() -> None:
    async with setting(FlowLimits(unsent_bytes_max=100_000)) as setup:
        setup.channel.takes_all = False
        request = b"a" * 30_000
        for _ in range(20):
            setup.deliver(request)
        # Three are below the limit, the fourth exceeds it, the rest waits in the socket.
        assert len(setup.handler.handled) == 4
        assert not setup.reads()
        setup.channel.takes_all = True
        setup.channel.drain()
        await settle()
        assert len(setup.handler.handled) == 20
        assert len(setup.responses) == 20


@scenario(run_on_loop)
async def test_requests_in_flight_are_limited() -> None:
    async with setting(FlowLimits(responses_max=3)) as setup:
        setup.deliver(*[b"p%d" % number for number in range(6)])
        assert len(setup.handler.handled) == 3
        assert not setup.reads()
        for number in range(6):
            await setup.open(b"p%d" % number)
        assert setup.responses == [b"p%d" % number for number in range(6)]


@scenario(run_on_loop)
async def test_muted_connection_is_read_later() -> None:
    async with setting() as setup:
        setup.deliver(b"m", b"a")
        assert setup.responses == [b"m"]
        assert not setup.reads()
        while len(setup.responses) < 2:
            await asyncio.sleep(0.001)
        assert setup.reads()


@scenario(run_on_loop)
async def test_muted_connection_may_end() -> None:
    async with setting() as setup:
        setup.deliver(b"m")
        setup.channel.end(None)


@scenario(run_on_loop)
async def test_the_frame_limit_may_change() -> None:
    async with setting() as setup:
        setup.deliver(b"a" * 1000)
        setup.handler.frame_bytes_max = 10
        setup.deliver(b"b")
        setup.deliver(b"c" * 11)
        assert setup.channel.closed
        assert setup.responses == [b"a" * 1000, b"b"]


def test_invalid_size_closes_with_one_log_line(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with setting() as setup:
            setup.deliver(b"a")
            setup.channel.deliver(framed(b"b") + (2**31 - 1).to_bytes(4, "big") + b"rest")
            assert setup.channel.closed
            # The frame before it was valid, and has a response.
            assert setup.responses == [b"a", b"b"]

    on_loop(main)
    assert [record.getMessage() for record in logged(caplog)] == [
        "PLAINTEXT: closed the connection of there:2: frame of 2147483647 bytes, but the limit is"
        " 1048576"
    ]
    assert logged(caplog)[0].exc_info is None


def test_protocol_violation_closes_with_one_escaped_log_line(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with setting() as setup:
            setup.deliver(b"p1", b"x", b"a")
            assert setup.channel.closed
            await settle()
            assert setup.handler.handled == [b"p1", b"x"]

    on_loop(main)
    assert [record.getMessage() for record in logged(caplog)] == [
        "PLAINTEXT: closed the connection of there:2: nonsense\\r\\nfrom client"
    ]


def test_exception_in_a_handler_closes_one_connection_with_a_traceback(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with setting() as setup:
            setup.deliver(b"!", b"a")
            assert setup.channel.closed
            assert setup.handler.handled == [b"!"]

    on_loop(main)
    assert len(logged(caplog)) == 1
    assert logged(caplog)[0].exc_info is not None


@pytest.mark.parametrize("error", [CloseConnection("late nonsense"), RuntimeError("late bug")])
def test_failure_of_a_waiting_request_closes(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def main() -> None:
        async with setting() as setup:
            setup.deliver(b"w1", b"a")
            await settle()
            setup.handler.gates[b"w1"].set_exception(error)
            await settle()
            assert setup.channel.closed
            assert setup.responses == []

    on_loop(main)
    assert len(logged(caplog)) == 1


@scenario(run_on_loop)
async def test_cancelled_wait_closes_the_connection() -> None:
    async with setting() as setup:
        setup.deliver(b"w1", b"a")
        await settle()
        setup.handler.gates[b"w1"].cancel()
        await settle()
        assert setup.channel.closed


@scenario(run_on_loop)
async def test_connection_without_requests_waits_or_reads_is_idle() -> None:
    async with setting() as setup:

        def idle_after(ms: int) -> bool:
            setup.clock.now_ms += ms
            return setup.connection.sweep(setup.clock.now_ms, idle_ms_max=100)

        assert not idle_after(100)
        assert idle_after(1)
        setup.deliver(b"a")
        assert not idle_after(100)
        setup.deliver(b"w1")
        assert not idle_after(1000)
        await setup.open(b"w1")
        assert not idle_after(100)
        assert idle_after(1)
        # Unsent bytes that decrease show that the peer reads; bytes that stay do not.
        setup.channel.unsent_bytes = 50
        assert not idle_after(1000)
        setup.channel.unsent_bytes = 40
        assert not idle_after(1000)
        assert idle_after(101)
        setup.channel.unsent_bytes = 0


@scenario(run_on_loop)
async def test_idle_connection_releases_memory() -> None:
    budget = FrameBudget()
    async with setting(budget=budget) as setup:
        setup.deliver(b"a" * 500_000)
        assert budget.total >= 500_000
        setup.clock.now_ms += 10
        setup.connection.sweep(setup.clock.now_ms, idle_ms_max=1000)
        setup.clock.now_ms += 10
        setup.connection.sweep(setup.clock.now_ms, idle_ms_max=1000)
        assert budget.total < 10_000
    assert budget.total == 0


def test_oldest_incomplete_frame_is_dropped_first(
    on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        budget = FrameBudget(bytes_max=1_000_000)
        async with (
            setting(budget=budget) as old,
            setting(budget=budget) as young,
            setting(budget=budget) as rested,
        ):
            big = framed(b"a" * 900_000)
            rested.deliver(b"r" * 300_000)
            old.channel.deliver(big[:300_000])
            young.clock.now_ms += 50
            young.channel.deliver(big[:-1])
            await settle()
            assert old.channel.closed
            assert not young.channel.closed
            # It only had an empty buffer for its next frame, which was released first.
            assert not rested.channel.closed
            assert budget.total <= 1_000_000
            young.channel.deliver(big[-1:])
            assert young.responses == [b"a" * 900_000]

    on_loop(main)
    assert len(logged(caplog)) == 1


def test_expected_ends_are_not_logged(on_loop: RunOnLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with setting() as setup:
            setup.deliver(b"a")
            setup.channel.end(ConnectionResetError(104, "Connection reset by peer"))

    on_loop(main)
    assert logged(caplog) == []


@scenario(run_on_loop)
async def test_stopping_node_accepts_no_new_waits() -> None:
    async with asyncio.TaskGroup() as group:
        setup = Setting(group, FlowLimits(), FrameBudget())
    setup.deliver(b"a", b"w1", b"b")
    assert setup.responses == [b"a"]
    assert setup.channel.closed
    await settle()
    assert setup.ended == [setup.connection]


class Sent:
    """A `model.exchange.Timing`."""

    def __init__(self) -> None:
        self.count = 0

    def on_sent(self) -> None:
        self.count += 1


@scenario(run_on_loop)
async def test_response_is_sent_when_the_channel_has_drained() -> None:
    async with setting() as setup:
        timing = setup.handler.timing = Sent()
        setup.deliver(b"a")
        assert timing.count == 1
        setup.channel.takes_all = False
        setup.deliver(b"b", b"c")
        assert setup.responses == [b"a", b"b", b"c"]
        assert timing.count == 1
        setup.channel.drain()
        assert timing.count == 3


@scenario(run_on_loop)
async def test_measured_responses_to_a_peer_that_never_drains_are_limited() -> None:
    async with setting() as setup:
        timing = setup.handler.timing = Sent()
        setup.channel.takes_all = False
        for _ in range(TIMINGS_MAX):
            assert timing.count == 0
            setup.deliver(b"a")
        assert timing.count == TIMINGS_MAX


@scenario(run_on_loop)
async def test_time_of_receipt_is_that_of_the_last_bytes() -> None:
    async with setting() as setup:
        setup.channel.deliver(framed(b"first")[:5])
        setup.clock.now_ms += 1_000
        setup.channel.deliver(framed(b"first")[5:])
        assert setup.handler.handled == [b"first"]
        assert setup.handler.received_ns == setup.clock.mono_ns()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (framed(b"x"), "rejected"),
        (framed(b"!"), "internal_error"),
        ((1 << 30).to_bytes(4, "big"), "frame_too_large"),
    ],
)
@scenario(run_on_loop)
async def test_closed_connections_are_counted_by_cause(data: bytes, cause: str) -> None:
    async with setting() as setup:
        setup.channel.deliver(data)
        await settle()
        counted = gather_all(setup.closed.collect_samples("L")).by_metric[CLOSED]
        assert {labels for labels, count in counted.items() if count} == {("L", cause)}


@scenario(run_on_loop)
async def test_muted_connections_are_counted() -> None:
    async with setting() as setup:
        setup.deliver(b"m")
        assert gather_all(setup.closed.collect_samples("L")).by_metric[THROTTLED]["L",] == 1
