"""The admin client on simulated clusters: requests reach the right node, and errors explain."""

import asyncio

import pytest

from lograft.client.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ConfigChange,
    Election,
    NewTopic,
    Operation,
    ResourceKind,
    Target,
    TopicPartition,
    broker_resource,
    topic_resource,
)
from lograft.client.errors import (
    BrokerError,
    BrokerMissing,
    Closed,
    GroupMissing,
    SettingRejected,
    SomeFailed,
    TimedOut,
    TopicExists,
    TopicMissing,
    WrongUse,
)
from lograft.model.errors import InvalidConfig
from lograft.model.types import ReplicationMode
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import fill, play


@scenario(play, nodes=3)
async def test_topics_are_created_described_extended_and_deleted_by_id(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    created = await admin.create_topics(
        [NewTopic("a", partitions=2, replicas=3, configs={"retention.ms": "5"}), "b"]
    )
    assert (created["a"].partitions, created["a"].replicas) == (2, 3)
    assert created["a"].configs["retention.ms"] == "5"
    assert [(topic.name, topic.partitions) for topic in await admin.list_topics()] == [
        ("a", 2),
        ("b", 1),
    ]
    await admin.create_partitions({"a": 3}, assignments={"a": [[3, 1, 2]]})
    described = await admin.describe_topics([created["a"].id])
    assert [partition.index for partition in described["a"].partitions] == [0, 1, 2]
    assert described["a"].partitions[2].replicas == (3, 1, 2)
    await admin.delete_topics([created["a"].id, "b"])
    assert await admin.list_topics() == []


@scenario(play)
async def test_errors_contain_the_item_and_the_cause(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics(["a"])
    with pytest.raises(TopicExists, match="topic 'a'"):
        await admin.create_topics(["a"])
    with pytest.raises(SomeFailed, match="1 of 2 failed; topic 'a'") as failed:
        await admin.create_topics(["a", "b"])
    assert list(failed.value.done) == ["b"]
    assert isinstance(failed.value.failed["a"], TopicExists)
    with pytest.raises(TopicMissing, match="topic 'x'"):
        await admin.describe_topics(["x"])
    with pytest.raises(TopicMissing, match="topic 'xyz'"):
        await admin.delete_topics("xyz")
    with pytest.raises(TopicMissing, match="has 1 partitions, so there is no partition 4"):
        await admin.list_offsets({TopicPartition("a", 4): LATEST})
    with pytest.raises(SettingRejected, match=r"topic 'a': .*nonsense"):
        await admin.alter_configs({topic_resource("a"): [ConfigChange("nonsense", "1")]})
    with pytest.raises(BrokerError, match=r"the default of all brokers: .*max.connections"):
        await admin.alter_configs({broker_resource(): [ConfigChange("max.connections", "-1")]})
    with pytest.raises(BrokerError, match="partitions of 'a'"):
        await admin.create_partitions({"a": 1})
    with pytest.raises(BrokerMissing, match=r"no broker 77 in the cluster now; known brokers: 1$"):
        await admin.describe_configs([broker_resource(77)])
    with pytest.raises(BrokerMissing, match="no broker 77"):
        await admin.probe(77)


@scenario(play, nodes=3)
async def test_settings_are_described_and_altered_incrementally(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", configs={"cleanup.policy": "compact"})])
    topic = topic_resource("a")
    await admin.alter_configs(
        {
            topic: [
                ConfigChange("cleanup.policy", "delete", Operation.APPEND),
                ConfigChange("retention.ms", "77"),
            ]
        }
    )
    found = (await admin.describe_configs([topic], synonyms=True, documentation=True))[topic]
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["retention.ms"].value == "77"
    assert found["retention.ms"].source.name == "TOPIC"
    assert found["retention.ms"].documentation
    assert found["retention.ms"].synonyms[0].value == "77"
    await admin.alter_configs({topic: [ConfigChange("retention.ms", None, Operation.DELETE)]})
    only = await admin.describe_configs([topic], names=["retention.ms"])
    assert list(only[topic]) == ["retention.ms"]
    assert only[topic]["retention.ms"].source.name == "DEFAULT"
    broker, defaults = broker_resource(2), broker_resource()
    configs = await admin.describe_configs([broker, defaults])
    assert configs[broker]["node.id"].value == "2"
    listed = await admin.list_config_resources([ResourceKind.TOPIC])
    assert topic in listed


@scenario(play, nodes=3)
async def test_cluster_features_log_dirs_and_quorum_are_described(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.connect()
    described = await admin.describe_cluster(fenced=True)
    assert [broker.id for broker in described.brokers] == [1, 2, 3]
    assert not any(broker.is_fenced for broker in described.brokers)
    features = await admin.describe_features()
    assert features.finalized["metadata.version"].highest > 1
    await admin.update_features(
        {"group.version": features.finalized["group.version"].highest}, validate_only=True
    )
    with pytest.raises(BrokerError):
        await admin.update_features({"group.version": 99})
    await admin.create_topics([NewTopic("a", partitions=1, replicas=3)])
    partition = TopicPartition("a", 0)
    async with asyncio.timeout(60):  # the replicas may be created after the response
        while True:
            directories = await admin.describe_log_dirs(partitions=[partition])
            assert sorted(directories) == [1, 2, 3]
            if all(partition in dirs[0].replicas for dirs in directories.values()):
                break
            await asyncio.sleep(0.1)
    quorum = await admin.describe_quorum()
    assert sorted(voter.node for voter in quorum.voters) == [1, 2, 3]
    with pytest.raises(BrokerError, match="voter 9"):
        await admin.remove_voter(9, quorum.voters[0].directory)
    with pytest.raises(BrokerError, match="broker 9"):
        await admin.unregister_broker(9)
    assert admin.metrics().value("connection-count") >= 3


@scenario(play, nodes=3)
async def test_offsets_are_listed_and_records_deleted(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", partitions=2, replicas=2)])
    await fill(cluster, "a", 10)
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    ends = await admin.list_offsets({first: LATEST, second: LATEST})
    assert (ends[first].offset, ends[second].offset) == (10, 0)
    assert (await admin.list_offsets({first: 1_004}))[first].offset == 4
    newest = (await admin.list_offsets({first: MAX_TIMESTAMP}, isolation="read_committed"))[first]
    assert (newest.offset, newest.timestamp_ms) == (9, 1_009)
    assert await admin.delete_records({first: 3}) == {first: 3}
    assert (await admin.list_offsets({first: EARLIEST}))[first].offset == 3
    producers = (await admin.describe_producers([first, second]))[first]
    assert [producer.last_sequence for producer in producers] == [9]


@scenario(play, nodes=3)
async def test_partitions_are_reassigned_and_leaders_elected(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", assignment={0: [1, 2]})])
    partition = TopicPartition("a", 0)
    assert await admin.elect_leaders(Election.PREFERRED, [partition]) == {partition: False}
    await admin.reassign({partition: [3, 2]})
    async with asyncio.timeout(60):
        while await admin.list_reassignments([partition]):
            await asyncio.sleep(0.1)
    await admin.elect_leaders(Election.PREFERRED, [partition])
    assert (await admin.describe_topics(["a"]))["a"].partitions[0].leader == 3
    with pytest.raises(BrokerError, match="a-7"):
        await admin.reassign({TopicPartition("a", 7): [1]})


@pytest.mark.parametrize("mode", ["isr", "raft"])
@scenario(play, nodes=3)
async def test_elect_leaders_can_select_the_leader(
    cluster: VirtualCluster, admin: Admin, /, mode: str
) -> None:
    settings = {"replication.mode": mode}
    await admin.create_topics([NewTopic("a", assignment={0: [1, 2, 3]}, configs=settings)])
    partition = TopicPartition("a", 0)

    async def elect(leader: int) -> bool:
        return (await admin.elect_leaders(partitions=[partition], leader=leader))[partition]

    async def leader() -> int:
        return (await admin.describe_topics(["a"]))["a"].partitions[0].leader

    async with asyncio.timeout(60):
        while await leader() < 0 or not await elect(3):
            await asyncio.sleep(0.1)
    assert await leader() == 3
    assert await elect(3) is False
    with pytest.raises(BrokerError, match="Broker 9 is not a replica of a-0"):
        await elect(9)
    with pytest.raises(ValueError, match="partitions"):
        await admin.elect_leaders(leader=1)


@scenario(play, nodes=3)
async def test_replication_is_altered_and_replica_states_described(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", partitions=2, replicas=3)])
    await fill(cluster, "a", 4)

    async def modes() -> list[ReplicationMode]:
        described = await admin.describe_topics(["a"])
        return [partition.mode for partition in described["a"].partitions]

    await admin.alter_replication("a", mode="raft")
    async with asyncio.timeout(60):
        while await modes() != [ReplicationMode.RAFT] * 2:
            await asyncio.sleep(0.1)
        await admin.alter_replication("a", mode="isr", partitions=[1])
        while await modes() != [ReplicationMode.RAFT, ReplicationMode.ISR]:
            await asyncio.sleep(0.1)
        await admin.alter_replication("a", replicas=1, partitions=[1])
        while len((await admin.describe_topics(["a"]))["a"].partitions[1].replicas) > 1:
            await asyncio.sleep(0.1)
    with pytest.raises(WrongUse):
        await admin.alter_replication("a")
    topic = (await admin.describe_topics(["a"], replicas=True))["a"]
    states = topic.partitions[0].states
    assert sorted(replica.node for replica in states) == [1, 2, 3]
    assert [replica.lag for replica in states] == [0, 0, 0]
    assert min(replica.end_offset for replica in states) >= 4


@scenario(play, nodes=3)
async def test_offsets_of_an_empty_group_are_altered_reset_restored_and_deleted(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", partitions=2)])
    await fill(cluster, "a", 10)
    partition = TopicPartition("a", 0)
    await admin.alter_group_offsets("g", {partition: 7})
    assert [group.group for group in await admin.list_groups(states=["empty"])] == ["g"]
    assert await admin.list_groups(types=["consumer"]) == []
    described = await admin.describe_groups(["g", "missing"])
    assert (described["g"].state, described["missing"].state) == ("Empty", "Dead")
    plan = await admin.plan_reset("g", Target(shift=-2))
    assert [(move.before, move.after) for move in plan.moves] == [(7, 5)]
    await admin.reset_offsets("g", Target(offset=99), {"a": None})
    offsets = await admin.list_group_offsets("g", [partition])
    assert (offsets[partition].offset, offsets[partition].before_reset) == (10, 7)
    await admin.undo_reset("g")
    assert (await admin.list_group_offsets("g"))[partition].offset == 7
    with pytest.raises(WrongUse, match="no reset to undo"):
        await admin.undo_reset("g")
    with pytest.raises(WrongUse, match="topic x does not exist"):
        await admin.plan_reset("g", Target(latest=True), {"x": None})
    with pytest.raises(WrongUse, match="a-1 has no committed offset to shift"):
        await admin.plan_reset("g", Target(shift=1), {"a": None})
    await admin.delete_group_offsets("g", [partition])
    await admin.remove_members("g")
    with pytest.raises(GroupMissing, match="the group does not exist"):
        await admin.delete_groups(["missing"])
    await admin.delete_groups(["g"])
    assert await admin.list_groups() == []


@scenario(play, nodes=3)
async def test_producers_are_fenced_and_transactions_listed(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics(["a"])
    assert await admin.list_transactions() == []
    fenced = await admin.fence_producers(["t"])
    (listed,) = await admin.list_transactions(states=["Empty"])
    assert (listed.transactional_id, listed.producer_id) == ("t", fenced["t"])
    described = await admin.describe_transactions(["t"])
    assert (described["t"].state, described["t"].partitions) == ("Empty", ())
    with pytest.raises(BrokerError, match="transactional id 'x'"):
        await admin.describe_transactions(["x"])
    with pytest.raises(WrongUse, match="unknown transaction state"):
        await admin.list_transactions(states=["Lost"])
    partitions = [TopicPartition("a", 0)]
    hanging = await admin.find_hanging_transactions(partitions, open_for_ms=0, now_ms=1)
    assert hanging == []


@scenario(play, {"request.timeout.ms": 3000}, nodes=3)
async def test_requests_are_retried_when_a_leader_dies(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("a", replicas=3)])
    await fill(cluster, "a", 3)
    partition = TopicPartition("a", 0)
    cluster.kill(cluster.leader_of("a", 0))
    assert (await admin.list_offsets({partition: LATEST}))[partition].offset == 3
    assert (await admin.describe_quorum()).leader > 0


@scenario(play, {"default.api.timeout.ms": 2000, "request.timeout.ms": 1000})
async def test_calls_time_out_without_a_live_broker(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    cluster.kill(1)
    with pytest.raises(TimedOut, match="gave up after 2 s"):
        await admin.list_topics()
    await admin.close()
    with pytest.raises(Closed):
        await admin.list_topics()


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(InvalidConfig, match="mutually exclusive"):
        Admin(bootstrap_servers="h:1", bootstrap_controllers="h:2")
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers"):
        Admin()
    with pytest.raises(InvalidConfig, match=r"must be at least request.timeout.ms"):
        Admin(bootstrap_servers="h:1", default_api_timeout_ms=5)
    assert (
        Admin(bootstrap_servers="h:1", request_timeout_ms=90_000).settings.call_timeout_ms == 90_000
    )


def test_calls_before_start_are_rejected() -> None:
    with pytest.raises(WrongUse, match="not open"):
        asyncio.run(Admin(bootstrap_servers="h:1").list_topics())


@scenario(play)
async def test_a_rejected_commit_contains_the_topic_and_the_reason(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics(["t"])
    change = ConfigChange("subscription.mode", "ptp")
    await admin.alter_configs({topic_resource("t"): [change]})
    await admin.alter_group_offsets("owner", {TopicPartition("t", 0): 0})
    with pytest.raises(
        BrokerError, match=r"offsets of t for group 'other': another group reads it point to"
    ):
        await admin.alter_group_offsets("other", {TopicPartition("t", 0): 0})
