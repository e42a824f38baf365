"""Rebalances and commits in special cases, and rack-aware assignment, on simulated clusters."""

import asyncio

import pytest

from lograft.client import (
    Admin,
    BrokerError,
    CommitFailed,
    Consumer,
    NewTopic,
    TimedOut,
    TopicPartition,
    WrongUse,
)
from lograft.model.settings.broker import broker_config
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.test_consumer_groups import (
    ALL,
    CONSUMER,
    COOPERATIVE,
    EAGER,
    ConsumerFactory,
    RecordingListener,
    Settings,
    are_assigned,
    play,
    poll_until,
    write,
)
from tests.unit.client.test_producer_metadata import delete


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EAGER, [("assigned", 4), ("revoked", 4), ("assigned", 4)]),
        (COOPERATIVE, [("assigned", 4), ("assigned", 0)]),
    ],
    ids=["eager", "cooperative"],
)
@scenario(play)
async def test_enforce_rebalance_triggers_one_rebalance(
    cluster: VirtualCluster,
    factory: ConsumerFactory,
    /,
    settings: Settings,
    expected: list[tuple[str, int]],
) -> None:
    listener = RecordingListener()
    consumer = await factory.create(settings, listener=listener)
    await poll_until(are_assigned([consumer]), [consumer])
    before = consumer.group_metadata().generation
    consumer.enforce_rebalance("the first reason")
    consumer.enforce_rebalance()
    await poll_until(lambda: consumer.group_metadata().generation > before, [consumer])
    await poll_until(lambda: listener.calls == expected, [consumer])
    assert consumer.group_metadata().generation == before + 1, "two calls trigger one rebalance"


@scenario(play)
async def test_enforce_rebalance_requires_membership_in_a_classic_group(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    outside = await factory.create(EAGER, subscribes=False)
    with pytest.raises(WrongUse, match="not in a group"):
        outside.enforce_rebalance()
    member = await factory.create(CONSUMER)
    with pytest.raises(WrongUse, match="only the coordinator"):
        member.enforce_rebalance()


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_a_deleted_topic_does_not_delay_the_commit(
    cluster: VirtualCluster, factory: ConsumerFactory, /, settings: Settings
) -> None:
    await cluster.test_client("admin").create_topic("gone", partitions=1)
    consumer = await factory.create(
        settings,
        {
            "metadata.max.age.ms": 500,
            "allow.auto.create.topics": "false",
            "auto.commit.interval.ms": 100,
        },
        subscribes=False,
    )
    consumer.subscribe(["t", "gone"])
    both = {*ALL, TopicPartition("gone", 0)}
    await poll_until(lambda: consumer.assignment() == both, [consumer])
    await write(cluster, [b"%d" % i for i in range(40)])
    count = 0
    while count < 40:
        count += sum(map(len, (await consumer.poll()).values()))
    await delete(cluster, "gone")
    started_at = cluster.loop.time()
    await poll_until(lambda: consumer.assignment() == ALL, [consumer])
    await consumer.close()
    assert cluster.loop.time() - started_at < 4  # not request.timeout.ms
    next_member = await factory.create(settings)
    offsets = await next_member.committed(ALL)
    assert sum(entry.offset for entry in offsets.values() if entry is not None) == 40


def test_range_assigns_partitions_to_members_in_their_racks() -> None:
    cluster = VirtualCluster(nodes=3, seed=5, properties={"group.initial.rebalance.delay.ms": "0"})
    for host, rack in zip(cluster.hosts.values(), "abc", strict=True):
        host.config = broker_config({**host.config.raw, "broker.rack": rack})

    async def scenario(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Admin(bootstrap_servers=servers, runtime=cluster.client_runtime()) as admin:
            replicas = {0: [1], 1: [2], 2: [3]}
            await admin.create_topics([NewTopic("t", assignment=replicas)])
        consumers = [
            Consumer(
                bootstrap_servers=servers,
                group_id="g",
                client_rack=rack,
                runtime=cluster.client_runtime(),
            )
            for rack in "cab"
        ]
        for consumer in consumers:
            await consumer.start()
            consumer.subscribe(["t"])
        expected = [{TopicPartition("t", partition)} for partition in (2, 0, 1)]
        await poll_until(
            lambda: [consumer.assignment() for consumer in consumers] == expected, consumers
        )
        for consumer in consumers:
            await consumer.close()

    cluster.play(scenario)


@scenario(play)
async def test_a_commit_in_flight_does_not_apply_to_a_recreated_topic(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("recreated", partitions=1)
    consumer = await factory.create({"metadata.max.age.ms": 500}, subscribes=False)
    partition = TopicPartition("recreated", 0)
    consumer.assign([partition])
    assert await consumer.position(partition) == 0
    await delete(cluster, "recreated")
    commit = asyncio.create_task(consumer.commit({partition: 10}))
    await asyncio.sleep(1)
    await admin.create_topic("recreated", partitions=1)
    with pytest.raises(TimedOut):
        await commit
    assert await consumer.committed([partition]) == {partition: None}


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_a_poll_interval_shorter_than_the_heartbeat_interval_is_enforced(
    cluster: VirtualCluster, factory: ConsumerFactory, /, settings: Settings
) -> None:
    consumer = await factory.create(settings, {"max.poll.interval.ms": 400})
    await poll_until(are_assigned([consumer]), [consumer])
    await asyncio.sleep(0.3)
    await consumer.commit({TopicPartition("t", 0): 1})
    await asyncio.sleep(0.2)
    with pytest.raises(CommitFailed, match="is not a member"):
        await consumer.commit({TopicPartition("t", 0): 2})


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_the_poll_interval_starts_at_the_end_of_a_long_poll(
    cluster: VirtualCluster, factory: ConsumerFactory, /, settings: Settings
) -> None:
    consumer = await factory.create(
        settings, {"max.poll.interval.ms": 5_000, "enable.auto.commit": "false"}
    )
    assert await consumer.poll(timeout_ms=60_000) == {}
    await asyncio.sleep(4)
    await consumer.commit({TopicPartition("t", 0): 1})


@scenario(play)
async def test_a_member_without_a_common_assignor_is_rejected_with_advice(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    first = await factory.create(EAGER)
    await poll_until(are_assigned([first]), [first])
    rejected = await factory.create({"partition.assignment.strategy": "roundrobin"})
    with pytest.raises(BrokerError, match=r"in common .* in partition\.assignment\.strategy"):
        await rejected.poll(timeout_ms=30_000)
