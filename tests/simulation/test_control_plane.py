"""Many brokers and one active controller: whole nodes on simulated machines."""

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

#: Three controllers that are nothing else, and three brokers.
APART = ("controller",) * 3 + ("broker",) * 3
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
    reply = await cluster.client().request_to(
        Address(f"n{at}", BROKER_PORT),
        CreateTopicsRequest(topics=[topic], timeout_ms=20_000),
        7,
        CreateTopicsResponse,
        timeout_ms=30_000,
    )
    return reply.topics[0].error_code


def broker(cluster: SimulatedCluster, node_id: int) -> BrokerState:
    return cluster.image.brokers[node_id]


def now_ms(cluster: SimulatedCluster) -> int:
    return cluster.loop.now_ns // 1_000_000


@pytest.mark.parametrize("roles", [(), APART], ids=["combined", "apart"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_broker_takes_what_the_controller_decides(roles: tuple[str, ...], seed: int) -> None:
    async def work(cluster: SimulatedCluster) -> None:
        brokers = [i for i, role in cluster.roles.items() if "broker" in role]
        for node_id in brokers:
            assert await create(cluster, f"t{node_id}", at=node_id, replicas=3) == 0
            # The broker that was asked knows it already.
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
async def test_topics_on_demand_and_producer_ids_come_from_far(
    cluster: SimulatedCluster, /
) -> None:
    ids: list[int] = []
    for node_id in cluster.hosts:
        address, client = Address(f"n{node_id}", BROKER_PORT), cluster.client()
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"made-{node_id}")])
        answer = await client.request_to(address, asked, 9, MetadataResponse, timeout_ms=10_000)
        assert [topic.error_code for topic in answer.topics] == [0]
        assert sorted(known.node_id for known in answer.brokers) == [1, 2, 3]
        assert answer.controller_id in (1, 2, 3)
        given = await client.request_to(
            address,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            4,
            InitProducerIdResponse,
            timeout_ms=10_000,
        )
        assert given.error_code == 0
        ids.append(given.producer_id)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("roles", [(), APART], ids=["combined", "apart"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_controller_is_replaced_and_the_next_topic_is_created(
    roles: tuple[str, ...], seed: int
) -> None:
    async def work(cluster: SimulatedCluster) -> None:
        first = cluster.controller_id
        assert await create(cluster, "before", at=max(cluster.hosts)) == 0
        cluster.kill(first)
        asked = next(i for i, r in cluster.roles.items() if "broker" in r and i != first)
        start_ms = now_ms(cluster)
        assert await create(cluster, "after", at=asked) == 0
        assert now_ms(cluster) - start_ms < 5_000
        assert cluster.controller_id != first
        if not roles:
            # Its broker was in the same process: the new controller finds nobody there.
            await cluster.wait_for(lambda: broker(cluster, first).fenced, seconds=1)
            assert now_ms(cluster) - start_ms < SESSION_MS

    run(work, nodes=len(roles) or 3, roles=roles, seed=seed)


@pytest.mark.parametrize("how", ["kill", "pause", "stop", "isolate"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@scenario(run, nodes=6, roles=APART)
async def test_nothing_is_created_twice_or_forgotten_when_the_controller_changes(
    cluster: SimulatedCluster, /, how: str, seed: int
) -> None:
    """Every broker is asked for the same topics while the controller goes; it comes back, too."""
    acknowledged: set[str] = set()

    async def ask(at: int) -> None:
        for number in range(30):
            code = await create(cluster, f"t{number}", at=at)
            assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
            if code != ErrorCode.REQUEST_TIMED_OUT:
                acknowledged.add(f"t{number}")

    tasks = [cluster.loop.create_task(ask(at), name=f"at {at}") for at in (4, 5, 6)]
    await asyncio.sleep(0.05)
    first = cluster.controller_id
    match how:
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
async def test_a_combined_node_forwards_to_its_successor_what_it_could_not_commit(
    cluster: SimulatedCluster, /, seed: int
) -> None:
    """The active controller is cut off while its own broker and the others forward to it. What it
    had decided is not committed, and goes to the next controller when the cut is over."""
    first = cluster.controller_id
    made: dict[str, int] = {}

    async def ask(at: int) -> None:
        for number in range(40):
            name = f"t{number}"
            code = await create(cluster, name, at=at, replicas=3)
            assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), (name, at, code)
            if code == 0:
                # The broker that was asked knows it already, wherever it was decided.
                assert cluster.node(at).shared.image.topic(name) is not None, (name, at)
            made[name] = made.get(name, 0) + (code == 0)

    tasks = [cluster.loop.create_task(ask(at), name=f"at {at}") for at in cluster.hosts]
    await asyncio.sleep(0.02 * seed)
    cluster.isolate(first)
    await cluster.wait_for(lambda: cluster.controller_id not in (first, None), seconds=20)
    await asyncio.sleep(0.5)
    cluster.heal()
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()
    assert value_of(cluster.node(first), REPEATS) > 0
    # A retry may find what its first attempt has created, but nobody creates it twice.
    assert made.keys() == {f"t{number}" for number in range(40)}
    assert max(made.values()) == 1
    await cluster.wait_for(
        lambda: len({node.shared.image.offset for node in cluster.nodes().values()}) == 1,
        seconds=10,
    )
    ids = [node.shared.image.topic_ids for node in cluster.nodes().values()]
    assert all(each == ids[0] for each in ids)
    assert set(ids[0]) == made.keys()


@pytest.mark.parametrize("roles", [(), APART], ids=["combined", "apart"])
def test_a_killed_broker_is_fenced_at_once_and_comes_back(roles: tuple[str, ...]) -> None:
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
@scenario(run, nodes=5, roles=APART[:5], min_insync_replicas="2")
async def test_after_a_kill_a_replica_is_trusted_after_a_power_loss_it_is_not(
    cluster: SimulatedCluster, /, end: str
) -> None:
    """Both replicas of a partition go; the one that had left the ISR comes back alone."""
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
        # The last one that led has at least what the others have.
        cluster.boot(last)
        await cluster.wait_for(lambda: state().leader == last, seconds=10)


@scenario(run)
async def test_a_paused_broker_is_left_to_the_session_timeout(cluster: SimulatedCluster, /) -> None:
    victim = next(i for i in cluster.hosts if i != cluster.controller_id)
    cluster.pause(victim)
    await asyncio.sleep(SESSION_MS / 1000 * 0.6)
    assert not broker(cluster, victim).fenced
    # (The other nodes' view: the paused one sees nothing.)
    await cluster.wait_for(lambda: broker(cluster, victim).fenced, seconds=SESSION_MS / 1000)
    cluster.resume(victim)
    await cluster.wait_for(lambda: not broker(cluster, victim).fenced, seconds=5)


@pytest.mark.parametrize("is_controller", [True, False])
@scenario(run)
async def test_a_stopping_broker_hands_over_before_it_goes(
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


@scenario(run, nodes=6, roles=APART)
async def test_who_is_in_the_cluster_is_told_everywhere(cluster: SimulatedCluster, /) -> None:
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

    some = await describe(4, BROKER_PORT, include_fenced_brokers=False)
    assert sorted(known.broker_id for known in some.brokers) == [4, 5]
    assert some.controller_id in (4, 5)
    everybody = await describe(4, BROKER_PORT, include_fenced_brokers=True)
    assert {known.broker_id: known.is_fenced for known in everybody.brokers} == {
        node_id: node_id == 6 for node_id in brokers
    }
    for at in (1, 2, 3):
        told = await describe(at, CONTROLLER_PORT, endpoint_type=CONTROLLERS)
        assert sorted(known.broker_id for known in told.brokers) == [1, 2, 3]
        assert told.controller_id == cluster.controller_id
    gone = await cluster.client().request_to(
        Address("n5", BROKER_PORT),
        UnregisterBrokerRequest(broker_id=6),
        0,
        UnregisterBrokerResponse,
        timeout_ms=5_000,
    )
    assert gone.error_code == 0
    await cluster.wait_for(lambda: 6 not in cluster.image.brokers, seconds=1)


@scenario(run)
async def test_without_a_majority_the_client_is_told_so(cluster: SimulatedCluster, /) -> None:
    cluster.kill(2)
    cluster.kill(3)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    reply = await cluster.client().request_to(
        Address("n1", BROKER_PORT),
        CreateTopicsRequest(topics=[topic], timeout_ms=4_000),
        7,
        CreateTopicsResponse,
        timeout_ms=30_000,
    )
    assert reply.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.boot(2)
    await cluster.wait_serving(2)
    code = await create(cluster, "t", at=1)
    # The first try may have been written and is committed now.
    assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
