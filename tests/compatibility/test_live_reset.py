"""The offsets of a group are reset while consumers of confluent-kafka run, and the reset is undone.
Only Lograft supports this: Apache Kafka must reject it, and read the log of a reset."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.compatibility.conftest import SHARED_SETTINGS, serving
from tests.compatibility.librdkafka import consumer_of, create_topic, error_code, produce
from tests.compatibility.members import (
    ANSWER_SECONDS_MAX,
    CONSUMER,
    EAGER,
    PROTOCOLS,
    Member,
    all_of,
    joined,
    poll_until,
    share_evenly,
)
from tests.compatibility.servers import Server, lograft_command

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
Settings = Mapping[str, Any]
PARTITIONS = 4
RECORDS = 50
#: Time in which a member of the classic protocol sends no heartbeat.
DEAF_MS = 2_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("resets")
    with serving(Server.of("lograft", folder, settings=SHARED_SETTINGS)) as started:
        yield started


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


@pytest.fixture(params=["eager", "consumer"])
def family(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


def groups(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*lograft_command(), "groups", arguments[0], "-b", server.bootstrap, *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def done(server: Server, *arguments: str) -> dict[str, Any]:
    ran = groups(server, *arguments, "--execute", "--json")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def filled_topic(server: Server, topic: str) -> str:
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, number) for number in range(RECORDS)]
        produce(server.bootstrap, topic, values, partition=partition)
    return topic


def records_from(first: int) -> Counter[bytes]:
    return Counter(
        b"%d-%d" % (partition, number)
        for partition in range(PARTITIONS)
        for number in range(first, RECORDS)
    )


def has_read(member: Member, value: bytes, times: int) -> bool:
    return read_by(member)[value] >= times


def read_by(*members: Member) -> Counter[bytes]:
    return Counter(value for member in members for value in member.values if value is not None)


def have_committed(members: Collection[Member], offset: int) -> bool:
    """Not if there is a rebalance in between, or while a member does not know yet that it is
    fenced."""
    try:
        for member in members:
            for topic, partition in sorted(member.owned):
                member.commit(topic, partition, offset)
    except KafkaException as error:
        if error_code(error) not in (
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.REBALANCE_IN_PROGRESS,
            KafkaError.STALE_MEMBER_EPOCH,
            KafkaError.UNKNOWN_MEMBER_ID,
        ):
            raise
        return False
    return sum(len(member.owned) for member in members) == PARTITIONS


def test_a_reset_of_a_live_group_and_its_undo_by_the_next_coordinator(
    node: Server, new_topic: NewName, protocol: Settings
) -> None:
    topic = filled_topic(node, new_topic())
    with (
        joined(node.bootstrap, topic, [topic], protocol) as first,
        joined(node.bootstrap, topic, [topic], protocol) as second,
    ):
        both = (first, second)
        poll_until(lambda: share_evenly(both, all_of(topic, PARTITIONS)), *both)
        poll_until(lambda: not records_from(0) - read_by(*both), *both)
        poll_until(lambda: have_committed(both, 20), *both)
        for member in both:
            member.values.clear()

        moved = done(node, "reset", topic, "--topic", topic, "--to-offset", "45")
        assert moved["members"] == 2
        assert [(move["before"], move["after"]) for move in moved["moves"]] == [(20, 45)] * 4
        poll_until(lambda: share_evenly(both, all_of(topic, PARTITIONS)), *both)
        poll_until(lambda: not records_from(45) - read_by(*both), *both)
        assert read_by(*both).keys() == records_from(45).keys()
        poll_until(lambda: have_committed(both, RECORDS), *both)
        for member in both:
            member.values.clear()

        node.stop()
        node.start()
        moved = done(node, "undo", topic)
        assert [(move["before"], move["after"]) for move in moved["moves"]] == [(RECORDS, 20)] * 4
        poll_until(lambda: not records_from(20) - read_by(*both), *both)
        assert read_by(*both).keys() == records_from(20).keys()
    refused = groups(node, "undo", topic)
    assert refused.returncode == 1
    assert "has no reset to undo" in refused.stderr


def test_consumers_that_commit_all_the_time_do_not_overwrite_a_reset(
    node: Server, new_topic: NewName, protocol: Settings
) -> None:
    """Until their next heartbeat they do not know about the reset, and continue to commit."""
    topic = filled_topic(node, new_topic())
    eager = {"enable.auto.commit": True, "auto.commit.interval.ms": 20}
    slow = {} if protocol is CONSUMER else {"heartbeat.interval.ms": 500}
    firsts = {b"%d-0" % partition for partition in range(PARTITIONS)}
    with joined(node.bootstrap, topic, [topic], protocol, eager, slow) as member:
        for rounds in range(1, 4):
            poll_until(lambda: not records_from(0) - read_by(member), member)
            for partition in range(PARTITIONS):
                produce(node.bootstrap, topic, [b"more"] * 20, partition=partition)
            more = 20 * PARTITIONS * rounds
            poll_until(partial(has_read, member, b"more", more), member)
            member.values.clear()
            done(node, "reset", topic, "--all-topics", "--to-earliest")
            poll_until(lambda: read_by(member).keys() >= firsts, member)


def test_a_member_that_has_not_heard_of_it_cannot_commit(node: Server, new_topic: NewName) -> None:
    topic = filled_topic(node, new_topic())
    deaf = {"heartbeat.interval.ms": DEAF_MS}
    with joined(node.bootstrap, topic, [topic], EAGER, deaf) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        member.commit(topic, 0, 5)
        done(node, "reset", topic, "--topic", f"{topic}:0", "--to-offset", "9")
        with pytest.raises(KafkaException) as raised:
            member.commit(topic, 0, 6)
        assert error_code(raised.value) == KafkaError.UNKNOWN_MEMBER_ID
        assert member.committed(topic, 0) == 9


def test_a_member_that_has_lost_its_id_cannot_commit(node: Server, new_topic: NewName) -> None:
    """The member knows about the reset and waits for the application, which is busy and then
    commits."""
    topic = filled_topic(node, new_topic())
    with joined(node.bootstrap, topic, [topic], EAGER) as member:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        member.commit(topic, 0, 5)
        before = member.consumer.memberid()
        done(node, "reset", topic, "--topic", f"{topic}:0", "--to-offset", "9")
        deadline = time.monotonic() + 10
        while member.consumer.memberid() == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(KafkaException):
            member.commit(topic, 0, 6)
        assert member.committed(topic, 0) == 9
        member.values.clear()
        poll_until(lambda: b"0-9" in member.values, member)
        assert b"0-8" not in member.values


@pytest.mark.parametrize("is_live", [True, False])
def test_apache_kafka_refuses(
    server: Server, new_topic: NewName, family: Settings, is_live: bool
) -> None:
    topic = filled_topic(server, new_topic())
    member = Member(server.bootstrap, topic, [topic], family)
    try:
        poll_until(lambda: member.owned == all_of(topic, PARTITIONS), member)
        member.commit(topic, 0, 5)
        if not is_live:
            member.consumer.close()
        asked = ("reset", topic, "--topic", topic, "--to-offset", "9", "--execute")
        ran = groups(server, *asked)
    finally:
        member.consumer.close()
    if server.kind == "kafka":
        assert ran.returncode == 1
        assert "this broker cannot reset a group that has members" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
    with consumer_of(server.bootstrap, **{"group.id": topic}) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 0)], ANSWER_SECONDS_MAX)
        assert found.offset == (5 if server.kind == "kafka" else 9)


@pytest.mark.interop
def test_apache_kafka_goes_on_where_a_reset_has_left_the_group(
    new_server: Callable[..., Server], new_topic: NewName
) -> None:
    lograft = new_server("lograft", settings=SHARED_SETTINGS).start()
    topic = filled_topic(lograft, new_topic())
    with joined(lograft.bootstrap, topic, [topic], EAGER) as member:
        poll_until(lambda: not records_from(0) - read_by(member), member)
        member.commit(topic, 0, 5)
        done(lograft, "reset", topic, "--topic", topic, "--to-offset", "45")
        member.values.clear()
        poll_until(lambda: not records_from(45) - read_by(member), member)
        member.commit(topic, 1, 47)
    lograft.stop()
    kafka = new_server("kafka", settings=SHARED_SETTINGS).using_data_of(lograft).start()
    with joined(kafka.bootstrap, topic, [topic], EAGER) as heir:
        poll_until(lambda: len(heir.values) >= 18, heir)
        assert read_by(heir) == records_from(45) - Counter([b"1-45", b"1-46"])
