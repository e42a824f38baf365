"""`Cluster`: nodes with real sockets, and injected faults."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client.errors import BrokerError, OutcomeUnknown
from lograft.client.producer import Producer
from lograft.model.errors import ErrorCode
from lograft.testing import Cluster, NodeFailed
from tests.support.scenarios import scenario

Scenario = Callable[[Cluster, Producer], Awaitable[None]]


def play(scenario: Scenario, *, nodes: int = 1, **settings: Any) -> None:
    async def main() -> None:
        async with Cluster(nodes=nodes) as cluster:
            cluster.create_topic("t", partitions=2, replication_factor=nodes)
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers, **settings
            ) as producer:
                await scenario(cluster, producer)

    asyncio.run(main())


def end_offset(cluster: Cluster, node_id: int, partition: int = 0) -> int:
    """Returns the log end offset of a replica of topic t."""

    def find(node: Any) -> int:
        (offset,) = [
            replica.log.end_offset
            for replica in node.broker.partitions
            if str(replica.topic_partition) == f"t-{partition}"
        ]
        return int(offset)

    return int(cluster.call(node_id, find))


def test_closing_a_cluster_ends_all_threads() -> None:
    before = set(threading.enumerate())
    with Cluster(nodes=3) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == 3
        assert cluster.controller_id in (1, 2, 3)
        assert len(set(threading.enumerate()) - before) == 3
    assert set(threading.enumerate()) == before


def test_cancelling_the_start_ends_all_threads() -> None:
    before = threading.active_count()

    async def scenario() -> None:
        async def use() -> None:
            async with Cluster(nodes=3):
                raise AssertionError("it was not cancelled")

        using = asyncio.create_task(use())
        # The nodes start in a thread, which continues when the task is cancelled.
        await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait([using])
        assert using.cancelled()

    asyncio.run(scenario())
    assert threading.active_count() == before


def test_calls_for_unknown_nodes_and_errors_are_rejected() -> None:
    with Cluster() as cluster:
        invalid_calls: list[Callable[[], Any]] = [
            lambda: cluster.kill(2),
            lambda: cluster.start(2),
            lambda: cluster.cut(1, 2),
            lambda: cluster.isolate(2),
            lambda: cluster.fill_disk(2),
        ]
        for call in invalid_calls:
            with pytest.raises(ValueError, match="node 2 does not exist"):
                call()
        with pytest.raises(ValueError, match="NOT_ENOUGH"):
            cluster.fail("Produce", "NOT_ENOUGH")  # type: ignore[arg-type]
        cluster.kill(1)
        with pytest.raises(ValueError, match="no node is running"):
            cluster.leader_of("t", 0)


def test_create_topic_raises_the_brokers_error() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        with pytest.raises(ValueError, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topic("t")
        assert cluster.leader_of("t", 0) == 1
        assert cluster.leader_of("t", 7) == -1


@scenario(play)
async def test_records_survive_a_kill_and_a_stop(cluster: Cluster, producer: Producer, /) -> None:
    assert (await producer.send("t", b"one", partition=0)).offset == 0
    cluster.kill(1)
    assert not cluster.is_running(1)
    cluster.start(1)
    assert (await producer.send("t", b"two", partition=0)).offset == 1
    cluster.stop(1)
    cluster.start()
    assert (await producer.send("t", b"three", partition=0)).offset == 2


@scenario(play, nodes=3)
async def test_a_killed_leader_is_replaced(cluster: Cluster, producer: Producer, /) -> None:
    await producer.send("t", b"one", partition=0)
    leader = cluster.leader_of("t", 0)
    cluster.kill(leader)
    assert (await producer.send("t", b"two", partition=0)).offset == 1
    assert cluster.leader_of("t", 0) != leader
    cluster.start(leader)
    assert (await producer.send("t", b"three", partition=0)).offset == 2


@scenario()
async def test_a_power_loss_destroys_unflushed_records() -> None:
    """With one node and no fsync, some of the records are lost for some seed."""

    async def loses_records(seed: int) -> bool:
        async with Cluster(seed=seed) as cluster:
            cluster.create_topic("t")
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for _ in range(10):
                    await asyncio.gather(*(producer.send("t", b"v" * 100) for _ in range(10)))
                cluster.lose_power(1)
                cluster.start(1)
            return end_offset(cluster, 1) < 100

    assert any([await loses_records(seed) for seed in range(8)])


@scenario(play, linger_ms=50)
async def test_requests_fail_by_api_and_partition(cluster: Cluster, producer: Producer, /) -> None:
    fault = cluster.fail("Produce", ErrorCode.INVALID_RECORD, topic="t", partition=1)
    sent = [producer.send("t", b"v", partition=i) for i in (0, 1)]
    delivered, failed = await asyncio.gather(*sent, return_exceptions=True)
    assert not isinstance(delivered, BaseException)
    assert isinstance(failed, BrokerError)
    assert failed.code == ErrorCode.INVALID_RECORD
    assert fault.hits == 1
    assert (await producer.send("t", b"v", partition=1)).offset == 0


@scenario(play)
async def test_a_retriable_error_is_retried(cluster: Cluster, producer: Producer, /) -> None:
    fault = cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=3)
    assert (await producer.send("t", b"v", partition=0)).offset == 0
    assert fault.hits == 3
    assert producer.metrics().value("record-retry-total") == 3


@scenario(play)
async def test_a_request_fails_as_a_whole(cluster: Cluster, producer: Producer, /) -> None:
    fault = cluster.fail("InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
        await producer.send("t", b"v", partition=0)
    assert fault.hits == 1


@scenario(play)
async def test_a_lost_response_or_request_causes_no_duplicate_and_no_gap(
    cluster: Cluster, producer: Producer, /
) -> None:
    await producer.send("t", b"zero", partition=0)
    lost = [cluster.lose_response("Produce"), cluster.lose_request("Produce")]
    assert (await producer.send("t", b"one", partition=0)).offset == 1
    assert [fault.hits for fault in lost] == [1, 1]
    assert (await producer.send("t", b"two", partition=0)).offset == 2


@scenario(play)
async def test_a_delay_postpones_the_response(cluster: Cluster, producer: Producer, /) -> None:
    await producer.send("t", b"v", partition=0)
    fault = cluster.delay("Produce", 0.3, times=None)
    start = asyncio.get_running_loop().time()
    await producer.send("t", b"v", partition=0)
    assert asyncio.get_running_loop().time() - start >= 0.3
    cluster.remove(fault)
    await producer.send("t", b"v", partition=0)
    assert fault.hits == 1


@scenario(play, nodes=3)
async def test_an_isolated_follower_leaves_the_isr_and_catches_up(
    cluster: Cluster, producer: Producer, /
) -> None:
    await producer.send("t", b"zero", partition=0)
    leader = cluster.leader_of("t", 0)
    follower = next(i for i in (1, 2, 3) if i not in (leader, cluster.controller_id))
    cluster.isolate(follower)
    assert (await producer.send("t", b"one", partition=0)).offset == 1
    assert end_offset(cluster, follower) == 1
    cluster.heal()
    while end_offset(cluster, follower) < 2:
        await asyncio.sleep(0.01)


@scenario(play)
async def test_a_cut_link_to_clients_delays_requests_until_it_is_healed(
    cluster: Cluster, producer: Producer, /
) -> None:
    await producer.send("t", b"zero", partition=0)
    cluster.cut(1, 0)
    delivery = await producer.enqueue("t", b"one", partition=0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery.wait(), 0.3)
    cluster.heal()
    assert (await delivery).offset == 1


@scenario(play)
async def test_a_paused_node_responds_after_it_is_resumed(
    cluster: Cluster, producer: Producer, /
) -> None:
    await producer.send("t", b"zero", partition=0)
    cluster.pause(1)
    delivery = await producer.enqueue("t", b"one", partition=0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery.wait(), 0.3)
    cluster.resume(1)
    assert (await delivery).offset == 1


@scenario(play)
async def test_a_node_exits_when_its_disk_is_full_and_restarts_after_heal(
    cluster: Cluster, producer: Producer, /
) -> None:
    await producer.send("t", b"zero", partition=0)
    cluster.fill_disk(1)
    delivery = await producer.enqueue("t", b"one", partition=0)
    await asyncio.to_thread(cluster.wait_ended, 1)
    cluster.heal()
    cluster.start(1)
    assert (await delivery).offset >= 0


def test_a_node_that_fails_by_itself_fails_the_test() -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    def spawn_failing_task(node: Any) -> None:
        node._spawn(fail(), name="bug")

    def run() -> None:
        with Cluster() as cluster:
            cluster.call(1, spawn_failing_task)
            cluster.wait_ended(1)

    with pytest.raises(RuntimeError, match="a bug"):
        run()


def test_invalid_settings_fail_the_start() -> None:
    with (
        pytest.raises(NodeFailed, match="did not start"),
        Cluster(properties={"create.topic.policy.class.name": "x"}),
    ):
        pass


@pytest.mark.parametrize(
    ("api", "topic", "problem"),
    [("Prodcue", None, "unknown API"), ("Heartbeat", "t", "cannot fail for single topics")],
)
def test_invalid_faults_are_rejected(api: str, topic: str | None, problem: str) -> None:
    cluster = Cluster()
    with pytest.raises(ValueError, match=problem):
        cluster.fail(api, ErrorCode.UNKNOWN_SERVER_ERROR, topic=topic)


@scenario(play, retries=0, enable_idempotence=False)
async def test_the_outcome_is_unknown_without_retries(
    cluster: Cluster, producer: Producer, /
) -> None:
    cluster.lose_response("Produce", times=None)
    with pytest.raises(OutcomeUnknown):
        await producer.send("t", b"v", partition=0)
