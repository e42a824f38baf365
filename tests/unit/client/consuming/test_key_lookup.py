"""Lookup by key returns the newest committed record, however far back it is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client.consumer import Consumer
from lograft.client.errors import BrokerError, TimedOut
from lograft.client.producer import Producer
from lograft.client.serializers import json_deserializer
from lograft.client.types import TopicPartition
from lograft.testing import VirtualCluster
from lograft.wire.messages import delete_records
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, Producer, Consumer], Awaitable[None]]


def play(
    scenario: Scenario,
    settings: dict[str, Any] | None = None,
    producer_settings: dict[str, Any] | None = None,
) -> None:
    async def main(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        await cluster.test_client("admin").create_topic("t", partitions=3)
        common = {"bootstrap.servers": servers}
        runtime = cluster.client_runtime()
        async with (
            Producer({**common, **(producer_settings or {})}, runtime=runtime) as producer,
            Consumer({**common, **(settings or {})}, runtime=runtime) as consumer,
        ):
            await scenario(cluster, producer, consumer)

    VirtualCluster(nodes=1, seed=6).play(main)


async def value(consumer: Consumer, key: bytes | str) -> Any:
    record = await consumer.get("t", key)
    return None if record is None else record.value


@scenario(play, {"max.partition.fetch.bytes": 20000}, {"compression.type": "lz4"})
async def test_get_returns_the_newest_value_near_the_end_and_far_back(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    await producer.send("t", b"old", key="near")
    await producer.send("t", b"far back", key="far")
    keys = [b"k%d" % (i % 50) for i in range(12_000)]
    await producer.send_many("t", [b"%d" % i for i in range(12_000)], keys=keys)
    await producer.flush()
    await producer.send("t", b"new", key="near")
    assert await value(consumer, "near") == b"new"
    assert await value(consumer, "far") == b"far back"
    assert await value(consumer, b"k7") == b"11957"
    assert await consumer.get("t", b"unused") is None
    # A record with the key's bytes in its value does not count.
    await producer.send("t", b"k7", key="near")
    assert await value(consumer, "k7") == b"11957"


@scenario(play)
async def test_get_returns_a_tombstone(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    await producer.send("t", b"1", key="k")
    await producer.send("t", None, key="k")
    record = await consumer.get("t", "k")
    assert record is not None
    assert (record.offset, record.key, record.value) == (1, b"k", None)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_not_returned(isolation: str) -> None:
    async def scenario(cluster: VirtualCluster, producer: Producer, consumer: Consumer) -> None:
        async with producer.transaction():
            await producer.send("t", b"kept", key="k")
        await producer.begin_transaction()
        await producer.send("t", b"dropped", key="k")
        await producer.abort_transaction()
        assert await value(consumer, "k") == b"kept"

    play(scenario, {"isolation.level": isolation}, {"transactional.id": "x"})


@scenario(play, None, {"transactional.id": "x", "linger.ms": 0})
async def test_abort_markers_in_later_windows_are_respected(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    """The marker is in a later window than the record, with other transactions in between."""
    await producer.begin_transaction()
    partition = (await producer.send("t", b"committed", key="k")).partition
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send("t", b"aborted", key="k")
    for number in range(3_000):
        await producer.enqueue("t", b"%d" % number, partition=partition)
    await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.send("t", b"other", key="other", partition=partition)
    await producer.commit_transaction()
    assert await value(consumer, "k") == b"committed"
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(
        bootstrap_servers=servers, transactional_id="y", runtime=cluster.client_runtime()
    ) as second:
        await second.begin_transaction()
        await second.send("t", b"open", key="k")
        await producer.begin_transaction()
        await producer.send("t", b"aborted again", key="k")
        await producer.abort_transaction()
        # The open transaction counts; the aborted one does not, although it is newer.
        assert await value(consumer, "k") == b"open"
        await second.abort_transaction()
        assert await value(consumer, "k") == b"committed"


@scenario(play, {"value.deserializer": json_deserializer})
async def test_get_with_a_partition_and_a_deserializer(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    for partition in range(3):
        await producer.send("t", b"[%d]" % partition, key="k", partition=partition)
    for partition in range(3):
        record = await consumer.get("t", "k", partition=partition)
        assert record is not None
        assert record.value == [partition]


@scenario(play)
async def test_deleted_records_are_not_waited_for(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    sent = await producer.send("t", b"1", key="k")
    await producer.send("t", b"2", key="other", partition=sent.partition)
    request = delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name="t",
                partitions=[
                    delete_records.DeleteRecordsPartition(partition_index=sent.partition, offset=1)
                ],
            )
        ],
        timeout_ms=10_000,
    )
    route = cluster.client("deleter").partition("t", sent.partition)
    await route.request(request, 2, delete_records.DeleteRecordsResponse, timeout_ms=10_000)
    assert await consumer.get("t", "k") is None


@scenario(play, {"allow.auto.create.topics": False, "default.api.timeout.ms": 3000})
async def test_a_missing_topic_times_out(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    with pytest.raises(TimedOut, match="nothing"):
        await consumer.get("nothing", "k")


@scenario(play, {"group.id": "audit"})
async def test_a_group_without_access_to_a_ptp_topic_is_rejected(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    await cluster.test_client("creator").create_topic(
        "pt", partitions=1, configs={"subscription.mode": "ptp"}
    )
    await producer.send("pt", b"v", key="k")
    servers = {"bootstrap.servers": ",".join(map(str, cluster.bootstrap()))}
    owner = {**servers, "group.id": "owner"}
    async with Consumer(owner, runtime=cluster.client_runtime("owner")) as reader:
        reader.assign([TopicPartition("pt", 0)])
        await reader.commit({TopicPartition("pt", 0): 1})
        record = await reader.get("pt", "k")
        assert record is not None
        assert record.value == b"v"
    for partition in (None, 0):
        with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
            await consumer.get("pt", "k", partition=partition)


@scenario(play, {"group.id": "g", "default.api.timeout.ms": 3000}, {"transactional.id": "x"})
async def test_offsets_of_an_open_transaction_do_not_delay_a_lookup(
    cluster: VirtualCluster, producer: Producer, consumer: Consumer, /
) -> None:
    consumer.assign([TopicPartition("t", 0)])
    async with producer.transaction():
        await producer.send("t", b"v", key="k", partition=1)
    async with producer.transaction():
        await producer.send_offsets({TopicPartition("t", 0): 0}, consumer.group_metadata())
        record = await consumer.get("t", "k", partition=0)
        assert record is None
