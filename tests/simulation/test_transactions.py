"""Tests that transactions are atomic despite failures of coordinators and leaders, in both
replication modes and during mode switches."""

import asyncio
from typing import Any, NamedTuple, TypeVar

import pytest

from lograft.broker.coordinators.coordinator_runtime import key_hash
from lograft.model.errors import ErrorCode
from lograft.model.seams import FileSlice
from lograft.model.types import TRANSACTIONS_TOPIC, ReplicationMode
from lograft.simulation.client import ErrorResponse, NotSent, OutcomeUnknown
from lograft.simulation.routing import ClusterClient, PartitionRoute
from lograft.storage.markers import read_marker
from lograft.testing import VirtualCluster
from lograft.wire.batches import Record, build_batch, iterate_headers, iterate_records
from lograft.wire.message import Message
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from lograft.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.scenarios import run_in_virtual_cluster, scenario

M = TypeVar("M", bound=Message)
ID = "x"
COORDINATORS = 2
INDEX = key_hash(ID) % COORDINATORS
TOPIC, PARTITIONS = "t", 3
PROPERTIES = {
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "min.insync.replicas": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
ISR, RAFT = ReplicationMode.ISR, ReplicationMode.RAFT
TIMEOUT_MS = 4_000
TRANSACTION_TIMEOUT_MS = 5_000
PAUSE_SECONDS = 0.03


class SessionLost(Exception):
    """The transaction cannot continue: its producer must initialize again."""


class Outcomes(NamedTuple):
    committed: set[bytes]
    aborted: set[bytes]
    #: Transactions whose outcome is unknown.
    unknown: set[bytes]


class Transactor:
    """Runs transactions, each with its number in every partition; every third one is aborted.
    Records the results in `outcomes`."""

    def __init__(self, client: ClusterClient, *, protocol: int) -> None:
        self._client = client
        self._coordinator = client.partition(TRANSACTIONS_TOPIC, INDEX)
        self._routes = [client.partition(TOPIC, index) for index in range(PARTITIONS)]
        self._protocol = protocol
        self._producer_id, self._epoch = -1, -1
        self._sequences = [0] * PARTITIONS
        self._number = 0
        self.outcomes = Outcomes(set(), set(), set())
        self.is_stopped = False

    async def create_transactions_topic(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=[ID], key_type=1)
        while True:
            try:
                response = await self._client.request(
                    request, 4, FindCoordinatorResponse, timeout_ms=10_000
                )
                if response.coordinators[0].error_code == 0:
                    return
            except (NotSent, OutcomeUnknown):
                self._client.mark_stale()
            await asyncio.sleep(0.1)

    async def run(self) -> None:
        await self.begin()
        while not self.is_stopped:
            try:
                await self.transact(commit=self._number % 3 != 2)
            except SessionLost:
                await self.begin()

    async def wait_for_more(self, cluster: VirtualCluster, count: int = 6) -> None:
        goal = len(self.outcomes.committed) + count
        await cluster.wait_for(lambda: len(self.outcomes.committed) >= goal, seconds=120)

    async def begin(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        while True:
            response = await self._request(self._coordinator, request, 5, InitProducerIdResponse)
            if response is not None and not response.error_code:
                self._producer_id, self._epoch = response.producer_id, response.producer_epoch
                self._sequences = [0] * PARTITIONS
                return
            await self._back_off(self._coordinator)

    async def transact(self, *, commit: bool) -> None:
        value = b"%d" % self._number
        self._number += 1
        self.outcomes.unknown.add(value)
        try:
            if self._protocol == 1:
                await self._add()
            for index in range(PARTITIONS):
                await self._produce(index, value)
        except SessionLost:
            # The commit was never requested: the next session aborts the transaction.
            self._record_outcome(value, self.outcomes.aborted)
            raise
        await self.end(commit=commit)
        self._record_outcome(value, self.outcomes.committed if commit else self.outcomes.aborted)

    def _record_outcome(self, value: bytes, kind: set[bytes]) -> None:
        self.outcomes.unknown.discard(value)
        kind.add(value)

    async def _add(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(PARTITIONS)))
            ],
        )
        for _ in range(100):
            response = await self._request(
                self._coordinator, request, 3, AddPartitionsToTxnResponse
            )
            if response is not None:
                (topic,) = response.results_by_topic_v3_and_below
                code = topic.results_by_partition[0].partition_error_code
                if not code:
                    return
                self._raise_if_fatal(code)
            await self._back_off(self._coordinator)
        raise SessionLost

    async def _produce(self, index: int, value: bytes) -> None:
        batch = build_batch(
            [Record(0, 0, None, value)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[index],
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=ID,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch)]
                )
            ],
        )
        version = 12 if self._protocol == 2 else 11
        for _ in range(100):
            response = await self._request(self._routes[index], request, version, ProduceResponse)
            if response is not None:
                code = response.responses[0].partition_responses[0].error_code
                if not code:
                    self._sequences[index] += 1
                    return
                self._raise_if_fatal(code)
            await self._back_off(self._routes[index])
        raise SessionLost

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        version = 5 if self._protocol == 2 else 3
        for _ in range(100):
            response = await self._request(self._coordinator, request, version, EndTxnResponse)
            if response is not None:
                if not response.error_code:
                    if self._protocol == 2:
                        self._epoch, self._sequences = response.producer_epoch, [0] * PARTITIONS
                    return
                self._raise_if_fatal(response.error_code)
            await self._back_off(self._coordinator)
        raise SessionLost

    async def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[ID])
        while True:
            response = await self._request(
                self._coordinator, request, 0, DescribeTransactionsResponse
            )
            if response is not None and not response.transaction_states[0].error_code:
                return response.transaction_states[0].transaction_state
            await self._back_off(self._coordinator)

    def _raise_if_fatal(self, code: int) -> None:
        if code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ):
            raise SessionLost

    async def _request(
        self, route: PartitionRoute, request: Message, version: int, kind: type[M]
    ) -> M | None:
        try:
            return await route.request(request, version, kind, timeout_ms=TIMEOUT_MS)
        except (NotSent, OutcomeUnknown):
            return None

    async def _back_off(self, route: PartitionRoute) -> None:
        route.mark_stale()
        await asyncio.sleep(PAUSE_SECONDS)


