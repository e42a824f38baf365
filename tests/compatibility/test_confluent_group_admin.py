"""confluent-kafka's admin client on groups: list, describe, fetch and alter offsets, delete."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.compatibility.librdkafka import (
    ANSWER_SECONDS_MAX,
    admin_of,
    create_topic,
    error_code,
    outcome,
    produce,
)
from tests.compatibility.members import CONSUMER, EAGER, PROTOCOLS, all_of, joined, poll_until
from tests.compatibility.servers import NODE_ID, Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
Settings = Mapping[str, Any]


@pytest.fixture(params=["eager", "consumer"])
def family(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


def groups_of(admin: AdminClient, **filters: Any) -> dict[str, Any]:
    listed = admin.list_consumer_groups(**filters).result(ANSWER_SECONDS_MAX)
    assert not listed.errors
    return {group.group_id: group for group in listed.valid}


def describe(admin: AdminClient, group: str) -> Any:
    return outcome(admin.describe_consumer_groups([group]))[group]


def offsets_of(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = outcome(asked)[group].topic_partitions
    return {(each.topic, each.partition): each.offset for each in found}


def alter(admin: AdminClient, group: str, *at: TopicPartition) -> None:
    asked = [ConsumerGroupTopicPartitions(group, list(at))]
    (answer,) = outcome(admin.alter_consumer_group_offsets(asked)).values()
    for partition in answer.topic_partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)


def test_a_live_group_is_listed_and_described(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic, admin = new_topic(), admin_of(server.bootstrap)
    create_topic(server.bootstrap, topic, partitions=2)
    named = {"client.id": "the-client", "group.instance.id": "the-instance"}
    with joined(server.bootstrap, topic, [topic], family, named) as member:
        poll_until(lambda: member.owned == all_of(topic, 2), member)
        kind = ConsumerGroupType.CONSUMER if family is CONSUMER else ConsumerGroupType.CLASSIC
        assert topic in groups_of(admin, states={ConsumerGroupState.STABLE}, types={kind})
        assert topic not in groups_of(admin, states={ConsumerGroupState.EMPTY})
        shown = describe(admin, topic)
        assert (shown.state, shown.type) == (ConsumerGroupState.STABLE, kind)
        assert shown.partition_assignor == ("uniform" if family is CONSUMER else "range")
        assert shown.coordinator.id == NODE_ID
        (member,) = shown.members
        assert (member.client_id, member.group_instance_id) == ("the-client", "the-instance")
        assert member.host == "/127.0.0.1"
        held = {(held.topic, held.partition) for held in member.assignment.topic_partitions}
        assert held == all_of(topic, 2)
    outcome(admin.describe_consumer_groups([topic]))


def test_a_group_without_members_is_empty(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic, admin = new_topic(), admin_of(server.bootstrap)
    create_topic(server.bootstrap, topic, partitions=2)
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: member.owned == all_of(topic, 2), member)
        member.commit(topic, 1, 4)
    shown = describe(admin, topic)
    assert (shown.state, shown.members) == (ConsumerGroupState.EMPTY, [])
    assert topic in groups_of(admin, states={ConsumerGroupState.EMPTY})
    assert offsets_of(admin, topic) == {(topic, 1): 4}


def test_offsets_are_altered_where_nobody_is(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic, admin = new_topic(), admin_of(server.bootstrap)
    create_topic(server.bootstrap, topic, partitions=2)
    produce(server.bootstrap, topic, [b"0", b"1", b"2"])
    alter(admin, topic, TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 0))
    assert offsets_of(admin, topic) == {(topic, 0): 2, (topic, 1): 0}
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: member.values == [b"2"], member)
        with pytest.raises(KafkaException) as raised:
            alter(admin, topic, TopicPartition(topic, 0, 1))
        assert error_code(raised.value) == KafkaError.UNKNOWN_MEMBER_ID
        assert offsets_of(admin, topic)[topic, 0] == 2


def test_offsets_of_what_does_not_exist_are_refused(server: Server, new_topic: NewName) -> None:
    topic, admin = new_topic(), admin_of(server.bootstrap)
    with pytest.raises(KafkaException) as raised:
        alter(admin, topic, TopicPartition(topic, 0, 1))
    assert error_code(raised.value) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert offsets_of(admin, new_topic()) == {}


def test_only_an_empty_group_is_deleted(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic, admin = new_topic(), admin_of(server.bootstrap)
    create_topic(server.bootstrap, topic, partitions=2)
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: member.owned == all_of(topic, 2), member)
        member.commit(topic, 0, 3)
        assert refusal(admin, topic) == KafkaError.NON_EMPTY_GROUP
    outcome(admin.delete_consumer_groups([topic]))
    assert topic not in groups_of(admin)
    assert offsets_of(admin, topic) == {}
    assert refusal(admin, topic) == KafkaError.GROUP_ID_NOT_FOUND
    with joined(server.bootstrap, topic, [topic], EAGER) as heir:
        poll_until(lambda: heir.owned == all_of(topic, 2), heir)


def refusal(admin: AdminClient, group: str) -> int:
    with pytest.raises(KafkaException) as raised:
        outcome(admin.delete_consumer_groups([group]))
    return error_code(raised.value)
