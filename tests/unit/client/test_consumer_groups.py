"""Consumer groups on simulated clusters, with both protocols: every partition has one owner, every
record is read, committed offsets carry over, and listeners are called in order."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lograft.client.consumer import Consumer
from lograft.client.consuming.rebalance_listener import ListenerFailed, RebalanceListener
from lograft.client.consuming.subscription_modes import WrongMode
from lograft.client.errors import BrokerError, CommitFailed, FencedInstance, TimedOut, WrongUse
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, "ConsumerFactory"], Awaitable[None]]
Settings = dict[str, Any]

PARTITIONS = 4
ALL = {TopicPartition("t", i) for i in range(PARTITIONS)}
EAGER: Settings = {"partition.assignment.strategy": "range"}
COOPERATIVE: Settings = {"partition.assignment.strategy": "cooperative-sticky"}
CONSUMER: Settings = {"group.protocol": "consumer"}
CONSISTENT: Settings = {"partition.assignment.strategy": "consistent"}
PROTOCOLS = {
    "eager": EAGER,
    "cooperative": COOPERATIVE,
    "consistent": CONSISTENT,
    "consumer": CONSUMER,
}


class ConsumerFactory:
    """Creates consumers that are closed at the end of the test."""

    def __init__(self, cluster: VirtualCluster, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._stack = stack

    async def create(
        self,
        *settings: Settings,
        listener: RebalanceListener | None = None,
        subscribes: bool = True,
    ) -> Consumer:
        merged: Settings = {
            "bootstrap.servers": ",".join(map(str, self._cluster.bootstrap())),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "request.timeout.ms": 5_000,
        }
        for overrides in settings:
            merged |= overrides
        consumer = Consumer(merged, runtime=self._cluster.client_runtime())
        await self._stack.enter_async_context(consumer)
        if subscribes:
            consumer.subscribe(["t"], listener=listener)
        return consumer


def play(scenario: Scenario, *, nodes: int = 1, seed: int = 3) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=nodes)
        async with AsyncExitStack() as stack:
            await scenario(cluster, ConsumerFactory(cluster, stack))

    properties = {
        "offsets.topic.replication.factor": str(nodes),
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.assignors": "uniform,consistent",
    }
    VirtualCluster(nodes=nodes, seed=seed, properties=properties).play(main)


async def write(cluster: VirtualCluster, values: Iterable[bytes]) -> None:
    servers = ",".join(map(str, cluster.bootstrap()))
    async with Producer(bootstrap_servers=servers, runtime=cluster.client_runtime()) as producer:
        for i, value in enumerate(values):
            await producer.enqueue("t", value, partition=i % PARTITIONS)


async def poll_until(done: Callable[[], bool], consumers: Sequence[Consumer]) -> list[bytes]:
    """Polls the consumers in turn until the condition is met. Returns the values that they read."""
    values: list[bytes] = []
    for _ in range(2_000):
        if done():
            return values
        for consumer in consumers:
            polled = await consumer.poll(timeout_ms=50)
            values += [record.value for records in polled.values() for record in records]
    raise AssertionError([consumer.assignment() for consumer in consumers])


def are_assigned(
    consumers: Sequence[Consumer], expected: set[TopicPartition] = ALL
) -> Callable[[], bool]:
    """A condition: each consumer has partitions, and each expected partition has one owner."""

    def is_met() -> bool:
        shares = [consumer.assignment() for consumer in consumers]
        return (
            all(shares)
            and sum(map(len, shares)) == len(expected)
            and set().union(*shares) == expected
        )

    return is_met


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


@scenario(play)
async def test_members_share_partitions_and_continue_at_committed_offsets(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    first = await factory.create(protocol)
    await write(cluster, [b"%d" % i for i in range(40)])
    values: list[bytes] = []
    while len(values) < 40:
        for records in (await first.poll()).values():
            values += [record.value for record in records]
    assert first.assignment() == ALL
    second = await factory.create(protocol)
    assert await poll_until(are_assigned([first, second]), [first, second]) == []
    await write(cluster, [b"%d" % i for i in range(40, 80)])
    while len(values) < 80:
        for consumer in (first, second):
            for records in (await consumer.poll(timeout_ms=50)).values():
                values += [record.value for record in records]
    assert sorted(values, key=int) == [b"%d" % i for i in range(80)]
    await first.close()
    assert await poll_until(are_assigned([second]), [second]) == []
    # What the first one has read is committed: no record is read again.
    assert await second.poll(timeout_ms=2_000) == {}


class RecordingListener(RebalanceListener):
    """One method is plain, the others are `async`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def on_assigned(self, partitions: Any) -> None:
        await asyncio.sleep(0.01)
        self.calls.append(("assigned", len(partitions)))

    def on_revoked(self, partitions: Any) -> None:
        self.calls.append(("revoked", len(partitions)))

    async def on_lost(self, partitions: Any) -> None:
        self.calls.append(("lost", len(partitions)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (EAGER, [("assigned", 4), ("revoked", 4), ("assigned", 2), ("revoked", 2)]),
        (COOPERATIVE, [("assigned", 4), ("revoked", 2), ("assigned", 0), ("revoked", 2)]),
        (CONSUMER, [("assigned", 4), ("revoked", 2), ("assigned", 0), ("revoked", 2)]),
    ],
    ids=["eager", "cooperative", "consumer"],
)
@scenario(play)
async def test_listeners_are_called_for_revoked_and_assigned_partitions(
    cluster: VirtualCluster,
    factory: ConsumerFactory,
    /,
    settings: Settings,
    expected: list[tuple[str, int]],
) -> None:
    listener = RecordingListener()
    first = await factory.create(settings, listener=listener)
    await poll_until(are_assigned([first]), [first])
    second = await factory.create(settings)
    await poll_until(are_assigned([first, second]), [first, second])
    await first.close()
    # on_assigned is also called without new partitions, as in Java's consumer.
    calls = [call for call in listener.calls if call != ("assigned", 0)]
    assert calls == [call for call in expected if call != ("assigned", 0)]


