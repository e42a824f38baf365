"""Changes of the ISR, and their requests to the controller."""

import asyncio

from lograft.broker.replicas.isr_changes import REQUESTS, WAITING
from lograft.broker.replicas.replicas import WITH_FOLLOWERS
from lograft.model.metrics import value_of
from tests.support.scenarios import scenario
from tests.unit.broker.bench import batch_of
from tests.unit.broker.replicas.replica_bench import Cluster, run_cluster

TOPICS = ("a", "b", "c", "d", "e")


async def make_topics(cluster: Cluster) -> None:
    for name in TOPICS:
        cluster.create_topic(name, 1, 2, 3, min_insync_replicas="2")
    for name in TOPICS:
        await cluster.until_led(name)


def append_to_all(cluster: Cluster) -> None:
    for name in TOPICS:
        batch = memoryview(bytearray(batch_of(b"x")))
        cluster.nodes[1].partition(name).append(batch, now_ms=1_767_225_600_000)


def requests(cluster: Cluster) -> float:
    return value_of(cluster.nodes[1].broker.replicas, REQUESTS)


@scenario(run_cluster)
async def test_many_partitions_go_in_one_request(cluster: Cluster, /) -> None:
    await make_topics(cluster)
    await asyncio.sleep(1)
    before = requests(cluster)
    cluster.network.cut("n1", "n3")
    append_to_all(cluster)
    await cluster.until(lambda: all(3 not in cluster.state(name).isr for name in TOPICS))
    assert requests(cluster) - before <= 2


@scenario(run_cluster)
async def test_what_was_not_answered_is_asked_again(cluster: Cluster, /) -> None:
    await make_topics(cluster)
    cluster.controller.unreachable = True
    cluster.network.cut("n1", "n3")
    append_to_all(cluster)
    await asyncio.sleep(5)
    leader = cluster.nodes[1].partition("a")
    assert leader.high_watermark == 0, "the third replica counts until the controller says so"
    assert 3 in cluster.state("a").isr
    asked = requests(cluster)
    assert 10 < asked < 200
    cluster.controller.unreachable = False
    await cluster.until(lambda: all(3 not in cluster.state(name).isr for name in TOPICS))
    await cluster.until(lambda: leader.high_watermark == 1)
    assert value_of(cluster.nodes[1].broker.replicas, WAITING) == 0


@scenario(run_cluster)
async def test_a_proposal_of_an_earlier_leadership_is_dropped(cluster: Cluster, /) -> None:
    await make_topics(cluster)
    cluster.controller.unreachable = True
    cluster.network.cut("n1", "n3")
    append_to_all(cluster)
    await asyncio.sleep(3)
    cluster.fence(1)
    await cluster.until(lambda: cluster.nodes[1].partition("a").leader is None)
    cluster.controller.unreachable = False
    await asyncio.sleep(1)
    replicas = cluster.nodes[1].broker.replicas
    assert value_of(replicas, WAITING) == 0
    assert value_of(replicas, WITH_FOLLOWERS) == 0
    assert 3 in cluster.state("a").isr
