"""Consumers in groups on simulated clusters, in both protocols: every partition has one owner,
every record comes, positions pass from one to the next, and listeners hear of it in order."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lograft.client.consumer import Consumer
from lograft.client.consuming.rebalance_listener import ListenerFailed, RebalanceListener
from lograft.client.consuming.subscription_modes import WrongMode
from lograft.client.errors import BrokerError, CommitFailed, FencedInstance, WrongUse
from lograft.client.producer import Producer
from lograft.client.types import TopicPartition
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario

Scenario = Callable[[VirtualCluster, "Makes"], Awaitable[None]]
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


class Makes:
    """Consumers that are closed with the test."""

    def __init__(self, cluster: VirtualCluster, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._stack = stack

    async def consumer(
        self,
        *settings: Settings,
        listener: RebalanceListener | None = None,
        subscribes: bool = True,
    ) -> Consumer:
        given: Settings = {
            "bootstrap.servers": ",".join(map(str, self._cluster.bootstrap())),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "request.timeout.ms": 5_000,
        }
        for one in settings:
            given |= one
        consumer = Consumer(given, runtime=self._cluster.client_runtime())
        await self._stack.enter_async_context(consumer)
        if subscribes:
            consumer.subscribe(["t"], listener=listener)
        return consumer


def play(scenario: Scenario, *, nodes: int = 1, seed: int = 3) -> None:
    async def main(cluster: VirtualCluster) -> None:
        admin = cluster.test_client("admin")
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=nodes)
        async with AsyncExitStack() as stack:
            await scenario(cluster, Makes(cluster, stack))

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


async def until(done: Callable[[], bool], consumers: Sequence[Consumer]) -> list[bytes]:
    """Polls all of them in turn; what they got."""
    got: list[bytes] = []
    for _ in range(2_000):
        if done():
            return got
        for consumer in consumers:
            polled = await consumer.poll(timeout_ms=50)
            got += [record.value for records in polled.values() for record in records]
    raise AssertionError([consumer.assignment() for consumer in consumers])


def shared(consumers: Sequence[Consumer], wanted: set[TopicPartition] = ALL) -> Callable[[], bool]:
    """Whether they have everything between them, each some, none twice."""

    def is_so() -> bool:
        parts = [consumer.assignment() for consumer in consumers]
        return all(parts) and sum(map(len, parts)) == len(wanted) and set().union(*parts) == wanted

    return is_so


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Settings:
    return PROTOCOLS[request.param]


@scenario(play)
async def test_members_share_the_partitions_and_take_over_where_others_stopped(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    first = await makes.consumer(protocol)
    await write(cluster, [b"%d" % i for i in range(40)])
    got: list[bytes] = []
    while len(got) < 40:
        for records in (await first.poll()).values():
            got += [record.value for record in records]
    assert first.assignment() == ALL
    second = await makes.consumer(protocol)
    assert await until(shared([first, second]), [first, second]) == []
    await write(cluster, [b"%d" % i for i in range(40, 80)])
    while len(got) < 80:
        for consumer in (first, second):
            for records in (await consumer.poll(timeout_ms=50)).values():
                got += [record.value for record in records]
    assert sorted(got, key=int) == [b"%d" % i for i in range(80)]
    await first.close()
    assert await until(shared([second]), [second]) == []
    # What the first has read is committed: nothing comes again.
    assert await second.poll(timeout_ms=2_000) == {}


class Diary(RebalanceListener):
    """Plain in one method, `async` in the others."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, int]] = []

    async def on_assigned(self, partitions: Any) -> None:
        await asyncio.sleep(0.01)
        self.pages.append(("assigned", len(partitions)))

    def on_revoked(self, partitions: Any) -> None:
        self.pages.append(("revoked", len(partitions)))

    async def on_lost(self, partitions: Any) -> None:
        self.pages.append(("lost", len(partitions)))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (EAGER, [("assigned", 4), ("revoked", 4), ("assigned", 2), ("revoked", 2)]),
        (COOPERATIVE, [("assigned", 4), ("revoked", 2), ("assigned", 0), ("revoked", 2)]),
        (CONSUMER, [("assigned", 4), ("revoked", 2), ("assigned", 0), ("revoked", 2)]),
    ],
    ids=["eager", "cooperative", "consumer"],
)
@scenario(play)
async def test_listeners_hear_what_goes_and_what_comes(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings, told: list[tuple[str, int]]
) -> None:
    diary = Diary()
    first = await makes.consumer(settings, listener=diary)
    await until(shared([first]), [first])
    second = await makes.consumer(settings)
    await until(shared([first, second]), [first, second])
    await first.close()
    # A member that keeps all it has is told of an empty gift, as by Java's consumer.
    pages = [page for page in diary.pages if page != ("assigned", 0)]
    assert pages == [page for page in told if page != ("assigned", 0)]


