"""Lograft's consumer in groups, on nodes of both kinds, alone and together with members of
librdkafka."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lograft.client import (
    CommitFailed,
    Consumer,
    Producer,
    RebalanceListener,
    TopicPartition,
    UnsupportedByBroker,
)
from tests.compatibility.librdkafka import create_topic, produce
from tests.compatibility.members import PROTOCOLS, Member, joined
from tests.compatibility.servers import Server, skip_before_4
from tests.support.scenarios import run_in_asyncio, scenario

pytestmark = [pytest.mark.clients, pytest.mark.conformance]
NewName = Callable[[], str]
Settings = dict[str, Any]
ANSWER_SECONDS_MAX = 60
PARTITIONS = 4
POLL_MS = 20


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest, server: Server) -> Settings:
    if request.param == "consumer":
        skip_before_4(server, "KIP-848 groups unless a setting asks for the preview")
    return dict(PROTOCOLS[request.param])


class Group:
    """Consumers of one group that are closed with the test."""

    def __init__(self, server: Server, topic: str, stack: AsyncExitStack) -> None:
        self.server = server
        self.topic = topic
        self.id = f"{topic}-group"
        self._stack = stack

    async def consumer(
        self, settings: Settings, listener: RebalanceListener | None = None
    ) -> Consumer:
        given = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": self.id,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 100,
            **settings,
        }
        consumer = await self._stack.enter_async_context(Consumer(given))
        consumer.subscribe([self.topic], listener=listener)
        return consumer


def play(
    scenario: Callable[[Group], Coroutine[Any, Any, None]], server: Server, new_topic: NewName
) -> None:
    topic = new_topic()
    create_topic(server.bootstrap, topic, partitions=PARTITIONS)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            await scenario(Group(server, topic, stack))

    run_in_asyncio(main)


async def until(
    is_reached: Callable[[], bool], ours: Sequence[Consumer], theirs: Sequence[Member] = ()
) -> list[bytes]:
    """Polls all members in turn; returns the records of Lograft's consumers."""
    got: list[bytes] = []
    while not is_reached():
        for consumer in ours:
            for records in (await consumer.poll(timeout_ms=POLL_MS)).values():
                got += [record.value for record in records]
        for member in theirs:
            await asyncio.to_thread(member.poll)
    return got


def shared(topic: str, *owners: Callable[[], Any]) -> Callable[[], bool]:
    """Returns whether each partition has one owner and the numbers of partitions differ by at most
    one."""
    wanted = {(topic, index) for index in range(PARTITIONS)}

    def is_so() -> bool:
        parts = [{tuple(each) for each in owner()} for owner in owners]
        sizes = [len(part) for part in parts]
        return (
            sum(sizes) == PARTITIONS
            and set().union(*parts) == wanted
            and max(sizes) - min(sizes) <= 1
        )

    return is_so


async def write(group: Group, values: Sequence[bytes]) -> None:
    async with Producer(bootstrap_servers=group.server.bootstrap) as producer:
        for index, value in enumerate(values):
            await producer.enqueue(group.topic, value, partition=index % PARTITIONS)


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@scenario(play)
async def test_a_group_grows_and_shrinks_and_every_record_comes_once(
    group: Group, /, protocol: Settings
) -> None:
    topic = group.topic
    first = await group.consumer(protocol)
    await until(shared(topic, first.assignment), [first])
    second = await group.consumer(protocol)
    got = await until(shared(topic, first.assignment, second.assignment), [first, second])
    await write(group, numbers(0, 40))
    while len(got) < 40:
        for consumer in (first, second):
            for records in (await consumer.poll(timeout_ms=POLL_MS)).values():
                got += [record.value for record in records]
    await first.close()
    await write(group, numbers(40, 40))
    while len(got) < 80:
        for records in (await second.poll()).values():
            got += [record.value for record in records]
    assert sorted(got, key=int) == numbers(0, 80)


@scenario(play)
async def test_members_of_librdkafka_and_ours_share_a_group(
    group: Group, /, server: Server, protocol: Settings
) -> None:
    topic = group.topic
    ours = await group.consumer(protocol)
    await until(shared(topic, ours.assignment), [ours])
    with joined(server.bootstrap, group.id, [topic], protocol) as theirs:
        # Lograft's consumer leads the group, librdkafka's joins.
        together = shared(topic, ours.assignment, lambda: theirs.owned)
        await until(together, [ours], [theirs])
        await ours.unsubscribe()
        await until(shared(topic, lambda: theirs.owned), [], [theirs])
        # librdkafka's consumer leads, Lograft's joins.
        ours.subscribe([topic])
        await until(together, [ours], [theirs])
        await write(group, numbers(0, 40))
        got: list[bytes] = []
        while len(got) + len(theirs.values) < 40:
            for records in (await ours.poll(timeout_ms=POLL_MS)).values():
                got += [record.value for record in records]
            await asyncio.to_thread(theirs.poll)
        everything = [*got, *(value for value in theirs.values if value is not None)]
        assert sorted(everything, key=int) == numbers(0, 40)


