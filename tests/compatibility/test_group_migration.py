"""The online migration of KIP-848 with confluent-kafka: a group moves to the consumer protocol and
back, one member at a time, under load."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState

from tests.compatibility.librdkafka import admin_of, create_topic, produce
from tests.compatibility.members import (
    CONSUMER,
    COOPERATIVE,
    EAGER,
    Member,
    all_of,
    poll_until,
    share_evenly,
)
from tests.compatibility.servers import Server

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
Settings = Mapping[str, Any]
PARTITIONS = 6
SIZE = 3


class Rolling:
    """A group whose members are replaced one by one. Each commits its offsets before it gives up
    partitions, so every record is read exactly once unless two members share a partition."""

    def __init__(self, server: Server, topic: str) -> None:
        self.server = server
        self.admin = admin_of(server.bootstrap)
        self.topic = topic
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.produced = 0

    def start(self, *settings: Settings) -> None:
        given = {name: value for setting in settings for name, value in setting.items()}
        # librdkafka commits in the rebalance, before it revokes.
        given |= {"enable.auto.commit": True, "auto.commit.interval.ms": 3_600_000}
        self.members.append(Member(self.server.bootstrap, self.topic, [self.topic], given))

    def stop(self) -> None:
        """The oldest member."""
        member = self.members.pop(0)
        member.consumer.close()
        self.gone.append(member)

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()

    def produce(self) -> None:
        for partition in range(PARTITIONS):
            values = [b"%d-%d" % (partition, self.produced + number) for number in range(5)]
            produce(self.server.bootstrap, self.topic, values, partition=partition)
        self.produced += 5

    def settle(self) -> None:
        """Waits until all members have their partitions and all records are read. At no time do two
        members have the same partition. When the group moves back to the classic protocol, a member
        that has not received the latest epoch yet gets ILLEGAL_GENERATION and loses its partitions,
        in Kafka, too: the coordinator reports the group as stable only when all members have
        received it."""
        wanted = all_of(self.topic, PARTITIONS)

        def is_settled() -> bool:
            owned = Counter(each for member in self.members for each in member.owned)
            assert max(owned.values(), default=1) == 1, [each.events for each in self.members]
            return (
                share_evenly(self.members, wanted)
                and len(self.values()) == self.produced * PARTITIONS
                and self.is_stable()
            )

        poll_until(is_settled, *self.members)

    def is_stable(self) -> bool:
        listed = self.admin.list_consumer_groups().result()
        assert not listed.errors, listed.errors
        states = {each.group_id: each.state for each in listed.valid}
        return bool(states[self.topic] == ConsumerGroupState.STABLE)

    def values(self) -> list[bytes | None]:
        return [value for member in (*self.gone, *self.members) for value in member.values]


@pytest.mark.parametrize("classic", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_a_group_moves_over_and_back(
    server: Server, new_topic: NewName, classic: Settings, is_static: bool
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)
    group = Rolling(server, topic)

    def named(index: int) -> Settings:
        return {"group.instance.id": f"i{index}"} if is_static else {}

    with ExitStack() as stack:
        stack.callback(group.close)
        for index in range(SIZE):
            group.start(classic, named(index))
        group.produce()
        group.settle()
        for protocol in (CONSUMER, classic):
            for index in range(SIZE):
                group.stop()
                group.produce()
                group.start(protocol, named(index))
                group.settle()
        assert all(count == 1 for count in Counter(group.values()).values()), "read once"
