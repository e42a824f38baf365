"""The fast path of Fetch gives the same responses as the general path."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, cast
from uuid import UUID

import pytest

from lograft.api.router import REQUESTS, Router, Session
from lograft.broker.partitions.partition import Partition
from lograft.model.exchange import CloseConnection, PendingReply
from lograft.model.metrics import gather_all
from lograft.model.seams import Channel, FileSlice
from lograft.storage.types import Origin
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_request
from lograft.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.support.scenarios import scenario
from tests.unit.api.test_fetch import transaction_marker
from tests.unit.broker.bench import Bench, Peer, batch_of, decoded, fast_paths_of, run, set_leader

STEPS: Final = 200
#: The responses and other observations that are compared.
Seen = list[object]


#: Properties that keep a fetch off the fast path.
ODDITIES: Final = (
    "partition",
    "topic",
    "leader epoch",
    "last epoch",
    "replica",
    "min bytes",
    "max bytes",
    "session",
    "session epoch",
    "two",
    "rack",
    "forgotten",
    "no client",
    "cluster",
)


def random_request(chance: random.Random, version: int, topic_ids: dict[str, UUID]) -> bytes:
    odd = chance.choice(ODDITIES) if chance.random() < 0.5 else ""
    name = "missing" if odd == "topic" else "a"
    asked = FetchPartition(
        partition=3 if odd == "partition" else 0,
        current_leader_epoch=chance.choice((0, 5)) if odd == "leader epoch" else -1,
        fetch_offset=chance.choice((0, 0, 1, 3, 8, 20, 40, -1, 10_000)),
        last_fetched_epoch=7 if odd == "last epoch" and version >= 12 else -1,
        partition_max_bytes=chance.choice((0, 90, 1 << 20)),
    )
    request = FetchRequest(
        replica_id=7 if odd == "replica" and version < 15 else -1,
        max_wait_ms=chance.choice((0, 30)),
        min_bytes=500 if odd == "min bytes" else chance.choice((0, 1)),
        max_bytes=100 if odd == "max bytes" else 1 << 20,
        isolation_level=chance.choice((0, 1)),
        session_id=3 if odd == "session" else 0,
        session_epoch=chance.choice((0, 7)) if odd == "session epoch" else -1,
        topics=[
            FetchTopic(
                topic=name,
                topic_id=topic_ids.get(name, UUID(int=404)),
                partitions=[asked] * (2 if odd == "two" else 1),
            )
        ],
        rack_id="r" if odd == "rack" else "",
        cluster_id="x" if odd == "cluster" and version >= 12 else None,
    )
    if odd == "replica" and version >= 15:
        request.replica_state = ReplicaState(replica_id=7, replica_epoch=1)
    if odd == "forgotten":
        request.forgotten_topics_data = [
            ForgottenTopic(topic="b", topic_id=UUID(int=5), partitions=[1])
        ]
    frame = bytearray(
        frame_request(
            request,
            version,
            correlation_id=chance.getrandbits(31),
            client_id=None if odd == "no client" else "c",
        )[4:]
    )
    match chance.randrange(25):
        case 0:
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        case 1:
            del frame[chance.randrange(8, len(frame)) :]
        case 2:
            frame += bytes(chance.choice((1, 50)))
        case _:
            pass
    return bytes(frame)


def append_something(chance: random.Random, partition: Partition) -> None:
    origin = Origin.CLIENT
    producer = chance.choice((5, 6))
    match chance.randrange(6):
        case 0:
            batch = batch_of(b"t", producer_id=producer, producer_epoch=0, transactional=True)
            origin = Origin.COORDINATOR
        case 1:
            batch = transaction_marker(producer, commit=chance.random() < 0.5)
            origin = Origin.COORDINATOR
        case _:
            batch = batch_of(*[bytes(chance.choice((1, 100)))] * chance.randrange(1, 4))
    partition.append(memoryview(bytearray(batch)), now_ms=1_767_225_600_000, origin=origin)
    if chance.random() < 0.1:
        partition.leader_log().roll(1_767_225_600_000)


async def outcome(
    session: Session, frame: bytes, while_waiting: Callable[[], None]
) -> tuple[str, object]:
    try:
        reply = decoded(session.handle_frame(memoryview(bytearray(frame))))
        waited = isinstance(reply, PendingReply)
        if isinstance(reply, PendingReply):
            result = asyncio.ensure_future(reply.response)
            await asyncio.sleep(0.001)
            while_waiting()
            reply = await result
    except (CloseConnection, WireError) as error:
        return "closed", (type(error), str(error))
    assert reply is not None
    data = b"".join(
        part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in reply.parts
    )
    return "waited" if waited else "answered", data


def play(seed: int, version: int, before_each: Callable[[Router], None]) -> tuple[Seen, int]:
    seen: Seen = []
    fast_path_counts: list[int] = []

    async def scenario(bench: Bench) -> None:
        chance = random.Random(seed)
        (partition,) = await bench.create_topic("a")
        router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
        session = router(cast(Channel, Peer()))
        topic_ids = dict(bench.broker.image.topic_ids)

        def while_waiting() -> None:
            if chance.random() < 0.7:
                append_something(chance, partition)

        for _ in range(STEPS):
            if chance.random() < 0.3:
                append_something(chance, partition)
            frame = random_request(chance, version, topic_ids)
            for _ in range(2):
                before_each(router)
                seen.append(await outcome(session, frame, while_waiting))
                assert not partition.fetch_waits
        frame = frame_request(
            at_the_end(topic_ids["a"], partition), 17, correlation_id=1, client_id="c"
        )[4:]
        for _ in range(2):
            seen.append(await outcome(session, frame, lambda: None))
        seen.append(
            await outcome(
                session, frame, lambda: set_leader(partition, 2, epoch=partition.leader_epoch + 1)
            )
        )
        seen.append(gather_all(router.collect_samples()).by_metric[REQUESTS])
        fast_path_counts.append(fast_paths_of(router).fetch.served)

    run(scenario)
    return seen, fast_path_counts[0]


def at_the_end(topic_id: UUID, partition: Partition) -> FetchRequest:
    assert partition.log is not None
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="a",
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        fetch_offset=partition.log.end_offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )


@pytest.mark.parametrize("version", [11, 12, 13, 14, 15, 16, 17, 18])
@pytest.mark.parametrize("seed", range(3))
def test_fast_and_general_path_give_the_same_responses(seed: int, version: int) -> None:
    short, served = play(seed, version, lambda router: None)
    generic, _ = play(seed, version, lambda router: fast_paths_of(router).fetch.forget())
    assert (served > STEPS // 8) == (version >= 12), "too few requests took the fast path"
    assert any(each[0] == "waited" for each in short if isinstance(each, tuple))
    assert short == generic


@scenario(run)
async def test_waiting_fetch_ends_with_its_connection(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    frame = frame_request(
        at_the_end(bench.topic_id("a"), partition), 17, correlation_id=1, client_id="c"
    )[4:]
    session = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")(cast(Channel, Peer()))
    await outcome(session, frame, lambda: None)
    reply = decoded(session.handle_frame(memoryview(bytearray(frame))))
    assert isinstance(reply, PendingReply)
    waiting = asyncio.ensure_future(reply.response)
    await asyncio.sleep(0.001)
    assert len(partition.fetch_waits) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not partition.fetch_waits


@scenario(run)
async def test_chained_wakeups_are_not_nested_calls(bench: Bench, /) -> None:
    """Each recheck adds the next one; none runs inside another."""
    router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
    woken = fast_paths_of(router).fetch.woken
    running: list[int] = []
    seen: list[tuple[int, int]] = []

    def look(number: int) -> None:
        running.append(number)
        seen.append((number, len(running)))
        if number < 100:
            woken.add(lambda: look(number + 1))
            woken.run(4)
        running.pop()

    woken.add(lambda: look(0))
    woken.run(4)
    assert [number for number, _ in seen] == [0, 1, 2, 3], "the others run in later iterations"
    while woken:
        await asyncio.sleep(0)
    assert seen == [(number, 1) for number in range(101)]
