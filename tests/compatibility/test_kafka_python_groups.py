"""kafka-python in groups and transactions, and its admin client for both."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
)
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import ProducerFencedError

from tests.compatibility.members import all_of, owned_in
from tests.compatibility.servers import NODE_ID, Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
ANSWER_SECONDS_MAX = 30
PARTITIONS = 4
ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


@pytest.fixture(scope="module")
def admin(server: Server) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


@contextmanager
def consuming(server: Server, group: str, topic: str, **settings: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=server.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        **settings,
    )
    try:
        # It must know the topic before it leads a group: otherwise it would assign nothing
        # permanently.
        assert consumer.partitions_for_topic(topic)
        yield consumer
    finally:
        consumer.close()


@contextmanager
def producing(server: Server, **settings: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close()


def poll_until(is_reached: Callable[[], bool], *consumers: Any) -> None:
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not is_reached():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            consumer.poll(timeout_ms=20)


def read(consumer: Any, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while len(values) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=50).values():
            values += [record.value for record in records]
    return values


def topic_with(server: Server, admin: Any, new_topic: NewName, *, records: int = 0) -> str:
    topic = new_topic()
    admin.create_topics({topic: {"num_partitions": PARTITIONS}})
    with producing(server) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(ANSWER_SECONDS_MAX)
    return topic


def committed_values(server: Server, topic: str, count: int) -> list[bytes]:
    group = f"{topic}-readers"
    with consuming(server, group, topic, isolation_level="read_committed") as consumer:
        return read(consumer, count)


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_members_come_share_and_go(
    server: Server, admin: Any, new_topic: NewName, strategy: str
) -> None:
    topic = topic_with(server, admin, new_topic)
    wanted = all_of(topic, PARTITIONS)
    settings = {"partition_assignment_strategy": [ASSIGNORS[strategy]]}
    with consuming(server, topic, topic, **settings) as first:
        poll_until(lambda: owned_in(first.assignment()) == wanted, first)
        with consuming(server, topic, topic, **settings) as second:

            def is_shared() -> bool:
                of_first, of_second = owned_in(first.assignment()), owned_in(second.assignment())
                return len(of_first) == len(of_second) == 2 and of_first | of_second == wanted

            poll_until(is_shared, first, second)
        poll_until(lambda: owned_in(first.assignment()) == wanted, first)


def test_positions_are_kept(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = topic_with(server, admin, new_topic, records=10)
    at = TopicPartition(topic, 0)
    with consuming(server, topic, topic) as consumer:
        poll_until(lambda: bool(consumer.assignment()), consumer)
        assert consumer.committed(at) is None
        consumer.commit({at: OffsetAndMetadata(6, "by hand", -1)})
        assert consumer.committed(at, metadata=True)[:2] == (6, "by hand")
        results: list[Any] = []
        consumer.commit_async(
            {at: OffsetAndMetadata(7, "", -1)}, lambda *result: results.append(result)
        )
        poll_until(lambda: bool(results), consumer)
        assert not isinstance(results[0][1], Exception)
    with consuming(server, topic, topic) as heir:
        assert read(heir, 3) == [b"7", b"8", b"9"]
        heir.seek(at, 2)
        assert heir.position(at) == 2


def test_admin_sees_and_changes_groups(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = topic_with(server, admin, new_topic, records=10)
    at = TopicPartition(topic, 0)
    with consuming(server, topic, topic, group_instance_id="static") as consumer:
        poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
        consumer.commit({at: OffsetAndMetadata(6, "", -1)})
        (shown,) = [group for group in admin.list_groups() if group["group_id"] == topic]
        assert (shown["group_state"], shown["protocol_type"]) == ("Stable", "consumer")
        described = admin.describe_groups([topic])[topic]
        assert described["group_state"] == "Stable"
        (member,) = described["members"]
        assert member["group_instance_id"] == "static"
        refused = repr(admin.delete_group_offsets(topic, [at]))
        assert "GroupSubscribedToTopic" in refused
    # A static member remains in the group when it closes, until it is removed.
    admin.remove_group_members(topic, [MemberToRemove(group_instance_id="static")])
    assert admin.describe_groups([topic])[topic]["group_state"] == "Empty"
    assert admin.list_group_offsets(topic)[topic][at].offset == 6
    admin.alter_group_offsets(topic, {at: OffsetAndMetadata(3, "", -1)})
    assert admin.list_group_offsets(topic)[topic][at].offset == 3
    admin.reset_group_offsets(topic, {at: OffsetSpec.LATEST})
    assert admin.list_group_offsets(topic)[topic][at].offset == 10
    admin.delete_group_offsets(topic, [at])
    assert at not in admin.list_group_offsets(topic)[topic]
    admin.delete_groups([topic])
    assert topic not in [group["group_id"] for group in admin.list_groups()]


def test_transactions(server: Server, admin: Any, new_topic: NewName) -> None:
    source = topic_with(server, admin, new_topic, records=3)
    target = topic_with(server, admin, new_topic)
    at = TopicPartition(source, 0)
    with (
        consuming(server, source, source) as consumer,
        producing(server, transactional_id=source) as producer,
    ):
        poll_until(lambda: len(consumer.assignment()) == PARTITIONS, consumer)
        producer.init_transactions()
        for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction]):
            producer.begin_transaction()
            producer.send(target, b"%d" % number, partition=0)
            offsets = {at: OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            ends()
        assert consumer.committed(at) == 1
        producer.begin_transaction()
        producer.send(target, b"last", partition=0)
        producer.commit_transaction()
    assert committed_values(server, target, 2) == [b"0", b"last"]


def test_the_last_producer_of_a_name_wins(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = topic_with(server, admin, new_topic)
    with (
        producing(server, transactional_id=topic) as old,
        producing(server, transactional_id=topic) as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"lost", partition=0).get(ANSWER_SECONDS_MAX)
        new.init_transactions()
        with pytest.raises(ProducerFencedError):
            old.commit_transaction()
        new.begin_transaction()
        new.send(topic, b"kept", partition=0)
        new.commit_transaction()
    assert committed_values(server, topic, 1) == [b"kept"]


def test_admin_sees_transactions(server: Server, admin: Any, new_topic: NewName) -> None:
    topic = topic_with(server, admin, new_topic)
    at = TopicPartition(topic, 0)
    with producing(server, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).get(ANSWER_SECONDS_MAX)
        (listed,) = admin.list_transactions(transactional_id_pattern=f"^{topic}$")[NODE_ID]
        assert (listed.transactional_id, listed.state.value) == (topic, "Ongoing")
        shown = admin.describe_transactions([topic])[topic]
        assert "Ongoing" in repr(shown)
        assert topic in repr(shown.topic_partitions)
        (state,) = admin.describe_producers([at])[at].active_producers
        assert state.producer_id == listed.producer_id
        assert state.current_transaction_start_offset == 0
        producer.commit_transaction()
    # The producer gets its response when the outcome is in the log; the markers follow.
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while admin.describe_transactions([topic])[topic].state.value != "CompleteCommit":
        assert time.monotonic() < deadline