@scenario(play)
async def test_static_members_and_positions_that_are_kept(
    group: Group, /, protocol: Settings
) -> None:
    topic = group.topic
    first = await group.consumer({**protocol, "group.instance.id": "one"})
    second = await group.consumer({**protocol, "group.instance.id": "two"})
    await until(shared(topic, first.assignment, second.assignment), [first, second])
    before = second.assignment()
    await write(group, numbers(0, 8))
    got: list[bytes] = []
    while len(got) < 8:
        for consumer in (first, second):
            for records in (await consumer.poll(timeout_ms=POLL_MS)).values():
                got += [record.value for record in records]
    await second.close()
    again = await group.consumer({**protocol, "group.instance.id": "two"})
    await until(lambda: again.assignment() == before, [first, again])
    for place in (await again.committed(before)).values():
        assert place is not None
        assert place.offset == 2
    await write(group, numbers(8, 8))
    while len(got) < 16:
        for consumer in (first, again):
            for records in (await consumer.poll(timeout_ms=POLL_MS)).values():
                got += [record.value for record in records]
    assert sorted(got, key=int) == numbers(0, 16)


@scenario(play)
async def test_a_member_that_was_too_slow_cannot_commit(
    group: Group, /, protocol: Settings
) -> None:
    calls: list[str] = []

    class Diary(RebalanceListener):
        def on_lost(self, partitions: Any) -> None:
            calls.append("lost")

    topic = group.topic
    slow = await group.consumer(
        {**protocol, "max.poll.interval.ms": 500, "enable.auto.commit": False}, Diary()
    )
    await until(shared(topic, slow.assignment), [slow])
    other = await group.consumer({**protocol, "enable.auto.commit": False})
    await until(lambda: len(other.assignment()) == PARTITIONS, [other])
    with pytest.raises(CommitFailed):
        await slow.commit({TopicPartition(topic, 0): 0})
    await until(shared(topic, slow.assignment, other.assignment), [slow, other])
    assert calls == ["lost"]


@scenario(play)
async def test_a_pattern_finds_topics(group: Group, /, server: Server, protocol: Settings) -> None:
    topic = group.topic
    consumer = await group.consumer({**protocol, "metadata.max.age.ms": 500})
    consumer.subscribe_pattern(f"{topic}.*")
    await until(lambda: len(consumer.assignment()) == PARTITIONS, [consumer])
    if protocol.get("group.protocol") == "consumer":
        return  # The server looks for new topics every ten seconds at most.
    later = f"{topic}-later"
    await asyncio.to_thread(create_topic, server.bootstrap, later)
    await until(lambda: TopicPartition(later, 0) in consumer.assignment(), [consumer])
    await asyncio.to_thread(produce, server.bootstrap, later, [b"hello"])
    async for record in consumer:
        assert (record.topic, record.value) == (later, b"hello")
        break


@scenario(play)
async def test_who_has_no_groups_of_the_newer_protocol_is_named(
    group: Group, /, server: Server
) -> None:
    topic = group.topic
    consumer = await group.consumer({"group.protocol": "consumer"})
    if server.kind == "kafka39":
        with pytest.raises(UnsupportedByBroker, match=r"use group\.protocol=classic"):
            await consumer.poll()
    else:
        await until(shared(topic, consumer.assignment), [consumer])


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@scenario(play)
async def test_the_server_assigns_as_it_is_asked_to(
    group: Group, /, server: Server, assignor: str
) -> None:
    skip_before_4(server, "KIP-848 groups unless a setting asks for the preview")

    topic = group.topic
    settings = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    pair = [await group.consumer(settings) for _ in range(2)]
    await until(shared(topic, *(consumer.assignment for consumer in pair)), pair)


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
@scenario(play)
async def test_the_other_assignors_of_the_classic_protocol(group: Group, /, assignor: str) -> None:
    topic = group.topic
    settings = {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": 100}
    trio = [await group.consumer(settings) for _ in range(3)]
    await until(shared(topic, *(consumer.assignment for consumer in trio)), trio)
    await trio.pop().close()
    await until(shared(topic, *(consumer.assignment for consumer in trio)), trio)
