"""aiokafka in groups and transactions."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import ProducerFenced

from tests.compatibility.members import all_of, owned_in
from tests.compatibility.servers import Server
from tests.compatibility.test_aiokafka import admin_of, create, send_all, started
from tests.support.scenarios import scenario

pytestmark = pytest.mark.clients
NewName = Callable[[], str]
PARTITIONS = 4
ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Every change of a member's assignment; each sets `changed`."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.changed = asyncio.Event()

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self.events.append(("revoked", len(list(revoked))))

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self.events.append(("assigned", len(list(assigned))))
        self.changed.set()

    async def wait_owning(self, consumer: Any, count: int) -> None:
        while len(consumer.assignment()) != count:
            await self.changed.wait()
            self.changed.clear()


def member(server: Server, group: str, **settings: Any) -> Any:
    return AIOKafkaConsumer(
        bootstrap_servers=server.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        **settings,
    )


@pytest.mark.parametrize("strategy", ASSIGNORS)
@scenario()
async def test_members_come_share_and_go(server: Server, new_topic: NewName, strategy: str) -> None:
    topic = new_topic()
    await create(server, topic, partitions=PARTITIONS)
    settings = {"partition_assignment_strategy": [ASSIGNORS[strategy]]}
    first, second = (member(server, topic, **settings) for _member in range(2))
    first_listener, second_listener = Listener(), Listener()
    first.subscribe([topic], listener=first_listener)
    second.subscribe([topic], listener=second_listener)
    async with started(first):
        await first_listener.wait_owning(first, PARTITIONS)
        async with started(second):
            await first_listener.wait_owning(first, 2)
            await second_listener.wait_owning(second, 2)
            both = owned_in(first.assignment()) | owned_in(second.assignment())
            assert both == all_of(topic, PARTITIONS)
        await first_listener.wait_owning(first, PARTITIONS)
    assert ("revoked", PARTITIONS) in first_listener.events, (
        "eagerly: all of it, before it is shared"
    )


@scenario()
async def test_positions_are_kept(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic, partitions=1)
    await send_all(server, topic, [b"%d" % number for number in range(10)])
    at = TopicPartition(topic, 0)
    consumer = member(server, topic)
    consumer.subscribe([topic])
    async with started(consumer):
        for _record in range(4):
            await consumer.getone()
        assert await consumer.committed(at) is None
        await consumer.commit()
        assert await consumer.committed(at) == 4
        await consumer.commit({at: (6, "by hand")})
        assert await consumer.committed(at) == 6
        await consumer.seek_to_committed(at)
        assert (await consumer.getone()).value == b"6"
    heir = member(server, topic)
    heir.subscribe([topic])
    async with started(heir):
        assert (await heir.getone()).value == b"6"
    async with admin_of(server) as admin:
        assert (topic, "consumer") in await admin.list_consumer_groups()
        offsets = await admin.list_consumer_group_offsets(topic)
        assert (offsets[at].offset, offsets[at].metadata) == (6, "by hand")
        assert "Empty" in repr(await admin.describe_consumer_groups([topic]))


@scenario()
async def test_a_pattern_finds_topics(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic, partitions=PARTITIONS)
    consumer, listener = member(server, topic, metadata_max_age_ms=200), Listener()
    consumer.subscribe(pattern=f"^{topic}.*", listener=listener)
    async with started(consumer):
        await listener.wait_owning(consumer, PARTITIONS)
        await create(server, f"{topic}-late", partitions=1)
        await listener.wait_owning(consumer, PARTITIONS + 1)


def producer_of(server: Server, identity: str) -> Any:
    return AIOKafkaProducer(bootstrap_servers=server.bootstrap, transactional_id=identity)


@scenario()
async def test_transactions(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic)
    at = TopicPartition(topic, 0)
    async with started(producer_of(server, topic)) as producer:
        async with producer.transaction():
            await producer.send(topic, b"first", partition=0)
            await producer.send_offsets_to_transaction({at: 5}, f"{topic}-group")
        await producer.begin_transaction()
        await producer.send(topic, b"aborted", partition=0)
        await producer.send_offsets_to_transaction({at: 9}, f"{topic}-group")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"second", partition=0)
    reader = member(server, f"{topic}-group", isolation_level="read_committed")
    async with started(reader):
        reader.assign([at])
        assert await reader.committed(at) == 5
        reader.seek(at, 0)
        assert [(await reader.getone()).value for _record in range(2)] == [b"first", b"second"]


@scenario()
async def test_the_last_producer_of_a_name_wins(server: Server, new_topic: NewName) -> None:
    topic = new_topic()
    await create(server, topic)
    old = producer_of(server, topic)
    await old.start()
    await old.begin_transaction()
    await old.send_and_wait(topic, b"lost", partition=0)
    async with started(producer_of(server, topic)) as new:
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()
        await old.stop()
        async with new.transaction():
            await new.send(topic, b"kept", partition=0)
    reader = member(server, topic, isolation_level="read_committed")
    reader.subscribe([topic])
    async with started(reader):
        assert (await reader.getone()).value == b"kept"
