"""Rebalances that a program asks for, and assignments that look at racks, on simulated clusters."""

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
    Diary,
    Makes,
    Settings,
    play,
    shared,
    until,
    write,
)
from tests.unit.client.test_producer_metadata import delete


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (EAGER, [("assigned", 4), ("revoked", 4), ("assigned", 4)]),
        (COOPERATIVE, [("assigned", 4), ("assigned", 0)]),
    ],
    ids=["eager", "cooperative"],
)
@scenario(play)
async def test_a_member_may_ask_for_a_rebalance(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings, told: list[tuple[str, int]]
) -> None:
    diary = Diary()
    consumer = await makes.consumer(settings, listener=diary)
    await until(shared([consumer]), [consumer])
    before = consumer.group_metadata().generation
    consumer.enforce_rebalance("to see what comes")
    consumer.enforce_rebalance()
    await until(lambda: consumer.group_metadata().generation > before, [consumer])
    await until(lambda: diary.pages == told, [consumer])
    assert consumer.group_metadata().generation == before + 1, "asking twice is asking once"


@scenario(play)
async def test_whose_decision_it_is_not(cluster: VirtualCluster, makes: Makes, /) -> None:
    alone = await makes.consumer(EAGER, subscribes=False)
    with pytest.raises(WrongUse, match="in no group"):
        alone.enforce_rebalance()
    member = await makes.consumer(CONSUMER)
    with pytest.raises(WrongUse, match="only the coordinator"):
        member.enforce_rebalance()


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_a_topic_that_was_deleted_holds_nobody_up(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings
) -> None:
    await cluster.test_client("admin").create_topic("gone", partitions=1)
    consumer = await makes.consumer(
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
    await until(lambda: consumer.assignment() == both, [consumer])
    await write(cluster, [b"%d" % i for i in range(40)])
    read = 0
    while read < 40:
        read += sum(map(len, (await consumer.poll()).values()))
    await delete(cluster, "gone")
    began = cluster.loop.time()
    await until(lambda: consumer.assignment() == ALL, [consumer])
    await consumer.close()
    assert cluster.loop.time() - began < 4  # the commit would be tried for request.timeout.ms
    following = await makes.consumer(settings)
    places = await following.committed(ALL)
    assert sum(place.offset for place in places.values() if place is not None) == 40


def test_ranges_are_read_from_replicas_in_the_members_own_racks() -> None:
    cluster = VirtualCluster(nodes=3, seed=5, properties={"group.initial.rebalance.delay.ms": "0"})
    for host, rack in zip(cluster.hosts.values(), "abc", strict=True):
        host.config = broker_config({**host.config.raw, "broker.rack": rack})

    async def scenario(cluster: VirtualCluster) -> None:
        servers = ",".join(map(str, cluster.bootstrap()))
        async with Admin(bootstrap_servers=servers, runtime=cluster.client_runtime()) as admin:
            placed = {0: [1], 1: [2], 2: [3]}
            await admin.create_topics([NewTopic("t", assignment=placed)])
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
        near = [{TopicPartition("t", partition)} for partition in (2, 0, 1)]
        await until(lambda: [one.assignment() for one in consumers] == near, consumers)
        for consumer in consumers:
            await consumer.close()

    cluster.play(scenario)


@scenario(play)
async def test_a_commit_under_way_is_not_for_the_topic_that_is_made_anew(
    cluster: VirtualCluster, makes: Makes, /
) -> None:
    admin = cluster.test_client("admin")
    await admin.create_topic("again", partitions=1)
    consumer = await makes.consumer({"metadata.max.age.ms": 500}, subscribes=False)
    again = TopicPartition("again", 0)
    consumer.assign([again])
    assert await consumer.position(again) == 0
    await delete(cluster, "again")
    commit = asyncio.create_task(consumer.commit({again: 10}))
    await asyncio.sleep(1)
    await admin.create_topic("again", partitions=1)
    with pytest.raises(TimedOut):
        await commit
    assert await consumer.committed([again]) == {again: None}


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_an_interval_shorter_than_that_of_heartbeats_is_kept(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings
) -> None:
    consumer = await makes.consumer(settings, {"max.poll.interval.ms": 400})
    await until(shared([consumer]), [consumer])
    await asyncio.sleep(0.3)
    await consumer.commit({TopicPartition("t", 0): 1})
    await asyncio.sleep(0.2)
    with pytest.raises(CommitFailed, match="is not a member"):
        await consumer.commit({TopicPartition("t", 0): 2})


@pytest.mark.parametrize("settings", [EAGER, COOPERATIVE, CONSUMER])
@scenario(play)
async def test_who_has_waited_for_long_is_not_slow_at_once(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings
) -> None:
    consumer = await makes.consumer(
        settings, {"max.poll.interval.ms": 5_000, "enable.auto.commit": "false"}
    )
    assert await consumer.poll(timeout_ms=60_000) == {}
    await asyncio.sleep(4)
    await consumer.commit({TopicPartition("t", 0): 1})


@scenario(play)
async def test_who_knows_no_assignor_of_the_group_is_told_what_to_change(
    cluster: VirtualCluster, makes: Makes, /
) -> None:
    first = await makes.consumer(EAGER)
    await until(shared([first]), [first])
    stranger = await makes.consumer({"partition.assignment.strategy": "roundrobin"})
    with pytest.raises(BrokerError, match=r"in common .* in partition\.assignment\.strategy"):
        await stranger.poll(timeout_ms=30_000)
