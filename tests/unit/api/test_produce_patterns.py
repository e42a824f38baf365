"""The fast path of Produce gives the same responses and the same log as the general path."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast
from uuid import UUID

import pytest

from lograft.api.produce_patterns import PATTERNS_MAX
from lograft.api.router import REQUESTS, Router, Session
from lograft.model.exchange import CloseConnection, EncodedResponse, PendingReply
from lograft.model.metrics import gather_all
from lograft.model.seams import Channel
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_request
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, Peer, batch_of, decoded, fast_paths_of, run

STEPS: Final = 150
TOPICS: Final = ("a", "flushed", "stamped", "__consumer_offsets", "missing")


@dataclass
class Frames:
    """A sequence of requests: most are common ones, some unusual, some invalid."""

    chance: random.Random
    version: int
    topic_ids: dict[str, UUID]
    sequences: dict[int, int] = field(default_factory=dict)

    def next(self) -> bytes:
        chance = self.chance
        odd = chance.random() < 0.3
        topics = [self._topic(odd) for _ in range(2 if odd and chance.random() < 0.2 else 1)]
        request = ProduceRequest(
            transactional_id="t" if odd and chance.random() < 0.1 else None,
            acks=chance.choice((1, 0, 2) if odd else (-1,)),
            timeout_ms=chance.choice((0, 1000) if odd else (1000,)),
            topic_data=topics,
        )
        client_id = chance.choice(("other", "", None, "__admin_client") if odd else ("client",))
        frame = bytearray(
            frame_request(
                request, self.version, correlation_id=chance.getrandbits(31), client_id=client_id
            )[4:]
        )
        match chance.randrange(20):
            case 0 | 1:
                frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
            case 2:
                del frame[chance.randrange(8, len(frame)) :]
            case 3:
                frame += bytes(chance.choice((1, 100)))
            case _:
                pass
        return bytes(frame)

    def _topic(self, odd: bool) -> TopicProduceData:
        chance = self.chance
        name = chance.choice(TOPICS if odd else ("a", "a", "flushed", "stamped"))
        return TopicProduceData(
            name=name,
            topic_id=self.topic_ids.get(name, UUID(int=404)),
            partition_data=[
                PartitionProduceData(
                    index=chance.choice((0, 1, 7)) if odd else 0, records=self._records(odd)
                )
                for _ in range(2 if odd and chance.random() < 0.2 else 1)
            ],
        )

    def _records(self, odd: bool) -> bytes | None:
        chance = self.chance
        values = [bytes(chance.choice((1, 50, 3000))) for _ in range(chance.randrange(1, 4))]
        match chance.randrange(8) if odd else 8:
            case 0:
                return None
            case 1:
                return b""
            case 2:
                return batch_of(*values) + batch_of(*values)
            case 3:
                return batch_of(
                    *values,
                    producer_id=9,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            case _:
                pass
        if chance.random() < 0.5:
            return batch_of(*values)
        producer = chance.randrange(3)
        sequence = self.sequences.get(producer, 0)
        if chance.random() < 0.2:
            sequence = max(0, sequence + chance.choice((-1, 1)) * len(values))
        self.sequences[producer] = sequence + len(values)
        return batch_of(
            *values,
            producer_id=producer,
            producer_epoch=chance.choice((0, 0, 0, 0, 1)),
            base_sequence=sequence,
        )


async def outcome(session: Session, frame: bytes) -> object:
    try:
        reply = decoded(session.handle_frame(memoryview(bytearray(frame))))
        if isinstance(reply, PendingReply):
            reply = await reply.response
    except (CloseConnection, WireError) as error:
        return type(error), str(error)
    return (
        b"".join(cast(tuple[bytes, ...], reply.parts))
        if isinstance(reply, EncodedResponse)
        else reply
    )


def play(
    seed: int, version: int, before_each: Callable[[Router], None]
) -> tuple[list[object], int]:
    """Returns all observations of a run (responses, logs), and the number of fast path requests."""
    seen: list[object] = []
    fast_path_counts: list[int] = []

    async def scenario(bench: Bench) -> None:
        await bench.create_topic("a", partitions=2)
        await bench.create_topic("flushed", flush_messages="1")
        await bench.create_topic("stamped", message_timestamp_type="LogAppendTime")
        router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
        session = router(cast(Channel, Peer()))
        frames = Frames(random.Random(seed), version, dict(bench.broker.image.topic_ids))
        loop = asyncio.get_running_loop()
        for _ in range(STEPS):
            frame = frames.next()
            # Twice: the first request leaves a pattern, the second one matches it.
            for _ in range(2):
                # At the same time in every run, however long the previous waits took.
                await asyncio.sleep(1 - loop.time() % 1)
                before_each(router)
                seen.append(await outcome(session, frame))
        for partition in bench.broker.partitions:
            assert partition.log is not None
            file = partition.log.active.file
            seen.append((repr(partition), file.pread(file.size, 0)))
            seen.append(partition.log.producers.derived_state())
        fast_path_counts.append(fast_paths_of(router).produce.served)
        seen.append(gather_all(router.collect_samples()).by_metric[REQUESTS])

    run(scenario)
    return seen, fast_path_counts[0]


@pytest.mark.parametrize("version", [3, 8, 9, 10, 12, 13])
@pytest.mark.parametrize("seed", range(4))
def test_fast_and_general_path_give_the_same_responses(seed: int, version: int) -> None:
    short, served = play(seed, version, lambda router: None)
    generic, none_served = play(
        seed, version, lambda router: fast_paths_of(router).produce.forget()
    )
    assert none_served == 0
    assert (served > STEPS // 8) == (version >= 9), "too few requests took the fast path"
    assert short == generic


@scenario(run)
async def test_long_client_id_leaves_no_pattern(bench: Bench, /) -> None:
    await bench.create_topic("a")
    router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
    session = router(cast(Channel, Peer()))
    for client_id in ("c" * 1000, "c" * 1000, "c", "c"):
        frame = one_batch("a", client_id)
        assert isinstance(await outcome(session, frame), bytes)
    assert fast_paths_of(router).produce.served == 1


@scenario(run)
async def test_number_of_patterns_is_limited(bench: Bench, /) -> None:
    await bench.create_topic("a")
    router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
    session = router(cast(Channel, Peer()))
    for number in range(PATTERNS_MAX + 1):
        session.handle_frame(memoryview(bytearray(one_batch("a", f"client-{number:05}"))))
    assert await outcome(session, one_batch("a", "client-00000")) is not None
    assert fast_paths_of(router).produce.served == 0, "the first pattern was discarded"


@scenario(run)
async def test_endless_varint_is_rejected(bench: Bench, /) -> None:
    """The varint size of the records never ends, in a frame that otherwise matches a pattern."""
    await bench.create_topic("a")
    session = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")(cast(Channel, Peer()))
    good = one_batch("a", "c" * 60)
    await outcome(session, good)
    at = good.index(batch_of(b"v")) - 1
    for cut in range(at, len(good) + 10):
        broken = good[:at] + b"\xff" * (cut - at)
        with pytest.raises((CloseConnection, WireError)):
            session.handle_frame(memoryview(bytearray(broken)))


def one_batch(topic: str, client_id: str) -> bytes:
    request = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=0, records=batch_of(b"v"))],
            )
        ],
    )
    return frame_request(request, 9, correlation_id=1, client_id=client_id)[4:]
