"""confluent-kafka in groups: rebalances of both protocols, offsets, static members, patterns."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.compatibility.librdkafka import consumer_of, create_topic, error_code, produce
from tests.compatibility.members import (
    ANSWER_SECONDS_MAX,
    CONSUMER,
    EAGER,
    PROTOCOLS,
    Event,
    all_of,
    joined,
    poll_until,
    share_evenly,
)
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
Settings = Mapping[str, Any]
PARTITIONS = 4
NO_OFFSET = -1001


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


@pytest.fixture(params=["eager", "consumer"])
def family(request: pytest.FixtureRequest) -> Settings:
    """One of the classic protocol, one of the consumer protocol: for tests that do not depend on
    the assignor."""
    return PROTOCOLS[request.param]


def topic_with(server: Server, new_topic: NewName, *, records: int = 0) -> str:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS if records else 0):
        values = [b"%d-%d" % (partition, number) for number in range(records)]
        produce(server.bootstrap, topic, values, partition=partition)
    return topic


def test_members_come_share_and_go(server: Server, new_topic: NewName, protocol: Settings) -> None:
    topic = topic_with(server, new_topic, records=10)
    wanted = all_of(topic, PARTITIONS)
    with joined(server.bootstrap, topic, [topic], protocol) as first:
        poll_until(lambda: first.owned == wanted and len(first.values) == 40, first)
        first.consumer.commit(asynchronous=False)
        with joined(server.bootstrap, topic, [topic], protocol) as second:
            poll_until(lambda: share_evenly([first, second], wanted), first, second)
            for partition in range(PARTITIONS):
                produce(server.bootstrap, topic, [b"more"], partition=partition)
            poll_until(lambda: len(first.values) + len(second.values) == 44, first, second)
            assert second.values == [b"more"] * 2, "the committed position was taken up"
            (revoked,) = [event for event in first.events if event.what == "revoked"]
            given_away = second.owned if first.incremental else wanted
            assert revoked.partitions == given_away
        poll_until(lambda: first.owned == wanted, first)


def test_a_member_that_stops_polling_loses_its_partitions(
    server: Server, new_topic: NewName
) -> None:
    topic = topic_with(server, new_topic)
    wanted = all_of(topic, PARTITIONS)
    impatient = {"max.poll.interval.ms": 600, "session.timeout.ms": 500}
    with joined(server.bootstrap, topic, [topic], EAGER, impatient) as idle:
        poll_until(lambda: idle.owned == wanted, idle)
        with joined(server.bootstrap, topic, [topic], EAGER) as busy:
            poll_until(lambda: busy.owned == wanted, busy)
        poll_until(lambda: Event("lost", wanted) in idle.events, idle)


def test_positions_are_kept(server: Server, new_topic: NewName, family: Settings) -> None:
    topic = topic_with(server, new_topic, records=10)
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: len(member.values) == 40, member)
        assert member.committed(topic, 0) == NO_OFFSET
        member.commit(topic, 0, 3, "by hand")
        member.commit(topic, 1, 7)
        (first, second) = member.consumer.committed(
            [TopicPartition(topic, 0), TopicPartition(topic, 1)], ANSWER_SECONDS_MAX
        )
        assert (first.offset, first.metadata) == (3, "by hand")
        assert (second.offset, second.metadata) == (7, "")
        member.consumer.seek(TopicPartition(topic, 0, 9))
        poll_until(lambda: member.values[-1] == b"0-9" and len(member.values) == 41, member)
    with joined(server.bootstrap, topic, [topic], family) as heir:
        poll_until(lambda: len(heir.values) == 7 + 3 + 20, heir)
        assert b"0-2" not in heir.values
        assert b"1-6" not in heir.values


def test_commits_without_waiting(server: Server, new_topic: NewName, family: Settings) -> None:
    topic = topic_with(server, new_topic, records=10)
    seen: list[tuple[KafkaError | None, int]] = []

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        seen.extend(
            (error, partition.offset) for partition in partitions if partition.offset != NO_OFFSET
        )

    with joined(server.bootstrap, topic, [topic], family, {"on_commit": on_commit}) as member:
        poll_until(lambda: len(member.values) == 40, member)
        member.consumer.commit(asynchronous=True)
        poll_until(lambda: len(seen) == PARTITIONS, member)
        assert seen == [(None, 10)] * PARTITIONS
        assert [member.committed(topic, partition) for partition in range(PARTITIONS)] == [
            10
        ] * PARTITIONS


def test_closing_commits_what_was_read(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic, records=5)
    with joined(server.bootstrap, topic, [topic], family, {"enable.auto.commit": True}) as member:
        poll_until(lambda: len(member.values) == 20, member)
    produce(server.bootstrap, topic, [b"new"])
    with joined(server.bootstrap, topic, [topic], family) as heir:
        poll_until(lambda: len(heir.values) > 0, heir)
        assert heir.values == [b"new"]


def test_a_static_member_comes_back_to_its_partitions(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic)
    wanted = all_of(topic, PARTITIONS)
    with joined(server.bootstrap, topic, [topic], family, {"group.instance.id": "one"}) as first:
        with joined(
            server.bootstrap, topic, [topic], family, {"group.instance.id": "two"}
        ) as second:
            poll_until(lambda: share_evenly([first, second], wanted), first, second)
            before, events = second.owned, len(first.events)
        with joined(
            server.bootstrap, topic, [topic], family, {"group.instance.id": "two"}
        ) as second:
            poll_until(lambda: second.owned == before, second)
            first.poll()
            assert len(first.events) == events, "nobody else was bothered"


def test_a_static_member_has_one_body_at_a_time(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic)
    wanted = all_of(topic, PARTITIONS)
    with joined(server.bootstrap, topic, [topic], family, {"group.instance.id": "one"}) as old:
        poll_until(lambda: old.owned == wanted, old)
        with joined(server.bootstrap, topic, [topic], family, {"group.instance.id": "one"}) as new:
            if family is CONSUMER:  # the first one stays until it leaves
                poll_until(lambda: new.error is not None, new)
                assert "still used by another member" in str(new.error)
            else:  # the last one fences the first
                poll_until(lambda: old.error is not None and new.owned == wanted, old, new)
                assert "fenced" in str(old.error)


def test_a_pattern_finds_topics_as_they_come(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic)
    pattern = f"^{topic}.*"
    often = {"topic.metadata.refresh.interval.ms": 200}
    with joined(server.bootstrap, topic, [pattern], family, often) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        create_topic(server.bootstrap, f"{topic}-late", partitions=1)
        wanted = all_of(topic, PARTITIONS) | all_of(f"{topic}-late", 1)
        poll_until(lambda: member.owned == wanted, member)


def test_members_of_both_protocols_share_a_group(server: Server, new_topic: NewName) -> None:
    """The migration of KIP-848: a group changes its protocol one member at a time, and back."""
    topic = topic_with(server, new_topic)
    wanted = all_of(topic, PARTITIONS)
    with joined(server.bootstrap, topic, [topic], EAGER) as old:
        poll_until(lambda: old.owned == wanted, old)
        with joined(server.bootstrap, topic, [topic], CONSUMER) as new:
            poll_until(lambda: share_evenly([old, new], wanted), old, new)
            old.commit(topic, 0, 5)
            assert new.committed(topic, 0) == 5
        poll_until(lambda: old.owned == wanted, old)


def test_a_stranger_cannot_commit_for_a_live_group(
    server: Server, new_topic: NewName, family: Settings
) -> None:
    topic = topic_with(server, new_topic)
    with joined(server.bootstrap, topic, [topic], family) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        at = TopicPartition(topic, 0, 5)
        with consumer_of(server.bootstrap, **{"group.id": topic}) as stranger:
            stranger.assign([at])
            with pytest.raises(KafkaException) as raised:
                stranger.commit(offsets=[at], asynchronous=False)
        assert error_code(raised.value) == KafkaError.UNKNOWN_MEMBER_ID
        assert member.committed(topic, 0) == NO_OFFSET