async def read_committed(client: ClusterClient, index: int) -> tuple[list[bytes], bool]:
    """Returns the values, and whether the last stable offset equals the high watermark."""
    route = client.partition(TOPIC, index)
    values: list[bytes] = []
    offset = 0
    while True:
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=0
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        try:
            response = await route.request(request, 11, FetchResponse, timeout_ms=TIMEOUT_MS)
        except (NotSent, OutcomeUnknown):
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        data = response.responses[0].partitions[0]
        if data.error_code:
            assert ErrorResponse(data.error_code).is_retriable, data.error_code
            route.mark_stale()
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        assert not isinstance(data.records, FileSlice)
        records = bytes(data.records or b"")
        if not records:
            return values, data.last_stable_offset == data.high_watermark
        aborted = {(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()}
        found, offset = _values_of(records, aborted)
        values += found


def _values_of(records: bytes, aborted: set[tuple[int, int]]) -> tuple[list[bytes], int]:
    values: list[bytes] = []
    dropped: set[int] = set()
    offset = 0
    for position, header in iterate_headers(memoryview(records)):
        batch = records[position : position + header.size_bytes]
        offset = header.last_offset + 1
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.commit:
                dropped.discard(header.producer_id)
            continue
        dropped |= {
            producer
            for producer, first in aborted
            if first <= header.base_offset and producer == header.producer_id
        }
        aborted = {
            (producer, first)
            for producer, first in aborted
            if not (producer == header.producer_id and first <= header.base_offset)
        }
        if header.producer_id not in dropped:
            values += [record.value or b"" for record in iterate_records(batch, bytes_max=1 << 20)]
    return values, offset


async def check(cluster: VirtualCluster, outcomes: Outcomes) -> None:
    """Checks T1, T2 and T6."""
    client = cluster.client("reader")
    await asyncio.sleep(2 * TRANSACTION_TIMEOUT_MS / 1000)
    seen = []
    for index in range(PARTITIONS):
        values, is_stable = await read_committed(client, index)
        assert is_stable, "a transaction is still open"
        assert len(values) == len(set(values)), "a record is duplicated"
        seen.append(set(values))
    assert seen[0] == seen[1] == seen[2], "a transaction is visible in part"
    assert outcomes.committed <= seen[0], "a committed transaction is lost"
    assert not outcomes.aborted & seen[0], "an aborted transaction is visible"
    assert seen[0] <= outcomes.committed | outcomes.unknown


async def begin(cluster: VirtualCluster, protocol: int) -> Transactor:
    # The records have timestamps of 1970, so retention would delete them.
    await cluster.test_client().create_topic(
        TOPIC, partitions=PARTITIONS, replication_factor=3, configs={"retention.ms": "-1"}
    )
    transactor = Transactor(cluster.client("transactor"), protocol=protocol)
    await transactor.create_transactions_topic()
    return transactor


async def switch(client: ClusterClient, topic: str, mode: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=topic,
                configs=[AlterableConfig(name="replication.mode", config_operation=0, value=mode)],
            )
        ]
    )
    response = await client.request(request, 1, IncrementalAlterConfigsResponse, timeout_ms=20_000)
    assert response.responses[0].error_code == ErrorCode.NONE, response


