"""Slow requests are logged with their stages, and not more of them than a log can take."""

import logging

import pytest

from lograft.api.request_times import ALL_MEASURED, RequestTimes, RequestTiming
from lograft.api.slow_requests import (
    LINES_PER_SECOND_MAX,
    SLOW_REQUESTS,
    RequestOrigin,
    SlowRequestLog,
)
from lograft.model.metrics import gather_all, value_of
from lograft.model.seams import Address
from lograft.testing import VirtualCluster
from lograft.wire.apis import FETCH_KEY, PRODUCE_KEY
from tests.support.scenarios import run_in_virtual_cluster, scenario

NS = 1_000_000


class World:
    def __init__(self, threshold_ms: int = 100) -> None:
        self.threshold_ms = threshold_ms
        self.log = SlowRequestLog(lambda: self.threshold_ms, "PLAINTEXT")
        self.now_ms = 1

    def handle(
        self, *, local_ms: int = 0, remote_ms: int = 0, key: int = PRODUCE_KEY, client: str = "c"
    ) -> None:
        timing = RequestTiming(
            RequestTimes("Produce"),
            lambda: self.now_ms * NS,
            self.now_ms * NS,
            from_ns=0,
            count=1,
        )
        timing.slow_requests = self.log
        timing.origin = RequestOrigin(key, 9, client, Address("10.0.0.1", 4711), "User:alice")
        timing.from_ns = timing.received_ns
        self.now_ms += local_ms
        timing.on_waiting()
        self.now_ms += remote_ms
        timing.on_completed()
        timing.on_sent()


def test_a_slow_request_is_logged_with_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.handle(local_ms=20, remote_ms=90)
    assert caplog.messages == [
        "slow request: Produce version 9 of client 'c' (User:alice at 10.0.0.1:4711, listener"
        " PLAINTEXT) took 110 ms: queue 0 ms, local 20 ms, remote 90 ms, send 0 ms"
    ]
    assert value_of(world.log, SLOW_REQUESTS, "Produce") == 1


def test_a_fast_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.handle(local_ms=20, remote_ms=70)
    assert caplog.messages == []


def test_waits_for_records_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.handle(remote_ms=500, key=FETCH_KEY)
    assert caplog.messages == []
    world.handle(local_ms=110, remote_ms=500, key=FETCH_KEY)
    assert len(caplog.messages) == 1


def test_lines_are_limited_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    world = World(threshold_ms=0)
    for _ in range(LINES_PER_SECOND_MAX + 5):
        world.handle()
    assert len(caplog.messages) == LINES_PER_SECOND_MAX
    world.now_ms += 1_000
    world.handle()
    assert caplog.messages[-1].endswith("; 5 slow requests before it were not logged")
    assert value_of(world.log, SLOW_REQUESTS, "Produce") == LINES_PER_SECOND_MAX + 6


def test_a_client_id_cannot_forge_or_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    World(threshold_ms=0).handle(client="a\nERROR " + "b" * 10_000)
    assert "\n" not in caplog.messages[0]
    assert len(caplog.messages[0]) < 400


@scenario(run_in_virtual_cluster, nodes=1, properties={"lograft.slow.request.ms": "0"})
async def test_every_request_is_logged_if_every_request_is_slow(
    cluster: VirtualCluster, /, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the fast path, too, and after many that were measured anyway."""
    caplog.set_level(logging.CRITICAL, "lograft.api.slow_requests")
    client, node = cluster.test_client(), cluster.node(1)
    await client.create_topic("t")
    count = 3 * ALL_MEASURED
    for _ in range(count):
        await client.produce("t", 0, [b"v"])
    # The last response may still be in flight.
    logged = gather_all(node.collect_samples()).by_metric[SLOW_REQUESTS]["Produce",]
    assert logged in (count - 1, count)


@scenario(run_in_virtual_cluster, nodes=1)
async def test_the_log_is_disabled_by_default(cluster: VirtualCluster, /) -> None:
    client, node = cluster.test_client(), cluster.node(1)
    await client.create_topic("t")
    await client.produce("t", 0, [b"v"])
    assert SLOW_REQUESTS not in gather_all(node.collect_samples()).by_metric
