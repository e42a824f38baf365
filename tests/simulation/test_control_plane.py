"""Tests of several brokers with an active controller, on simulated machines."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lograft.broker.links.controller_link import REPEATS
from lograft.metadata.types import BrokerState, PartitionState
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.model.seams import Address
from lograft.simulation.cluster import BROKER_PORT, CONTROLLER_PORT, SimulatedCluster
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from lograft.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.support.scenarios import scenario

#: Three controllers and three brokers as separate nodes.
SEPARATE_ROLES = ("controller",) * 3 + ("broker",) * 3
SESSION_MS = 3_000
CONTROLLERS = 2

Work = Callable[[SimulatedCluster], Awaitable[None]]


def run(
    work: Work, *, nodes: int = 3, roles: tuple[str, ...] = (), seed: int = 1, **properties: str
) -> None:
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    cluster = SimulatedCluster(nodes, seed=seed, roles=roles, properties=settings)

    async def main() -> None:
        await cluster.start()
        await work(cluster)

    cluster.run(main())


async def create(
    cluster: SimulatedCluster, name: str, *, at: int, replicas: int = 1, partitions: int = 1
) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    response = await cluster.client().request_to(
        Address(f"n{at}", BROKER_PORT),
        CreateTopicsRequest(topics=[topic], timeout_ms=20_000),
        7,
        CreateTopicsResponse,
        timeout_ms=30_000,
    )
    return response.topics[0].error_code


def broker(cluster: SimulatedCluster, node_id: int) -> BrokerState:
    return cluster.image.brokers[node_id]


def now_ms(cluster: SimulatedCluster) -> int:
    return cluster.loop.now_ns // 1_000_000


@pytest.mark.parametrize("roles", [(), SEPARATE_ROLES], ids=["combined", "separate"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_broker_applies_the_controllers_decisions(roles: tuple[str, ...], seed: int) -> None:
    async def work(cluster: SimulatedCluster) -> None:
        brokers = [i for i, role in cluster.roles.items() if "broker" in role]
        for node_id in brokers:
            assert await create(cluster, f"t{node_id}", at=node_id, replicas=3) == 0
            # The broker that received the request has already applied the metadata.
            assert cluster.node(node_id).shared.image.topic(f"t{node_id}") is not None
        for node_id in brokers:
            code = await create(cluster, f"t{brokers[0]}", at=node_id)
            assert code == ErrorCode.TOPIC_ALREADY_EXISTS
        names = {f"t{node_id}" for node_id in brokers}
        await cluster.wait_for(
            lambda: all(set(n.shared.image.topic_ids) == names for n in cluster.nodes().values()),
            seconds=5,
        )

    run(work, nodes=len(roles) or 3, roles=roles, seed=seed)


@scenario(run, default_replication_factor="1")
async def test_auto_created_topics_and_producer_ids_work_on_every_broker(
    cluster: SimulatedCluster, /
) -> None:
    ids: list[int] = []
    for node_id in cluster.hosts:
        address, client = Address(f"n{node_id}", BROKER_PORT), cluster.client()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"created-{node_id}")])
        response = await client.request_to(address, request, 9, MetadataResponse, timeout_ms=10_000)
        assert [topic.error_code for topic in response.topics] == [0]
        assert sorted(node.node_id for node in response.brokers) == [1, 2, 3]
        assert response.controller_id in (1, 2, 3)
        producer = await client.request_to(
            address,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            4,
            InitProducerIdResponse,
            timeout_ms=10_000,
        )
        assert producer.error_code == 0
        ids.append(producer.producer_id)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("roles", [(), SEPARATE_ROLES], ids=["combined", "separate"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_controller_is_replaced_and_the_next_topic_is_created(
    roles: tuple[str, ...], seed: int
) -> None:
    async def work(cluster: SimulatedCluster) -> None:
        first = cluster.controller_id
        assert await create(cluster, "before", at=max(cluster.hosts)) == 0
        cluster.kill(first)
        request = next(i for i, r in cluster.roles.items() if "broker" in r and i != first)
        start_ms = now_ms(cluster)
        assert await create(cluster, "after", at=request) == 0
        assert now_ms(cluster) - start_ms < 5_000
        assert cluster.controller_id != first
        if not roles:
            # Its broker was in the same process: the new controller cannot connect to it.
            await cluster.wait_for(lambda: broker(cluster, first).fenced, seconds=1)
            assert now_ms(cluster) - start_ms < SESSION_MS

    run(work, nodes=len(roles) or 3, roles=roles, seed=seed)


@pytest.mark.parametrize("fault", ["kill", "pause", "stop", "isolate"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@scenario(run, nodes=6, roles=SEPARATE_ROLES)
async def test_topics_are_created_exactly_once_when_the_controller_changes(
    cluster: SimulatedCluster, /, fault: str, seed: int
) -> None:
    """Every broker receives requests for the same topics while the controller fails and returns."""
    acknowledged: set[str] = set()

    async def create_topics(at: int) -> None:
        for number in range(30):
            code = await create(cluster, f"t{number}", at=at)
            assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
            if code != ErrorCode.REQUEST_TIMED_OUT:
                acknowledged.add(f"t{number}")

    tasks = [cluster.loop.create_task(create_topics(at), name=f"at {at}") for at in (4, 5, 6)]
    await asyncio.sleep(0.05)
    first = cluster.controller_id
    match fault:
        case "kill":
            cluster.kill(first)
        case "pause":
            cluster.pause(first)
        case "isolate":
            cluster.isolate(first)
        case _:
            await cluster.stop(first)
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()
    assert len(acknowledged) == 30
    cluster.heal()
    cluster.boot(first)
    await cluster.wait_serving(first)
    assert await create(cluster, "last", at=4) == 0
    await cluster.wait_for(
        lambda: all(node.shared.image.topic("last") for node in cluster.nodes().values()),
        seconds=10,
    )
    ids = [node.shared.image.topic_ids for node in cluster.nodes().values()]
    assert len(ids) == 6
    assert all(each == ids[0] for each in ids)
    assert set(ids[0]) == {*(f"t{number}" for number in range(30)), "last"}


@pytest.mark.parametrize("seed", range(1, 7))
@scenario(run)
async def test_combined_node_forwards_uncommitted_requests_to_its_successor(
    cluster: SimulatedCluster, /, seed: int
) -> None:
    """The active controller is isolated while its own broker and others forward requests to it. Its
    decisions are not committed, and the requests are forwarded to the next controller
    afterwards."""
    first = cluster.controller_id
    created: dict[str, int] = {}

    async def create_topics(at: int) -> None:
        for number in range(40):
            name = f"t{number}"
            code = await create(cluster, name, at=at, replicas=3)
            assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), (name, at, code)
            if code == 0:
                # The broker that received the request has already applied the metadata.
                assert cluster.node(at).shared.image.topic(name) is not None, (name, at)
            created[name] = created.get(name, 0) + (code == 0)

    tasks = [cluster.loop.create_task(create_topics(at), name=f"at {at}") for at in cluster.hosts]
    await asyncio.sleep(0.02 * seed)
    cluster.isolate(first)
    await cluster.wait_for(lambda: cluster.controller_id not in (first, None), seconds=20)
    await asyncio.sleep(0.5)
    cluster.heal()
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()
    assert value_of(cluster.node(first), REPEATS) > 0
    # A retry may find the topic of its first attempt, but no topic is created twice.
    assert created.keys() == {f"t{number}" for number in range(40)}
    assert max(created.values()) == 1
    await cluster.wait_for(
        lambda: len({node.shared.image.offset for node in cluster.nodes().values()}) == 1,
        seconds=10,
    )
    ids = [node.shared.image.topic_ids for node in cluster.nodes().values()]
    assert all(each == ids[0] for each in ids)
    assert set(ids[0]) == created.keys()


@pytest.mark.parametrize("roles", [(), SEPARATE_ROLES], ids=["combined", "separate"])
def test_killed_broker_is_fenced_immediately_and_can_return(roles: tuple[str, ...]) -> None:
    async def work(cluster: SimulatedCluster) -> None:
        await create(cluster, "t", at=max(cluster.hosts), replicas=3, partitions=6)
        victim = next(
            i for i, r in cluster.roles.items() if "broker" in r and i != cluster.controller_id
        )
        before = broker(cluster, victim)
        cluster.kill(victim)
        start_ms = now_ms(cluster)
        await cluster.wait_for(lambda: broker(cluster, victim).fenced, seconds=1)
        assert now_ms(cluster) - start_ms < 300
        topic = cluster.image.topic("t")
        assert topic is not None
        for state in topic.partitions.values():
            assert state.leader not in (victim, -1)
            assert victim not in state.isr
        cluster.boot(victim)
        await cluster.wait_serving(victim, seconds=10)
        assert not broker(cluster, victim).fenced
        assert broker(cluster, victim).epoch > before.epoch

    run(work, nodes=len(roles) or 3, roles=roles)


@pytest.mark.parametrize("end", ["kill", "power"])
@scenario(run, nodes=5, roles=SEPARATE_ROLES[:5], min_insync_replicas="2")
async def test_replica_stays_eligible_after_a_kill_but_not_after_a_power_loss(
    cluster: SimulatedCluster, /, end: str
) -> None:
    """Both replicas of a partition fail; the one that had left the ISR first returns alone."""
    await create(cluster, "t", at=4, replicas=2)

    def state() -> PartitionState:
        topic = cluster.image.topic("t")
        assert topic is not None
        return topic.partitions[0]

    first, last = state().replicas
    lose = cluster.kill if end == "kill" else cluster.lose_power
    for node_id in (first, last):
        lose(node_id)
        await cluster.wait_for(lambda: broker(cluster, node_id).fenced, seconds=10)  # noqa: B023
    assert state().leader == -1
    assert first in state().elr
    cluster.boot(first)
    await cluster.wait_serving(first)
    await asyncio.sleep(1)
    assert (state().leader == first) == (end == "kill")
    if end == "power":
        assert first not in (*state().isr, *state().elr)
        # The last leader has at least the records of the others.
        cluster.boot(last)
        await cluster.wait_for(lambda: state().leader == last, seconds=10)


@scenario(run)
async def test_paused_broker_is_fenced_after_the_session_timeout(
    cluster: SimulatedCluster, /
) -> None:
    victim = next(i for i in cluster.hosts if i != cluster.controller_id)
    cluster.pause(victim)
    await asyncio.sleep(SESSION_MS / 1000 * 0.6)
    assert not broker(cluster, victim).fenced
    # In the view of the other nodes; the paused node receives no metadata.
    await cluster.wait_for(lambda: broker(cluster, victim).fenced, seconds=SESSION_MS / 1000)
    cluster.resume(victim)
    await cluster.wait_for(lambda: not broker(cluster, victim).fenced, seconds=5)


@pytest.mark.parametrize("is_controller", [True, False])
@scenario(run)
async def test_stopping_broker_moves_its_leaders_before_it_exits(
    cluster: SimulatedCluster, /, is_controller: bool
) -> None:
    await create(cluster, "t", at=1, replicas=3, partitions=9)
    await cluster.wait_for(
        lambda: all(node.shared.image.topic("t") for node in cluster.nodes().values())
    )
    leaders = [cluster.leader_of("t", index) for index in range(9)]
    assert set(leaders) == {1, 2, 3}
    active = cluster.controller_id
    victim = active if is_controller else next(i for i in cluster.hosts if i != active)
    seen: set[int] = set()
    watched = asyncio.Event()

    async def watch() -> None:
        while not watched.is_set():
            seen.update(cluster.leader_of("t", index) for index in range(9))
            await asyncio.sleep(0.002)

    task = cluster.loop.create_task(watch(), name="watch")
    start_ms = now_ms(cluster)
    await cluster.stop(victim)
    assert now_ms(cluster) - start_ms < 2_000
    watched.set()
    await task
    assert -1 not in seen
    assert broker(cluster, victim).fenced
    assert victim not in {cluster.leader_of("t", index) for index in range(9)}
    cluster.boot(victim)
    await cluster.wait_serving(victim, seconds=10)


@scenario(run, nodes=6, roles=SEPARATE_ROLES)
async def test_every_node_describes_the_cluster(cluster: SimulatedCluster, /) -> None:
    brokers = [4, 5, 6]
    cluster.kill(6)
    await cluster.wait_for(lambda: broker(cluster, 6).fenced, seconds=1)
    await asyncio.sleep(0.2)

    async def describe(at: int, port: int, **fields: int) -> DescribeClusterResponse:
        request = DescribeClusterRequest(**fields)  # type: ignore[arg-type]
        address, client = Address(f"n{at}", port), cluster.client()
        return await client.request_to(
            address, request, 2, DescribeClusterResponse, timeout_ms=5_000
        )

    unfenced = await describe(4, BROKER_PORT, include_fenced_brokers=False)
    assert sorted(node.broker_id for node in unfenced.brokers) == [4, 5]
    assert unfenced.controller_id in (4, 5)
    all_brokers = await describe(4, BROKER_PORT, include_fenced_brokers=True)
    assert {node.broker_id: node.is_fenced for node in all_brokers.brokers} == {
        node_id: node_id == 6 for node_id in brokers
    }
    for at in (1, 2, 3):
        controllers = await describe(at, CONTROLLER_PORT, endpoint_type=CONTROLLERS)
        assert sorted(node.broker_id for node in controllers.brokers) == [1, 2, 3]
        assert controllers.controller_id == cluster.controller_id
    unregistered = await cluster.client().request_to(
        Address("n5", BROKER_PORT),
        UnregisterBrokerRequest(broker_id=6),
        0,
        UnregisterBrokerResponse,
        timeout_ms=5_000,
    )
    assert unregistered.error_code == 0
    await cluster.wait_for(lambda: 6 not in cluster.image.brokers, seconds=1)


@scenario(run)
async def test_request_times_out_without_a_majority(cluster: SimulatedCluster, /) -> None:
    cluster.kill(2)
    cluster.kill(3)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    response = await cluster.client().request_to(
        Address("n1", BROKER_PORT),
        CreateTopicsRequest(topics=[topic], timeout_ms=4_000),
        7,
        CreateTopicsResponse,
        timeout_ms=30_000,
    )
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.boot(2)
    await cluster.wait_serving(2)
    code = await create(cluster, "t", at=1)
    # The first attempt may have been appended and is committed now.
    assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
