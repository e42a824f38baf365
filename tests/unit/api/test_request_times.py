"""The stages of requests, and estimates from those that are measured."""

import asyncio
import sys
from types import ModuleType
from typing import Any, cast

import pytest

from lograft.api.context import Api, Context
from lograft.api.request_times import (
    ALL_MEASURED,
    FAST_INTERVAL,
    FOLLOWER_FETCH,
    GENERAL_INTERVAL,
    REQUEST_SECONDS,
    STAGE_SECONDS,
    STAGES,
)
from lograft.api.router import FAST_PATH_REQUESTS, REQUESTS, Router, Session
from lograft.api.types import NOTHING
from lograft.broker.shared_services import SharedServices
from lograft.model.exchange import EncodedResponse, PendingReply
from lograft.model.metrics import Buckets, Metric, MetricSource, gather_all
from lograft.model.seams import Address, Channel
from lograft.testing import VirtualCluster
from lograft.wire.apis import API_VERSIONS
from lograft.wire.headers import frame_request
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.clocks import OnlyClock
from tests.support.scenarios import run_in_virtual_cluster, scenario

HEARTBEAT = 12


class Peer:
    peer = Address("10.0.0.1", 4711)


class Heartbeats:
    """A connection whose handler takes 20 ms, and its response another 30 ms if it waits."""

    def __init__(self) -> None:
        self.services = OnlyClock()
        self.waits = False
        self.router = Router(
            cast(SharedServices, self.services),
            None,
            listener="PLAINTEXT",
            served=(API_VERSIONS[HEARTBEAT],),
        )
        self.session: Session = self.router(cast(Channel, Peer()))

    def pass_ms(self, count: int) -> None:
        self.services.clock.now_ms += count

    def handle(self, context: Context, request: HeartbeatRequest) -> Any:
        self.pass_ms(20)
        return self._later() if self.waits else HeartbeatResponse()

    async def _later(self) -> HeartbeatResponse:
        await asyncio.sleep(0)
        self.pass_ms(30)
        return HeartbeatResponse()

    def send(self) -> EncodedResponse:
        """Receives a request, which is handled 5 ms later; its response is sent 7 ms after it was
        completed."""
        self.session.received_ns = self.services.clock.mono_ns()
        self.pass_ms(5)
        request = frame_request(HeartbeatRequest(), 4, correlation_id=1, client_id="me")
        reply = self.session.handle_frame(memoryview(bytearray(request))[4:])
        if isinstance(reply, PendingReply):
            reply = asyncio.run(cast(Any, reply.response))
        assert isinstance(reply, EncodedResponse)
        self.pass_ms(7)
        if reply.timing is not None:
            reply.timing.on_sent()
        return reply


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> Heartbeats:
    created = Heartbeats()
    module = ModuleType("lograft.api.heartbeat")
    module.handle = created.handle  # type: ignore[attr-defined]
    module.API = Api(key=0, versions=range(0), needs=NOTHING)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return created


def buckets(source: MetricSource, metric: Metric, *labels: str) -> Buckets:
    found = gather_all(source.collect_samples()).by_metric[metric][labels]
    assert isinstance(found, Buckets)
    return found


def stages_ms(source: MetricSource, api: str) -> list[float]:
    sums = [buckets(source, STAGE_SECONDS, api, stage).sum for stage in STAGES]
    assert sum(sums) == pytest.approx(buckets(source, REQUEST_SECONDS, api).sum)
    return [round(seconds * 1000, 3) for seconds in sums]


def test_request_without_a_wait(heartbeats: Heartbeats) -> None:
    heartbeats.send()
    assert stages_ms(heartbeats.router, "Heartbeat") == [5, 20, 0, 7]


def test_request_that_waits(heartbeats: Heartbeats) -> None:
    heartbeats.waits = True
    heartbeats.send()
    assert stages_ms(heartbeats.router, "Heartbeat") == [5, 20, 30, 7]


def test_later_requests_are_estimated_from_some(heartbeats: Heartbeats) -> None:
    replies = [heartbeats.send() for _ in range(ALL_MEASURED + 10 * GENERAL_INTERVAL)]
    measured = [reply.timing is not None for reply in replies]
    assert all(measured[:ALL_MEASURED])
    assert sum(measured[ALL_MEASURED:]) == 10
    assert sum(buckets(heartbeats.router, REQUEST_SECONDS, "Heartbeat").counts) == len(replies)
    assert stages_ms(heartbeats.router, "Heartbeat")[1] == pytest.approx(20 * len(replies))


def series(cluster: VirtualCluster, metric: Metric, *labels: str) -> float:
    """Returns the sum over all nodes; of a histogram, the number of observations."""
    total = 0.0
    for node in cluster.nodes().values():
        for found, value in gather_all(node.collect_samples()).by_metric.get(metric, {}).items():
            if set(labels) <= set(found):
                total += sum(value.counts) if isinstance(value, Buckets) else value
    return total


@scenario(run_in_virtual_cluster, nodes=3)
async def test_requests_of_the_fast_path_are_measured(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t", replication_factor=3)
    for _ in range(20):
        await client.produce("t", 0, [b"v"])
    leader = cluster.node(cluster.leader_of("t", 0))
    assert series(cluster, FAST_PATH_REQUESTS, "Produce") > 15
    assert series(cluster, REQUESTS, "Produce") == 20
    assert series(cluster, REQUEST_SECONDS, "Produce") == 20
    # A follower has to fetch each record over the simulated network.
    assert buckets(leader, STAGE_SECONDS, "Produce", "remote").sum > 0.001
    assert series(cluster, REQUEST_SECONDS, FOLLOWER_FETCH) > 10


@scenario(run_in_virtual_cluster, nodes=1)
async def test_later_requests_of_the_fast_path_are_estimated(cluster: VirtualCluster, /) -> None:
    client = cluster.test_client()
    await client.create_topic("t")
    count = ALL_MEASURED + 5 * FAST_INTERVAL
    for _ in range(count):
        await client.produce("t", 0, [b"v"])
    fast = cluster.node(1)._routers["PLAINTEXT"].fast_paths
    assert fast is not None
    assert fast.produce.served <= fast.produce.timed_at < fast.produce.served + FAST_INTERVAL
    assert count - FAST_INTERVAL < series(cluster, REQUEST_SECONDS, "Produce") < count
