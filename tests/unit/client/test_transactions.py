"""Transactions on simulated clusters, with both protocols: atomic despite failures, one producer
for each transactional id."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client.coordinators import Coordinator, CoordinatorType
from lograft.client.errors import ClientError, ProducerFenced, TransactionFailed, WrongUse
from lograft.client.producer import Producer
from lograft.client.producing import transactions
from lograft.client.producing.prepared_transactions import (
    PreparedTransaction,
    complete_transactions,
)
from lograft.client.retries import retry
from lograft.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from lograft.simulation.client import ErrorResponse
from lograft.simulation.node_workload import Reader, TopicPlan
from lograft.testing import VirtualCluster
from lograft.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, Producer], Awaitable[None]]


@pytest.fixture(params=["first protocol", "second protocol"], autouse=True)
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "first protocol":
        monkeypatch.setattr(transactions, "_FEATURE", "a feature that no cluster has")
    name: str = request.param
    return name


def producer_of(cluster: VirtualCluster, name: str = "id", **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": ",".join(map(str, cluster.bootstrap())),
            "transactional.id": name,
            "linger.ms": 1,
            "request.timeout.ms": 3_000,
        },
        runtime=cluster.client_runtime(),
        **settings,
    )


def cluster_of(nodes: int, seed: int = 5) -> VirtualCluster:
    replicas = str(nodes)
    return VirtualCluster(
        nodes=nodes,
        seed=seed,
        properties={
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
        },
    )


def play(scenario: Scenario, *, nodes: int = 1, seed: int = 5, **settings: Any) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=2, replication_factor=nodes)
        async with producer_of(cluster, **settings) as producer:
            await scenario(cluster, producer)

    cluster_of(nodes, seed).play(main)


async def read_committed(cluster: VirtualCluster, partition: int, topic: str = "t") -> list[str]:
    """Returns the committed values, once no transaction is open."""
    client = cluster.test_client("reader")

    async def attempt() -> list[str]:
        route = client.cluster.partition(topic, partition)
        reader = Reader(route, TopicPlan(topic, 0, {}), partition, 12)
        values: list[str] = []
        position = 0
        while True:
            data, records, _ = await reader.fetch(
                position, bytes_max=1 << 20, wait_ms=0, isolation_level=1
            )
            if data.error_code:
                raise ErrorResponse(data.error_code)
            if data.last_stable_offset < data.high_watermark:
                raise ErrorResponse(14)  # markers are pending
            values += [value for _, value in records]
            if position >= data.high_watermark:
                return values
            position = reader.next_offset

    return await client.retry(attempt)


async def run_in_aborted_transaction(producer: Producer, work: Awaitable[object]) -> None:
    """Awaits the work in a transaction, and aborts it."""
    try:
        async with producer.transaction():
            await work
            raise KeyError("on purpose")
    except KeyError:
        pass


async def group_offsets(producer: Producer, group: str) -> dict[tuple[str, int], int]:
    coordinator = Coordinator(producer._open_core(), CoordinatorType.GROUP, group)

    async def attempt() -> dict[tuple[str, int], int]:
        response = await coordinator.request(
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
            ),
            OffsetFetchResponse,
            at_least=8,
            at_most=9,
        )
        found = response.groups[0]
        coordinator.raise_for(found.error_code, group)
        offsets = {}
        for topic in found.topics:
            for partition in topic.partitions:
                coordinator.raise_for(partition.error_code, group)
                offsets[topic.name, partition.partition_index] = partition.committed_offset
        return offsets

    return await retry(producer._open_core(), attempt, what="offsets", timeout_ms=60_000)


@scenario(play)
async def test_transactions_are_atomic(cluster: VirtualCluster, producer: Producer, /) -> None:
    for number in range(6):
        await producer.begin_transaction()
        for partition in (0, 1):
            await producer.enqueue("t", b"%d" % number, partition=partition)
        if number % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    for partition in (0, 1):
        assert await read_committed(cluster, partition) == ["0", "2", "4"]


@scenario(play)
async def test_transaction_block_commits_at_its_end_and_aborts_on_exception(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    async with producer.transaction():
        await producer.send("t", b"kept", partition=0)
    await run_in_aborted_transaction(producer, producer.send("t", b"dropped", partition=0))
    async with producer.transaction():
        await producer.send("t", b"kept too", partition=0)
    assert await read_committed(cluster, 0) == ["kept", "kept too"]


@scenario(play)
async def test_empty_transaction_ends_without_requests(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    async with producer.transaction():
        pass
    await producer.begin_transaction()
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("t", b"v", partition=0)
    assert await read_committed(cluster, 0) == ["v"]


@scenario(play)
async def test_invalid_calls_raise_wrong_use(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    with pytest.raises(WrongUse, match="no transaction has been started"):
        await producer.commit_transaction()
    with pytest.raises(WrongUse, match="send records after begin_transaction"):
        await producer.send("t", b"v")
    await producer.begin_transaction()
    with pytest.raises(WrongUse, match="cannot begin: a transaction is open"):
        await producer.begin_transaction()
    await producer.commit_transaction()
    with pytest.raises(WrongUse, match="cannot abort: no transaction is open"):
        await producer.abort_transaction()


@scenario(play)
async def test_newer_producer_fences_the_older_one(
    cluster: VirtualCluster, old: Producer, /
) -> None:
    await old.begin_transaction()
    await old.send("t", b"old", partition=0)
    async with producer_of(cluster) as new:
        async with new.transaction():
            await new.send("t", b"new", partition=0)
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()
        for call in (old.begin_transaction, old.commit_transaction, old.abort_transaction):
            with pytest.raises(ProducerFenced):
                await call()
        with pytest.raises(ProducerFenced):
            await old.send("t", b"late", partition=0)
        async with new.transaction():
            await new.send("t", b"newer", partition=0)
    assert await read_committed(cluster, 0) == ["new", "newer"]


@scenario(play)
async def test_failed_record_requires_abort_and_producer_stays_usable(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    admin = cluster.test_client("second")
    await admin.create_topic("small", configs={"max.message.bytes": "300"})
    for number in range(3):
        await producer.begin_transaction()
        await producer.send("t", b"dropped", partition=0)
        too_large = await producer.enqueue("small", b"v" * 500)
        with pytest.raises(TransactionFailed, match="abort it and begin a new one"):
            await producer.commit_transaction()
        with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
            await too_large
        with pytest.raises(TransactionFailed):
            await producer.send("t", b"late", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"%d" % number, partition=0)
    assert await read_committed(cluster, 0) == ["0", "1", "2"]


@scenario(play)
async def test_offsets_are_committed_with_the_transaction(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    async with producer.transaction():
        await producer.send("t", b"one", partition=0)
        await producer.send_offsets({TopicPartition("t", 1): 7}, "readers")
    offsets = {TopicPartition("t", 1): OffsetAndMetadata(9, "note")}
    await run_in_aborted_transaction(
        producer, producer.send_offsets(offsets, GroupMetadata("readers"))
    )
    assert await group_offsets(producer, "readers") == {("t", 1): 7}
    async with producer.transaction():
        await producer.send_offsets({TopicPartition("t", 0): 3}, "readers")
    assert await read_committed(cluster, 0) == ["one"]
    assert await group_offsets(producer, "readers") == {("t", 0): 3, ("t", 1): 7}


@scenario(play)
async def test_offsets_of_unknown_member_require_abort(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    stranger = GroupMetadata("readers", generation=3, member_id="unknown")
    await producer.begin_transaction()
    await producer.send("t", b"dropped", partition=0)
    with pytest.raises(ClientError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"):
        await producer.send_offsets({TopicPartition("t", 1): 7}, stranger)
    with pytest.raises(TransactionFailed):
        await producer.commit_transaction()
    await producer.abort_transaction()
    async with producer.transaction():
        await producer.send("t", b"kept", partition=0)
    assert await read_committed(cluster, 0) == ["kept"]


@scenario(play, nodes=3)
async def test_broker_failures_do_not_split_transactions(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    expected = []
    for number in range(24):
        if number % 8 == 3:
            victim = cluster.leader_of("t", number % 2)
            cluster.kill(victim)
            cluster.loop.call_later_ns(4_000_000_000, cluster.boot, victim)
        try:
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.send("t", b"%d" % number, partition=partition)
                if number % 3 == 2:
                    raise KeyError
        except KeyError:
            continue
        expected.append(f"{number}")
    for partition in (0, 1):
        assert await read_committed(cluster, partition) == expected


def test_close_aborts_open_transaction() -> None:
    async def main(cluster: VirtualCluster) -> None:
        await cluster.test_client("admin").create_topic("t")
        async with producer_of(cluster) as producer:
            await producer.begin_transaction()
            await producer.send("t", b"sent", partition=0)
            waiting = await producer.enqueue("t", b"waiting", partition=0)
        with pytest.raises(TransactionFailed, match="aborted"):
            waiting.result()
        assert await read_committed(cluster, 0) == []

    cluster_of(1).play(main)


@scenario(play, max_block_ms=2000)
async def test_commit_can_be_retried_after_timeout(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.begin_transaction()
    await producer.send("t", b"v", partition=0)
    cluster.pause(1)
    with pytest.raises(ClientError, match="committing the transaction timed out after"):
        await producer.commit_transaction()
    with pytest.raises(WrongUse, match="call commit_transaction again"):
        await producer.abort_transaction()
    cluster.resume(1)
    await producer.commit_transaction()
    assert await read_committed(cluster, 0) == ["v"]


@scenario(play)
async def test_cancelled_transaction_block_is_aborted(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    async def write() -> None:
        async with producer.transaction():
            await producer.send("t", b"dropped", partition=0)
            await asyncio.Event().wait()

    task = asyncio.ensure_future(write())
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with producer.transaction():
        await producer.send("t", b"kept", partition=0)
    assert await read_committed(cluster, 0) == ["kept"]


async def complete(
    cluster: VirtualCluster, *prepared: PreparedTransaction, commits: bool = True
) -> None:
    settings = {"bootstrap.servers": ",".join(map(str, cluster.bootstrap()))}
    runtime = cluster.client_runtime("driver")
    await complete_transactions(settings, prepared, commits=commits, runtime=runtime)


@scenario(play)
async def test_prepared_transaction_is_completed_by_another_client(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.begin_transaction()
    await producer.enqueue("t", b"kept", partition=0)
    kept = await producer.prepare_transaction()
    with pytest.raises(WrongUse, match="complete it with complete_transactions"):
        await producer.send("t", b"too late", partition=0)
    await producer.close()
    await complete(cluster, kept)
    await complete(cluster, kept)  # idempotent
    async with producer_of(cluster) as other:
        await other.begin_transaction()
        await other.enqueue("t", b"dropped", partition=0)
        dropped = await other.prepare_transaction()
    await complete(cluster, dropped, commits=False)
    assert await read_committed(cluster, 0) == ["kept"]


@scenario(play)
async def test_newer_producer_fences_prepared_transaction(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.begin_transaction()
    await producer.enqueue("t", b"lost", partition=0)
    lost = await producer.prepare_transaction()
    async with producer_of(cluster) as newer:
        await newer.init_transactions()
        with pytest.raises(ProducerFenced):
            await complete(cluster, lost)
        await complete(cluster, lost, commits=False)
    assert await read_committed(cluster, 0) == []


@scenario(play)
async def test_empty_prepared_transaction_is_completed_without_requests(
    cluster: VirtualCluster, producer: Producer, /
) -> None:
    await producer.begin_transaction()
    prepared = await producer.prepare_transaction()
    assert prepared.is_empty
    await complete(cluster, prepared)