@scenario(play)
async def test_positions_are_committed_before_partitions_are_revoked(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    class ReadingCommitted(RebalanceListener):
        consumer: Consumer
        committed: Any = None

        async def on_revoked(self, partitions: Any) -> None:
            self.committed = await self.consumer.committed(partitions)

    listener = ReadingCommitted()
    first = await factory.create(protocol, {"max.poll.records": 1}, listener=listener)
    listener.consumer = first
    await write(cluster, [b"%d" % i for i in range(40)])
    count = 0
    while count < 10:
        count += sum(map(len, (await first.poll()).values()))
    second = await factory.create(protocol, {"max.poll.records": 1})
    positions: dict[TopicPartition, int] = {}

    async def poll_until_revoked() -> None:
        while listener.committed is None:
            for partition in first.assignment():
                positions[partition] = await first.position(partition)
            await first.poll(timeout_ms=50)
            await second.poll(timeout_ms=50)

    await poll_until_revoked()
    for partition, committed in listener.committed.items():
        assert committed is not None
        assert committed.offset == positions[partition]


@scenario(play)
async def test_a_slow_application_loses_its_partitions_and_rejoins(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    listener = RecordingListener()
    slow = await factory.create(protocol, {"max.poll.interval.ms": 10_000}, listener=listener)
    await poll_until(are_assigned([slow]), [slow])
    other = await factory.create(protocol)
    await poll_until(are_assigned([slow, other]), [slow, other])
    polled_at = cluster.loop.time()
    while other.assignment() != ALL:
        await other.poll(timeout_ms=100)
    assert cluster.loop.time() - polled_at > 9
    with pytest.raises(CommitFailed):
        await slow.commit(dict.fromkeys(slow.assignment(), 0))
    listener.calls.clear()
    await poll_until(are_assigned([slow, other]), [slow, other])
    assert listener.calls[0] == ("lost", 2)


@scenario(play)
async def test_a_consumer_outside_the_group_cannot_commit(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    early = await factory.create(protocol)
    with pytest.raises(CommitFailed, match="is not a member"):
        await early.commit({TopicPartition("t", 0): 5})
    await early.close()
    slow = await factory.create(protocol, {"max.poll.interval.ms": 5_000})
    await poll_until(are_assigned([slow]), [slow])
    await asyncio.sleep(30)
    with pytest.raises(CommitFailed, match="is not a member"):
        await slow.commit({TopicPartition("t", 0): 5})
    assert await slow.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
    # The next call handles the loss and joins again.
    await slow.poll(timeout_ms=10_000)
    await slow.commit({TopicPartition("t", 0): 5})


@scenario(play)
async def test_waiting_in_poll_does_not_exceed_the_poll_interval(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    listener = RecordingListener()
    consumer = await factory.create(protocol, {"max.poll.interval.ms": 5_000}, listener=listener)
    assert await consumer.poll(timeout_ms=60_000) == {}
    assert consumer.assignment() == ALL
    assert listener.calls == [("assigned", 4)]


@scenario(play)
async def test_a_static_member_gets_its_partitions_back(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    first = await factory.create(protocol, {"group.instance.id": "one"})
    second = await factory.create(protocol, {"group.instance.id": "two"})
    await poll_until(are_assigned([first, second]), [first, second])
    before = second.assignment()
    await second.close()
    rejoined = await factory.create(protocol, {"group.instance.id": "two"})
    while not rejoined.assignment():
        await rejoined.poll(timeout_ms=50)
        await first.poll(timeout_ms=50)
    assert rejoined.assignment() == before


@scenario(play)
async def test_the_second_member_with_an_instance_id_fences_the_first(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    first = await factory.create(EAGER, {"group.instance.id": "one"})
    await poll_until(are_assigned([first]), [first])
    second = await factory.create(EAGER, {"group.instance.id": "one"})
    while not second.assignment():
        await second.poll(timeout_ms=100)
    for _ in range(2):
        with pytest.raises(FencedInstance):
            await first.poll(timeout_ms=30_000)


@scenario(play)
async def test_patterns_match_topics_that_are_created_later(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    consumer = await factory.create(protocol, {"metadata.max.age.ms": 2_000}, subscribes=False)
    consumer.subscribe_pattern("t|later-.*")
    await poll_until(lambda: consumer.assignment() == ALL, [consumer])
    await cluster.test_client("admin").create_topic("later-1", partitions=1)
    await cluster.test_client("admin").create_topic("not-later-1", partitions=1)
    expected = ALL | {TopicPartition("later-1", 0)}
    await poll_until(lambda: consumer.assignment() == expected, [consumer])
    if protocol is CONSUMER:
        consumer.subscribe_pattern("(")
        with pytest.raises(BrokerError, match="INVALID_REGULAR_EXPRESSION"):
            await consumer.poll(timeout_ms=30_000)
    else:
        # The internal topics exist by now, and are excluded.
        consumer.subscribe_pattern(".*")
        all_topics = expected | {TopicPartition("not-later-1", 0)}
        await poll_until(lambda: consumer.assignment() == all_topics, [consumer])
        with pytest.raises(WrongUse, match="is not a valid regular expression"):
            consumer.subscribe_pattern("(")


@scenario(play)
async def test_subscriptions_can_be_replaced_and_removed(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    await cluster.test_client("admin").create_topic("u", partitions=2)
    consumer = await factory.create(protocol)
    await poll_until(lambda: consumer.assignment() == ALL, [consumer])
    consumer.subscribe(["u"])
    expected = {TopicPartition("u", 0), TopicPartition("u", 1)}
    await poll_until(lambda: consumer.assignment() == expected, [consumer])
    assert consumer.subscription() == {"u"}
    with pytest.raises(WrongUse, match="unsubscribe"):
        consumer.assign([TopicPartition("t", 0)])
    await consumer.unsubscribe()
    assert consumer.assignment() == set()
    consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(WrongUse, match="assign"):
        consumer.subscribe(["t"])


@scenario(play)
async def test_a_cancelled_poll_does_not_interrupt_a_rebalance(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    class SlowListener(RecordingListener):
        async def on_assigned(self, partitions: Any) -> None:
            await asyncio.sleep(5)
            await super().on_assigned(partitions)

    listener = SlowListener()
    consumer = await factory.create(protocol, listener=listener)
    for _ in range(40):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll(), 0.2)
    await write(cluster, [b"v"])
    assert await consumer.poll() != {}
    assert listener.calls == [("assigned", 4)]


@scenario(play)
async def test_listeners_may_seek_and_must_not_unsubscribe_or_close(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    class Seeking(RebalanceListener):
        consumer: Consumer
        positions: dict[TopicPartition, int]

        async def on_assigned(self, partitions: Any) -> None:
            self.positions = {
                partition: await self.consumer.position(partition) for partition in partitions
            }
            self.consumer.seek(TopicPartition("t", 1), 7)
            with pytest.raises(WrongUse, match="a rebalance listener cannot unsubscribe"):
                await self.consumer.unsubscribe()
            with pytest.raises(WrongUse, match="a rebalance listener cannot close"):
                await self.consumer.close()

    await write(cluster, [b"%d" % i for i in range(40)])
    listener = Seeking()
    consumer = await factory.create(protocol, listener=listener)
    listener.consumer = consumer
    first_offsets: dict[int, int] = {}
    while len(first_offsets) < PARTITIONS:
        for partition, records in (await consumer.poll()).items():
            first_offsets.setdefault(partition.partition, records[0].offset)
    assert listener.positions == dict.fromkeys(ALL, 0)
    assert first_offsets == {0: 0, 1: 7, 2: 0, 3: 0}


@scenario(play)
async def test_a_loop_ends_when_the_consumer_is_closed(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    consumer = await factory.create(protocol)

    async def read_all() -> list[bytes]:
        return [record.value async for record in consumer]

    reading = asyncio.ensure_future(read_all())
    await write(cluster, [b"v"])
    await asyncio.sleep(10)
    await consumer.close()
    assert await reading == [b"v"]


@pytest.mark.parametrize("has_unfinished_commit", [False, True])
@pytest.mark.parametrize("timeout_ms", [0, 2_000])
@scenario(play)
async def test_close_returns_within_its_timeout(
    cluster: VirtualCluster,
    factory: ConsumerFactory,
    /,
    protocol: Settings,
    timeout_ms: int,
    has_unfinished_commit: bool,
) -> None:
    """The commit and LeaveGroup share it, even if the coordinator does not respond."""
    consumer = await factory.create(protocol, {"request.timeout.ms": 30_000})
    await write(cluster, [b"v"])
    assert await consumer.poll(timeout_ms=10_000) != {}
    cluster.pause(1)
    if has_unfinished_commit:
        consumer.commit_nowait()
        await asyncio.sleep(1)
    started_at = cluster.loop.time()
    await consumer.close(timeout_ms)
    assert cluster.loop.time() - started_at < timeout_ms / 1000 + 0.1
    cluster.resume(1)


@scenario(play)
async def test_an_error_of_a_listener_is_raised_after_the_rebalance(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    class Failing(RebalanceListener):
        def on_assigned(self, partitions: Any) -> None:
            raise RuntimeError("on purpose")

    consumer = await factory.create(listener=Failing())
    with pytest.raises(ListenerFailed, match="on_assigned: on purpose"):
        await consumer.poll(timeout_ms=10_000)
    assert consumer.assignment() == ALL
    await write(cluster, [b"v"])
    assert await consumer.poll() != {}


@pytest.mark.parametrize("settings", [EAGER, CONSUMER], ids=["classic", "consumer"])
@scenario(play, nodes=3)
async def test_the_group_survives_failures_of_its_coordinator(
    cluster: VirtualCluster, factory: ConsumerFactory, /, settings: Settings
) -> None:
    pair = [await factory.create(settings) for _ in range(2)]
    await poll_until(are_assigned(pair), pair)
    for round_ in range(2):
        victim = [1, 2, 3][round_]
        cluster.kill(victim)
        cluster.loop.call_later_ns(8_000_000_000, cluster.boot, victim)
        await write(cluster, [b"%d" % i for i in range(round_ * 40, round_ * 40 + 40)])
        values: set[bytes] = set()
        while len(values) < 40:
            for consumer in pair:
                for records in (await consumer.poll(timeout_ms=100)).values():
                    values |= {record.value for record in records}
        for consumer in pair:
            await consumer.poll(timeout_ms=10_000)
    await poll_until(are_assigned(pair), pair)


@scenario(play)
async def test_only_one_group_reads_a_ptp_topic(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    first = await factory.create(protocol, subscribes=False)
    first.subscribe(["t"], mode="ptp")
    await poll_until(are_assigned([first]), [first])
    other_group = await factory.create(protocol, {"group.id": "other"}, subscribes=False)
    other_group.subscribe(["t"], mode="ptp")
    with pytest.raises(BrokerError, match=r"point to point .* \(POLICY_VIOLATION\)"):
        await other_group.poll(timeout_ms=30_000)
    other_mode = await factory.create(protocol, {"group.id": "other"}, subscribes=False)
    other_mode.subscribe(["t"], mode="psb")
    with pytest.raises(WrongMode, match=r"subscription.mode=ptp"):
        await other_mode.poll(timeout_ms=30_000)
    # A consumer without group.id joins the group of the topic.
    joining = Consumer(
        {**bootstrap_settings(cluster), **protocol}, runtime=cluster.client_runtime()
    )
    async with joining:
        joining.subscribe(["t"], mode="ptp")
        await poll_until(are_assigned([first, joining]), [first, joining])
        assert joining.group_metadata().group_id == "g"
        with pytest.raises(WrongUse, match="must be one of ptp, psb"):
            joining.subscribe(["t"], mode="queue")


def bootstrap_settings(cluster: VirtualCluster) -> Settings:
    return {"bootstrap.servers": ",".join(map(str, cluster.bootstrap()))}


@scenario(play)
async def test_any_group_may_read_a_psb_topic(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    pair = [await factory.create({"group.id": name}, subscribes=False) for name in ("one", "two")]
    for consumer in pair:
        consumer.subscribe(["t"], mode="psb")
        await poll_until(are_assigned([consumer]), [consumer])


def owners(consumers: Sequence[Consumer]) -> dict[TopicPartition, int]:
    """Returns the index of the owner of each partition."""
    return {
        partition: index
        for index, consumer in enumerate(consumers)
        for partition in consumer.assignment()
    }


@scenario(play)
async def test_the_coordinator_assigns_by_consistent_hashing(
    cluster: VirtualCluster, factory: ConsumerFactory, /
) -> None:
    ring = {**CONSUMER, "group.remote.assignor": "consistent"}
    trio = [await factory.create(ring) for _ in range(3)]

    def is_complete() -> bool:
        shares = [consumer.assignment() for consumer in trio]
        return sum(map(len, shares)) == PARTITIONS and set().union(*shares) == ALL

    await poll_until(is_complete, trio)
    before = owners(trio)
    await trio.pop().close()
    await poll_until(is_complete, trio)
    after = owners(trio)
    # Only the partitions of the third member have moved.
    assert all(after[partition] == owner for partition, owner in before.items() if owner < 2)
    unknown = await factory.create({**CONSUMER, "group.remote.assignor": "missing"})
    with pytest.raises(BrokerError, match="UNSUPPORTED_ASSIGNOR"):
        await unknown.poll()


@pytest.mark.parametrize("protocol", [EAGER, CONSUMER], ids=["classic", "consumer"])
@scenario(play)
async def test_a_consumer_that_is_closed_at_any_moment_leaves_its_group(
    cluster: VirtualCluster, factory: ConsumerFactory, /, protocol: Settings
) -> None:
    """Otherwise the next one would wait until the session of the first has expired."""
    loop = asyncio.get_running_loop()
    for step in range(40):
        ms = step / 2
        group = {"group.id": f"g{ms}"}
        first = await factory.create(protocol, group)
        polling = asyncio.ensure_future(first.poll())
        await asyncio.sleep(ms / 1000)
        polling.cancel()
        await asyncio.wait([polling])
        await first.close()
        second = await factory.create(protocol, group)
        start = loop.time()
        await poll_until(are_assigned([second]), [second])
        assert loop.time() - start < 10, ms
        await second.close()


@scenario(play)
async def test_a_commit_that_times_out_leaves_time_to_leave_the_group(
    cluster: VirtualCluster,
    factory: ConsumerFactory,
    /,
    protocol: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = await factory.create(protocol)
    await poll_until(are_assigned([first]), [first])

    async def time_out(_offsets: object, timeout_ms: int, *, gives_up_missing: bool) -> None:
        assert gives_up_missing
        await asyncio.sleep(timeout_ms / 1000)
        raise TimedOut("the commit timed out")

    monkeypatch.setattr(first._engine(), "commit", time_out)
    await first.close(2_000)
    second = await factory.create(protocol)
    started_at = cluster.loop.time()
    await poll_until(are_assigned([second]), [second])
    assert cluster.loop.time() - started_at < 10
