"""The admin client of lograft.client on a Lograft and on an Apache Kafka node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lograft.client import (
    Admin,
    BrokerError,
    ConfigChange,
    Consumer,
    Election,
    GroupMissing,
    GroupNotEmpty,
    NewTopic,
    Operation,
    Producer,
    SettingRejected,
    SomeFailed,
    Target,
    TopicExists,
    TopicMissing,
    TopicPartition,
    UnsupportedByBroker,
    broker_resource,
    topic_resource,
)
from tests.compatibility.servers import Server, skip_before_4
from tests.support.scenarios import run_in_asyncio, scenario

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def play(scenario: Callable[[Admin], Awaitable[None]], server: Server) -> None:
    async def main() -> None:
        async with Admin(bootstrap_servers=server.bootstrap) as admin:
            await scenario(admin)

    run_in_asyncio(main)


async def becomes(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """The controller has responded; brokers apply the change a moment later."""
    async with asyncio.timeout(60):
        while (seen := await look()) != wanted:
            await asyncio.sleep(0.05)
    assert seen == wanted


async def fill(server: Server, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=server.bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_000 + number)


@scenario(play)
async def test_topics(admin: Admin, /, new_topic: NewName) -> None:
    first, other = new_topic(), new_topic()
    created = await admin.create_topics(
        [NewTopic(first, partitions=2, replicas=1, configs={"retention.ms": "5000"}), other]
    )
    assert (created[first].partitions, created[first].replicas) == (2, 1)
    assert created[first].configs["retention.ms"] == "5000"
    assert {first, other} <= {each.name for each in await admin.list_topics()}
    with pytest.raises(TopicExists, match="already exists"):
        await admin.create_topics([first])
    with pytest.raises(SomeFailed) as some:
        await admin.create_topics([first, new_topic()], validate_only=True)
    assert set(some.value.failed) == {first}
    await admin.create_partitions({first: 3})

    async def leaders() -> list[int]:
        described = (await admin.describe_topics([created[first].id]))[first]
        return [each.leader for each in described.partitions]

    await becomes(leaders, [1, 1, 1])
    with pytest.raises(BrokerError, match="partitions of"):
        await admin.create_partitions({first: 1})
    with pytest.raises(TopicMissing, match="the topic or partition does not exist"):
        await admin.describe_topics([new_topic()])
    await admin.delete_topics([created[first].id, other])
    with pytest.raises(TopicMissing):
        await admin.delete_topics([first])


@scenario(play)
async def test_settings(admin: Admin, /, new_topic: NewName) -> None:
    topic = new_topic()
    await admin.create_topics([topic])
    resource = topic_resource(topic)
    await admin.alter_configs(
        {
            resource: [
                ConfigChange("cleanup.policy", "compact", Operation.APPEND),
                ConfigChange("retention.ms", "77"),
            ]
        }
    )

    async def policy() -> str | None:
        return (await admin.describe_configs([resource]))[resource]["cleanup.policy"].value

    await becomes(policy, "delete,compact")
    found = (await admin.describe_configs([resource], synonyms=True))[resource]
    assert (found["retention.ms"].value, found["retention.ms"].source.name) == ("77", "TOPIC")
    assert found["retention.ms"].type.name == "LONG"
    with pytest.raises(SettingRejected):
        await admin.alter_configs({resource: [ConfigChange("retention.ms", "soon")]})
    both = await admin.describe_configs([broker_resource(1), resource], names=["node.id"])
    assert both[broker_resource(1)]["node.id"].value == "1"


@scenario(play)
async def test_logs(admin: Admin, /, server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await admin.create_topics([NewTopic(topic, partitions=2)])
    await fill(server, topic, 10)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ends = await admin.list_offsets({first: LATEST, second: LATEST})
    assert (ends[first].offset, ends[second].offset) == (10, 0)
    assert (await admin.list_offsets({first: 1_004}))[first].offset == 4
    newest = (await admin.list_offsets({first: MAX_TIMESTAMP}))[first]
    assert (newest.offset, newest.timestamp_ms) == (9, 1_009)
    assert await admin.delete_records({first: 3}) == {first: 3}
    assert (await admin.list_offsets({first: EARLIEST}))[first].offset == 3
    (producer,) = (await admin.describe_producers([first]))[first]
    assert producer.last_sequence == 9
    with pytest.raises(TopicMissing, match="there is no partition 9"):
        await admin.list_offsets({TopicPartition(topic, 9): LATEST})
    assert await admin.elect_leaders(Election.PREFERRED, [first]) == {first: False}
    await admin.reassign({first: [1]})
    assert await admin.list_reassignments([first]) == {}
    with pytest.raises(BrokerError):
        await admin.reassign({first: [99]})
    directories = (await admin.describe_log_dirs(partitions=[first]))[1]
    assert directories[0].replicas[first].bytes > 0


@scenario(play)
async def test_groups(admin: Admin, /, server: Server, new_topic: NewName) -> None:
    topic = group = new_topic()
    place = TopicPartition(topic, 0)
    await admin.create_topics([NewTopic(topic, partitions=1)])
    await fill(server, topic, 10)
    async with Consumer(
        bootstrap_servers=server.bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        assert await consumer.poll(timeout_ms=60_000)
        described = (await admin.describe_groups([group]))[group]
        assert (described.type, described.state) == ("classic", "Stable")
        assert described.owners[place].client == consumer.settings.client_id
        assert group in [each.group for each in await admin.list_groups(states=["Stable"])]
        with pytest.raises(GroupNotEmpty):
            await admin.delete_groups([group])
        with pytest.raises(BrokerError):
            await admin.alter_group_offsets(group, {place: 0})
    await admin.alter_group_offsets(group, {place: 7})
    assert (await admin.list_group_offsets(group))[place].offset == 7
    plan = await admin.plan_reset(group, Target(shift=-2))
    assert [(move.before, move.after) for move in plan.moves] == [(7, 5)]
    if server.kind == "lograft":
        await admin.execute_reset(plan)
        await admin.undo_reset(group)
        assert (await admin.list_group_offsets(group))[place].offset == 7
    else:
        with pytest.raises(UnsupportedByBroker, match="cannot reset a group that has members"):
            await admin.execute_reset(plan)
    await admin.delete_group_offsets(group, [place])
    assert await admin.list_group_offsets(group) == {}
    # Kafka 3.9 deletes a group together with its last offset.
    await admin.alter_group_offsets(group, {place: 1})
    await admin.delete_groups([group])
    with pytest.raises(GroupMissing):
        await admin.delete_groups([group])
    assert (await admin.describe_groups([group]))[group].state == "Dead"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@scenario(play)
async def test_the_groups_of_a_topic(
    admin: Admin, /, server: Server, new_topic: NewName, protocol: str
) -> None:
    if protocol == "consumer":
        skip_before_4(server, "consumer protocol")

    topic, other = new_topic(), new_topic()
    reading, gone, elsewhere = (f"{topic}-{each}" for each in ("reading", "gone", "elsewhere"))
    await admin.create_topics([NewTopic(topic, partitions=2), NewTopic(other, partitions=1)])
    await fill(server, topic, 10)
    await admin.alter_group_offsets(gone, {TopicPartition(topic, 1): 0})
    await admin.alter_group_offsets(elsewhere, {TopicPartition(other, 0): 0})
    async with Consumer(
        bootstrap_servers=server.bootstrap,
        group_id=reading,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe([topic])
        assert await consumer.poll(timeout_ms=60_000)
        await consumer.commit({TopicPartition(topic, 0): 4})
        found = await admin.list_topic_groups([topic, other])
        assert sorted(found) == sorted([topic, other])
        assert [group.group for group in found[other].groups] == [elsewhere]
        assert (found[topic].mode, found[topic].owner) == ("psb", None)
        offline, online = found[topic].groups
        assert (offline.group, offline.members, offline.lag) == (gone, 0, 0)
        assert [partition.partition for partition in offline.partitions] == [1]
        assert (online.group, online.type, online.state) == (reading, protocol, "Stable")
        assert (online.members, online.lag) == (1, 6)
        first, second = online.partitions
        assert (first.offset, first.end_offset, first.lag) == (4, 10, 6)
        assert (second.offset, second.lag) == (None, None)
        assert first.member == second.member is not None
    with pytest.raises(TopicMissing):
        await admin.list_topic_groups([f"{topic}-missing"])


@scenario(play)
async def test_the_cluster(admin: Admin, /, server: Server, new_topic: NewName) -> None:
    await admin.connect()
    await admin.probe(1)
    cluster = await admin.describe_cluster()
    assert [str(broker.address) for broker in cluster.brokers] == [server.bootstrap]
    features = await admin.describe_features()
    levels = {"metadata.version": features.finalized["metadata.version"].highest}
    await admin.update_features(levels, validate_only=True)
    quorum = await admin.describe_quorum()
    assert [voter.node for voter in quorum.voters] == [quorum.leader] == [1]
    with pytest.raises(BrokerError):
        await admin.remove_voter(9, quorum.voters[0].directory)
    with pytest.raises(BrokerError):
        await admin.unregister_broker(9)
    async with Admin(bootstrap_controllers=server.controller) as controllers:
        assert (await controllers.describe_quorum()).leader == 1
        if server.kind != "kafka39":
            described = await controllers.describe_cluster()
            assert described.cluster_id == cluster.cluster_id
            assert [str(broker.address) for broker in described.brokers] == [server.controller]


@scenario(play)
async def test_what_an_older_release_cannot_say_is_named(admin: Admin, /, server: Server) -> None:
    if server.kind == "kafka39":
        with pytest.raises(UnsupportedByBroker, match="does not support DescribeCluster ver"):
            await admin.describe_cluster(fenced=True)
    else:
        (broker,) = (await admin.describe_cluster(fenced=True)).brokers
        assert not broker.is_fenced


@scenario(play)
async def test_transactions(admin: Admin, /, server: Server, new_topic: NewName) -> None:
    topic = name = new_topic()
    await admin.create_topics([NewTopic(topic, partitions=1)])
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": name}
    async with Producer(settings) as producer, producer.transaction():
        await producer.send(topic, b"x")
        found = (await admin.describe_transactions([name]))[name]
        assert (found.state, found.partitions) == ("Ongoing", (TopicPartition(topic, 0),))
        (active,) = (await admin.describe_producers(found.partitions))[found.partitions[0]]
        assert active.transaction_start_offset == 0
        listed = await admin.list_transactions(states=["Ongoing"], open_for_ms=0)
        assert name in [each.transactional_id for each in listed]
        hanging = await admin.find_hanging_transactions(
            found.partitions, open_for_ms=0, now_ms=1 << 60
        )
        assert hanging == [], "its coordinator knows it"
        # The transaction has ended in this partition nevertheless: its records are aborted.
        await admin.abort_transaction(
            found.partitions[0],
            producer_id=active.producer_id,
            producer_epoch=active.producer_epoch,
            coordinator_epoch=active.coordinator_epoch,
        )
        (after,) = (await admin.describe_producers(found.partitions))[found.partitions[0]]
        assert after.transaction_start_offset == -1
    await admin.fence_producers([name])