async def wait_mode(cluster: VirtualCluster, topic: str, mode: ReplicationMode) -> None:
    def is_met() -> bool:
        found = cluster.image.topic(topic)
        assert found is not None
        return all(state.mode is mode for state in found.partitions.values())

    await cluster.wait_for(is_met, seconds=120)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", ["isr", "raft"])
def test_transactions_survive_coordinators_and_leaders(mode: str, seed: int, protocol: int) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        transactor = await begin(cluster, protocol)
        running = asyncio.get_running_loop().create_task(transactor.run())
        for topic, index in ((TRANSACTIONS_TOPIC, INDEX), (TOPIC, 1), (TRANSACTIONS_TOPIC, INDEX)):
            await transactor.wait_for_more(cluster)
            leader = cluster.leader_of(topic, index)
            if seed % 2 and mode == "raft":
                cluster.lose_power(leader)
            else:
                cluster.kill(leader)
            await transactor.wait_for_more(cluster)
            await cluster.start(leader)
        leader = cluster.leader_of(TRANSACTIONS_TOPIC, INDEX)
        cluster.isolate(leader)
        await transactor.wait_for_more(cluster)
        cluster.heal()
        await transactor.wait_for_more(cluster)
        transactor.is_stopped = True
        await running
        await check(cluster, transactor.outcomes)

    properties = {
        **PROPERTIES,
        "internal.topics.replication.mode": mode,
        "default.replication.mode": mode,
    }
    VirtualCluster(nodes=3, seed=seed, properties=properties).play(scenario)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("topic", [TOPIC, TRANSACTIONS_TOPIC])
@scenario(run_in_virtual_cluster, nodes=3, properties=PROPERTIES)
async def test_transactions_continue_during_mode_switches(
    cluster: VirtualCluster, /, topic: str, seed: int, protocol: int
) -> None:
    transactor = await begin(cluster, protocol)
    admin = cluster.client("admin")
    running = asyncio.get_running_loop().create_task(transactor.run())
    for name, mode in (("raft", RAFT), ("isr", ISR), ("raft", RAFT)):
        await transactor.wait_for_more(cluster)
        await switch(admin, topic, name)
        await wait_mode(cluster, topic, mode)
        await transactor.wait_for_more(cluster)
    cluster.kill(cluster.leader_of(topic, 0))
    await transactor.wait_for_more(cluster)
    transactor.is_stopped = True
    await running
    await check(cluster, transactor.outcomes)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("seed", range(2))
@scenario(run_in_virtual_cluster, nodes=3, properties=PROPERTIES)
async def test_next_coordinator_writes_the_markers_of_a_prepared_commit(
    cluster: VirtualCluster, /, seed: int, protocol: int
) -> None:
    """The coordinator dies after the decision to commit, before any marker is written."""
    transactor = await begin(cluster, protocol)
    await transactor.begin()
    coordinator = cluster.leader_of(TRANSACTIONS_TOPIC, INDEX)
    leaders = [cluster.leader_of(TOPIC, index) for index in range(PARTITIONS)]
    assert set(leaders) - {coordinator}, "some partition is led by another node"
    brokers = cluster.node(coordinator).broker.brokers

    async def never_respond(*arguments: Any, **more: Any) -> Any:
        await asyncio.Event().wait()

    value = b"decided"
    if protocol == 1:
        await transactor._add()
    for index in range(PARTITIONS):
        await transactor._produce(index, value)
    # The requests with markers are never delivered.
    brokers.request = never_respond  # type: ignore[method-assign]
    await transactor.end(commit=True)
    assert await transactor.state() == "PrepareCommit"
    reader = cluster.client("reader")
    assert await read_committed(reader, 0) == ([], False)
    cluster.kill(coordinator)
    while await transactor.state() != "CompleteCommit":
        await asyncio.sleep(0.05)
    for index in range(PARTITIONS):
        assert await read_committed(reader, index) == ([value], True)
