"""Topics that only one group may read (subscription.mode=ptp), a setting of Lograft, as seen by
other clients."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from kafka import KafkaConsumer
from kafka.errors import PolicyViolationError

from lograft import client
from tests.compatibility.command_line import lograft
from tests.compatibility.librdkafka import consumer_of, create_topic, error_code, produce
from tests.compatibility.members import (
    ANSWER_SECONDS_MAX,
    CONSUMER,
    EAGER,
    PROTOCOLS,
    all_of,
    joined,
    poll_until,
    share_evenly,
)
from tests.compatibility.servers import Server
from tests.support.scenarios import scenario

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
Settings = Mapping[str, Any]
PARTITIONS = 2
MODE, GROUP = "subscription.mode", "subscription.group"


@pytest.fixture(autouse=True)
def _only_lograft_has_it(server: Server) -> None:
    if server.kind != "lograft":
        pytest.skip("Apache Kafka has no subscription modes")


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


@pytest.fixture
def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


def topic_with(server: Server, new_topic: NewName, mode: str | None = "ptp") -> str:
    topic = new_topic()
    configs = {} if mode is None else {MODE: mode}
    create_topic(server.bootstrap, topic, partitions=PARTITIONS, configs=configs)
    for partition in range(PARTITIONS):
        produce(server.bootstrap, topic, [b"%d" % partition], partition=partition)
    return topic


def described(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(ANSWER_SECONDS_MAX)
    return {name: entries[name].value for name in (MODE, GROUP)}


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS_MAX)


def test_members_of_one_group_share_the_topic_and_no_other_group_gets_in(
    server: Server, new_topic: NewName, admin: AdminClient, protocol: Settings
) -> None:
    topic = topic_with(server, new_topic)
    wanted = all_of(topic, PARTITIONS)
    group, other = f"{topic}-group", f"{topic}-other"
    assert described(admin, topic) == {MODE: "ptp", GROUP: None}
    with (
        joined(server.bootstrap, group, [topic], protocol) as first,
        joined(server.bootstrap, group, [topic], protocol) as second,
    ):
        poll_until(lambda: share_evenly([first, second], wanted), first, second)
        assert described(admin, topic) == {MODE: "ptp", GROUP: group}
        with joined(server.bootstrap, other, [topic], protocol) as stranger:
            poll_until(lambda: stranger.error is not None, first, second, stranger)
            assert "Policy violation" in str(stranger.error)
            assert stranger.values == []
        poll_until(lambda: len(first.values) + len(second.values) == PARTITIONS, first, second)


def test_a_group_leaves_the_topic_to_the_next_with_its_positions(
    server: Server, new_topic: NewName, admin: AdminClient, protocol: Settings
) -> None:
    topic = topic_with(server, new_topic)
    group, other = f"{topic}-group", f"{topic}-other"
    with joined(server.bootstrap, group, [topic], protocol) as member:
        poll_until(lambda: len(member.values) == PARTITIONS, member)
        member.consumer.commit(asynchronous=False)
    with joined(server.bootstrap, other, [topic], protocol) as stranger:
        poll_until(lambda: stranger.error is not None, stranger)
    admin.delete_consumer_groups([group])[group].result(ANSWER_SECONDS_MAX)
    with joined(server.bootstrap, other, [topic], protocol) as heir:
        poll_until(lambda: len(heir.values) == PARTITIONS, heir)
    assert described(admin, topic)[GROUP] == other


def test_commits_of_another_group_are_refused(server: Server, new_topic: NewName) -> None:
    topic, free = topic_with(server, new_topic), topic_with(server, new_topic, None)
    with consumer_of(server.bootstrap, **{"group.id": f"{topic}-group"}) as first:
        first.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    with consumer_of(server.bootstrap, **{"group.id": f"{topic}-other"}) as second:
        with pytest.raises(KafkaException) as raised:
            second.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert error_code(raised.value) == KafkaError.POLICY_VIOLATION
        second.commit(offsets=[TopicPartition(free, 0, 1)], asynchronous=False)
        at = [TopicPartition(topic, 0), TopicPartition(free, 0)]
        refused, found = second.committed(at, ANSWER_SECONDS_MAX)
        assert refused.error is not None
        assert refused.error.code() == KafkaError.POLICY_VIOLATION
        assert found.offset == 1


@pytest.fixture
def claimed(server: Server, new_topic: NewName) -> str:
    """A topic of group TOPIC-group, which has committed offsets and no members."""
    topic = topic_with(server, new_topic)
    with consumer_of(server.bootstrap, **{"group.id": f"{topic}-group"}) as holder:
        holder.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    return topic


def test_a_stock_consumer_that_assigns_itself_partitions_is_refused_before_it_fetches(
    server: Server, claimed: str
) -> None:
    settings = {"group.id": f"{claimed}-other", "auto.offset.reset": "earliest"}
    with consumer_of(server.bootstrap, **settings) as other:
        other.assign([TopicPartition(claimed, 0)])
        message = other.poll(ANSWER_SECONDS_MAX)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError.POLICY_VIOLATION
    with consumer_of(server.bootstrap, **settings | {"group.id": f"{claimed}-group"}) as holder:
        holder.assign([TopicPartition(claimed, 0)])
        message = holder.poll(ANSWER_SECONDS_MAX)
        assert message is not None
        assert message.value() == b"0"


@pytest.mark.parametrize("seeks", [False, True])
@scenario()
async def test_the_own_client_is_refused_before_it_fetches(
    server: Server, claimed: str, seeks: bool
) -> None:
    place = client.TopicPartition(claimed, 0)

    async def read(group_id: str) -> bytes | None:
        async with client.Consumer(
            bootstrap_servers=server.bootstrap,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.assign([place])
            if seeks:
                consumer.seek(place, 0)
            try:
                polled = await consumer.poll(timeout_ms=int(ANSWER_SECONDS_MAX * 1000))
            finally:
                fetched = consumer.metrics().value("bytes-consumed-total")
                assert bool(fetched) == group_id.endswith("-group")
            value: bytes | None = polled[place][0].value
            return value

    with pytest.raises(client.BrokerError) as raised:
        await read(f"{claimed}-other")
    assert claimed in str(raised.value)
    assert "another group reads it point to point" in str(raised.value)
    assert await read(f"{claimed}-group") == b"0"


@pytest.mark.parametrize("start", [(), ("--from", "beginning")])
def test_lograft_consume_prints_nothing_of_another_groups_topic(
    server: Server, claimed: str, start: tuple[str, ...]
) -> None:
    common = ("consume", claimed, "--max", "1", "--bootstrap-server", server.bootstrap)
    shown = lograft(*common, "--group", f"{claimed}-audit", *start)
    assert shown.code != 0
    assert shown.out == ""
    assert f"'{claimed}'" in shown.err
    assert "subscription.mode=ptp" in shown.err
    assert len(lograft(*common, "--group", f"{claimed}-group", *start).lines) == 1


@scenario()
async def test_a_refused_commit_of_the_own_client_names_the_topic(
    server: Server, claimed: str
) -> None:
    async with client.Consumer(
        bootstrap_servers=server.bootstrap, group_id=f"{claimed}-other"
    ) as consumer:
        await consumer.partitions_for(claimed)  # from then on it commits by topic id
        with pytest.raises(client.BrokerError, match=f"committing offsets of topic '{claimed}'"):
            await consumer.commit({client.TopicPartition(claimed, 0): 1})
    async with client.Producer(
        bootstrap_servers=server.bootstrap, transactional_id=claimed
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        with pytest.raises(client.BrokerError, match=rf"{claimed}-0 for group .*=ptp\) \(POLICY"):
            await producer.send_offsets({client.TopicPartition(claimed, 0): 1}, f"{claimed}-other")
        await producer.abort_transaction()


def test_the_mode_of_a_topic_in_use(server: Server, new_topic: NewName, admin: AdminClient) -> None:
    topic = topic_with(server, new_topic, "psb")
    group, other = f"{topic}-a", f"{topic}-b"
    with joined(server.bootstrap, group, [topic], EAGER) as member:
        with joined(server.bootstrap, other, [topic], CONSUMER) as second:
            poll_until(lambda: len(member.values) == len(second.values) == 2, member, second)
            with pytest.raises(KafkaException) as raised:
                alter(admin, topic, MODE, "ptp")
            assert error_code(raised.value) == KafkaError.INVALID_CONFIG
            assert f"'{group}' and '{other}'" in str(raised.value)
        alter(admin, topic, MODE, "ptp")
        assert described(admin, topic) == {MODE: "ptp", GROUP: group}
        with joined(server.bootstrap, other, [topic], CONSUMER) as second:
            poll_until(lambda: second.error is not None, member, second)
            alter(admin, topic, MODE, "psb")
        with joined(server.bootstrap, other, [topic], CONSUMER) as second:
            poll_until(lambda: len(second.values) == PARTITIONS, member, second)


def test_kafka_python_says_why(server: Server, new_topic: NewName) -> None:
    topic = topic_with(server, new_topic)
    with joined(server.bootstrap, f"{topic}-group", [topic], EAGER) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        other = KafkaConsumer(topic, bootstrap_servers=server.bootstrap, group_id=f"{topic}-other")
        try:
            with pytest.raises(PolicyViolationError):
                other.poll(timeout_ms=int(ANSWER_SECONDS_MAX * 1000))
        finally:
            other.close()