@scenario(play)
async def test_what_is_consumed_is_committed_before_it_goes(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    class Sees(RebalanceListener):
        consumer: Consumer
        committed: Any = None

        async def on_revoked(self, partitions: Any) -> None:
            self.committed = await self.consumer.committed(partitions)

    sees = Sees()
    first = await makes.consumer(protocol, {"max.poll.records": 1}, listener=sees)
    sees.consumer = first
    await write(cluster, [b"%d" % i for i in range(40)])
    count = 0
    while count < 10:
        count += sum(map(len, (await first.poll()).values()))
    second = await makes.consumer(protocol, {"max.poll.records": 1})
    positions: dict[TopicPartition, int] = {}

    async def follow() -> None:
        while sees.committed is None:
            for one in first.assignment():
                positions[one] = await first.position(one)
            await first.poll(timeout_ms=50)
            await second.poll(timeout_ms=50)

    await follow()
    for one, place in sees.committed.items():
        assert place is not None
        assert place.offset == positions[one]


@scenario(play)
async def test_a_program_that_is_too_slow_loses_its_partitions_and_comes_back(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    diary = Diary()
    slow = await makes.consumer(protocol, {"max.poll.interval.ms": 10_000}, listener=diary)
    await until(shared([slow]), [slow])
    other = await makes.consumer(protocol)
    await until(shared([slow, other]), [slow, other])
    polled_at = cluster.loop.time()
    while other.assignment() != ALL:
        await other.poll(timeout_ms=100)
    assert cluster.loop.time() - polled_at > 9
    with pytest.raises(CommitFailed):
        await slow.commit(dict.fromkeys(slow.assignment(), 0))
    diary.pages.clear()
    await until(shared([slow, other]), [slow, other])
    assert diary.pages[0] == ("lost", 2)


@scenario(play)
async def test_who_is_out_of_the_group_commits_nothing_even_if_nobody_else_is_in(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    early = await makes.consumer(protocol)
    with pytest.raises(CommitFailed, match="is not a member"):
        await early.commit({TopicPartition("t", 0): 5})
    await early.close()
    slow = await makes.consumer(protocol, {"max.poll.interval.ms": 5_000})
    await until(shared([slow]), [slow])
    await asyncio.sleep(30)
    with pytest.raises(CommitFailed, match="is not a member"):
        await slow.commit({TopicPartition("t", 0): 5})
    assert await slow.committed([TopicPartition("t", 0)]) == {TopicPartition("t", 0): None}
    # The next call hears of the loss, and joins again.
    await slow.poll(timeout_ms=10_000)
    await slow.commit({TopicPartition("t", 0): 5})


@scenario(play)
async def test_waiting_for_records_is_not_being_slow(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    diary = Diary()
    one = await makes.consumer(protocol, {"max.poll.interval.ms": 5_000}, listener=diary)
    assert await one.poll(timeout_ms=60_000) == {}
    assert one.assignment() == ALL
    assert diary.pages == [("assigned", 4)]


@scenario(play)
async def test_static_members_come_back_to_what_they_had(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    first = await makes.consumer(protocol, {"group.instance.id": "one"})
    second = await makes.consumer(protocol, {"group.instance.id": "two"})
    await until(shared([first, second]), [first, second])
    before = second.assignment()
    await second.close()
    again = await makes.consumer(protocol, {"group.instance.id": "two"})
    while not again.assignment():
        await again.poll(timeout_ms=50)
        await first.poll(timeout_ms=50)
    assert again.assignment() == before


@scenario(play)
async def test_two_with_one_instance_id_are_one_too_many(
    cluster: VirtualCluster, makes: Makes, /
) -> None:
    first = await makes.consumer(EAGER, {"group.instance.id": "one"})
    await until(shared([first]), [first])
    second = await makes.consumer(EAGER, {"group.instance.id": "one"})
    while not second.assignment():
        await second.poll(timeout_ms=100)
    for _ in range(2):
        with pytest.raises(FencedInstance):
            await first.poll(timeout_ms=30_000)


@scenario(play)
async def test_patterns_find_topics_that_come_later(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    one = await makes.consumer(protocol, {"metadata.max.age.ms": 2_000}, subscribes=False)
    one.subscribe_pattern("t|later-.*")
    await until(lambda: one.assignment() == ALL, [one])
    await cluster.test_client("admin").create_topic("later-1", partitions=1)
    await cluster.test_client("admin").create_topic("not-later-1", partitions=1)
    wanted = ALL | {TopicPartition("later-1", 0)}
    await until(lambda: one.assignment() == wanted, [one])
    if protocol is CONSUMER:
        one.subscribe_pattern("(")
        with pytest.raises(BrokerError, match="INVALID_REGULAR_EXPRESSION"):
            await one.poll(timeout_ms=30_000)
    else:
        # The group's own topics are there by now, and hidden.
        one.subscribe_pattern(".*")
        everything = wanted | {TopicPartition("not-later-1", 0)}
        await until(lambda: one.assignment() == everything, [one])
        with pytest.raises(WrongUse, match="is not a valid regular expression"):
            one.subscribe_pattern("(")


@scenario(play)
async def test_another_subscription_and_none(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    await cluster.test_client("admin").create_topic("u", partitions=2)
    one = await makes.consumer(protocol)
    await until(lambda: one.assignment() == ALL, [one])
    one.subscribe(["u"])
    wanted = {TopicPartition("u", 0), TopicPartition("u", 1)}
    await until(lambda: one.assignment() == wanted, [one])
    assert one.subscription() == {"u"}
    with pytest.raises(WrongUse, match="unsubscribe"):
        one.assign([TopicPartition("t", 0)])
    await one.unsubscribe()
    assert one.assignment() == set()
    one.assign([TopicPartition("t", 0)])
    with pytest.raises(WrongUse, match="assign"):
        one.subscribe(["t"])


@scenario(play)
async def test_a_call_that_is_given_up_leaves_no_rebalance_half_done(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    class Slow(Diary):
        async def on_assigned(self, partitions: Any) -> None:
            await asyncio.sleep(5)
            await super().on_assigned(partitions)

    diary = Slow()
    one = await makes.consumer(protocol, listener=diary)
    for _ in range(40):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.poll(), 0.2)
    await write(cluster, [b"v"])
    assert await one.poll() != {}
    assert diary.pages == [("assigned", 4)]


@scenario(play)
async def test_listeners_may_ask_seek_and_not_leave(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    class Curious(RebalanceListener):
        consumer: Consumer
        positions: dict[TopicPartition, int]

        async def on_assigned(self, partitions: Any) -> None:
            asked = {one: await self.consumer.position(one) for one in partitions}
            self.positions = asked
            self.consumer.seek(TopicPartition("t", 1), 7)
            with pytest.raises(WrongUse, match="a rebalance listener cannot unsubscribe"):
                await self.consumer.unsubscribe()
            with pytest.raises(WrongUse, match="a rebalance listener cannot close"):
                await self.consumer.close()

    await write(cluster, [b"%d" % i for i in range(40)])
    curious = Curious()
    one = await makes.consumer(protocol, listener=curious)
    curious.consumer = one
    firsts: dict[int, int] = {}
    while len(firsts) < PARTITIONS:
        for partition, records in (await one.poll()).items():
            firsts.setdefault(partition.partition, records[0].offset)
    assert curious.positions == dict.fromkeys(ALL, 0)
    assert firsts == {0: 0, 1: 7, 2: 0, 3: 0}


@scenario(play)
async def test_a_loop_ends_when_the_consumer_is_closed_meanwhile(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    one = await makes.consumer(protocol)

    async def loop() -> list[bytes]:
        return [record.value async for record in one]

    looping = asyncio.ensure_future(loop())
    await write(cluster, [b"v"])
    await asyncio.sleep(10)
    await one.close()
    assert await looping == [b"v"]


@pytest.mark.parametrize("timeout_ms", [0, 2_000])
@scenario(play)
async def test_closing_takes_no_longer_than_its_timeout(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings, timeout_ms: int
) -> None:
    """Committing and leaving share it, also when the coordinator does not answer."""
    consumer = await makes.consumer(protocol, {"request.timeout.ms": 30_000})
    await write(cluster, [b"v"])
    assert await consumer.poll(timeout_ms=10_000) != {}
    cluster.pause(1)
    started_at = cluster.loop.time()
    await consumer.close(timeout_ms)
    assert cluster.loop.time() - started_at < timeout_ms / 1000 + 0.1
    cluster.resume(1)


@scenario(play)
async def test_a_listener_that_raises_is_told_after_the_rebalance(
    cluster: VirtualCluster, makes: Makes, /
) -> None:
    class Broken(RebalanceListener):
        def on_assigned(self, partitions: Any) -> None:
            raise RuntimeError("on purpose")

    one = await makes.consumer(listener=Broken())
    with pytest.raises(ListenerFailed, match="on_assigned: on purpose"):
        await one.poll(timeout_ms=10_000)
    assert one.assignment() == ALL
    await write(cluster, [b"v"])
    assert await one.poll() != {}


@pytest.mark.parametrize("settings", [EAGER, CONSUMER], ids=["classic", "consumer"])
@scenario(play, nodes=3)
async def test_coordinators_die_and_the_group_goes_on(
    cluster: VirtualCluster, makes: Makes, /, settings: Settings
) -> None:
    pair = [await makes.consumer(settings) for _ in range(2)]
    await until(shared(pair), pair)
    for round_ in range(2):
        victim = [1, 2, 3][round_]
        cluster.kill(victim)
        cluster.loop.call_later_ns(8_000_000_000, cluster.boot, victim)
        await write(cluster, [b"%d" % i for i in range(round_ * 40, round_ * 40 + 40)])
        got: set[bytes] = set()
        while len(got) < 40:
            for consumer in pair:
                for records in (await consumer.poll(timeout_ms=100)).values():
                    got |= {record.value for record in records}
        for consumer in pair:
            await consumer.poll(timeout_ms=10_000)
    await until(shared(pair), pair)


@scenario(play)
async def test_ptp_topics_belong_to_one_group(
    cluster: VirtualCluster, makes: Makes, /, protocol: Settings
) -> None:
    first = await makes.consumer(protocol, subscribes=False)
    first.subscribe(["t"], mode="ptp")
    await until(shared([first]), [first])
    stranger = await makes.consumer(protocol, {"group.id": "other"}, subscribes=False)
    stranger.subscribe(["t"], mode="ptp")
    with pytest.raises(BrokerError, match=r"point to point .* \(POLICY_VIOLATION\)"):
        await stranger.poll(timeout_ms=30_000)
    wrong = await makes.consumer(protocol, {"group.id": "other"}, subscribes=False)
    wrong.subscribe(["t"], mode="psb")
    with pytest.raises(WrongMode, match=r"subscription.mode=ptp"):
        await wrong.poll(timeout_ms=30_000)
    # Who names no group joins the one that there is.
    joins = Consumer({**first_settings(cluster), **protocol}, runtime=cluster.client_runtime())
    async with joins:
        joins.subscribe(["t"], mode="ptp")
        await until(shared([first, joins]), [first, joins])
        assert joins.group_metadata().group_id == "g"
        with pytest.raises(WrongUse, match="must be one of ptp, psb"):
            joins.subscribe(["t"], mode="queue")


def first_settings(cluster: VirtualCluster) -> Settings:
    return {"bootstrap.servers": ",".join(map(str, cluster.bootstrap()))}


@scenario(play)
async def test_psb_topics_are_every_groups(cluster: VirtualCluster, makes: Makes, /) -> None:
    pair = [await makes.consumer({"group.id": name}, subscribes=False) for name in ("one", "two")]
    for consumer in pair:
        consumer.subscribe(["t"], mode="psb")
        await until(shared([consumer]), [consumer])


@scenario(play)
async def test_the_server_assigns_by_its_ring_if_it_is_asked_to(
    cluster: VirtualCluster, makes: Makes, /
) -> None:
    ring = {**CONSUMER, "group.remote.assignor": "consistent"}
    trio = [await makes.consumer(ring) for _ in range(3)]

    def is_complete() -> bool:
        parts = [consumer.assignment() for consumer in trio]
        return sum(map(len, parts)) == PARTITIONS and set().union(*parts) == ALL

    await until(is_complete, trio)
    before = {one: i for i, consumer in enumerate(trio) for one in consumer.assignment()}
    await trio.pop().close()
    await until(is_complete, trio)
    after = {one: i for i, consumer in enumerate(trio) for one in consumer.assignment()}
    # Only what the last one had has moved.
    assert all(after[one] == owner for one, owner in before.items() if owner < 2)
    unknown = await makes.consumer({**CONSUMER, "group.remote.assignor": "nobody"})
    with pytest.raises(BrokerError, match="UNSUPPORTED_ASSIGNOR"):
        await unknown.poll()
