"""Transactions on the fast path of Produce: same responses and logs as on the general path."""

import asyncio
import random
from collections.abc import Callable
from typing import Final, cast

import pytest

from lograft.api.router import Router
from lograft.model.seams import Channel
from lograft.wire.headers import frame_request
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.api.test_produce_patterns import outcome
from tests.unit.api.transactions_bench import Producer, add, begin, end, play
from tests.unit.broker.bench import Bench, Peer, batch_of, fast_paths_of

STEPS: Final = 60
#: From this version of Produce on the broker adds the partition to the transaction.
ADDS_SINCE: Final = 12


class Life:
    """Two producers with their transactions, which sometimes send invalid requests."""

    def __init__(self, bench: Bench, seed: int, version: int) -> None:
        self._bench = bench
        self._chance = random.Random(seed)
        self._version = version
        self._producers: dict[str, Producer] = {}
        self._sequences: dict[tuple[str, int], int] = {}

    async def next_frame(self) -> bytes:
        chance = self._chance
        name = chance.choice(("x", "yy"))
        if name not in self._producers or chance.random() < 0.05:
            await self._begin(name)
        elif chance.random() < 0.2:
            await self._end(name)
        partition = chance.randrange(2)
        if self._version < ADDS_SINCE and chance.random() < 0.9:
            await add(self._bench, self._producers[name], {"t": [partition]})
        sequence = self._sequences.get((name, partition), 0)
        odd = chance.random() < 0.2
        if odd:
            sequence += chance.choice((-1, 0, 1))
        else:
            self._sequences[name, partition] = sequence + 1
        return self._frame(name, partition, max(0, sequence), odd)

    async def _begin(self, name: str) -> None:
        self._producers[name] = await begin(self._bench, name)
        self._forget_sequences(name)

    async def _end(self, name: str) -> None:
        producer = self._producers[name]
        version = 5 if self._version >= ADDS_SINCE else 4
        commit = self._chance.random() < 0.7
        reply = await end(self._bench, producer, commit=commit, version=version)
        if reply.error_code == 0 and self._version >= ADDS_SINCE:
            self._producers[name] = Producer(reply.producer_id, reply.producer_epoch, name)
            self._forget_sequences(name)

    def _forget_sequences(self, name: str) -> None:
        for partition in range(2):
            self._sequences.pop((name, partition), None)

    def _frame(self, name: str, partition: int, sequence: int, odd: bool) -> bytes:
        chance = self._chance
        producer = self._producers[name]
        records = batch_of(
            b"v" * chance.randrange(1, 50),
            producer_id=producer.producer_id,
            producer_epoch=max(0, producer.epoch + (chance.choice((-1, 0, 1)) if odd else 0)),
            base_sequence=sequence,
            transactional=not (odd and chance.random() < 0.3),
        )
        request = ProduceRequest(
            transactional_id=chance.choice((name, "x" * 200, None)) if odd else name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="t" if self._version < 13 else "",
                    topic_id=self._bench.topic_id("t"),
                    partition_data=[PartitionProduceData(index=partition, records=records)],
                )
            ],
        )
        return frame_request(
            request, self._version, correlation_id=chance.getrandbits(31), client_id="client"
        )[4:]


def live(
    seed: int, version: int, before_each: Callable[[Router], None]
) -> tuple[list[object], int]:
    """Returns all observations of a run (responses, logs), and the number of fast path requests."""
    seen: list[object] = []
    fast_path_counts: list[int] = []

    async def scenario(bench: Bench) -> None:
        router = Router(bench.broker.shared, bench.broker, listener="PLAINTEXT")
        session = router(cast(Channel, Peer()))
        life = Life(bench, seed, version)
        loop = asyncio.get_running_loop()
        for _ in range(STEPS):
            frame = await life.next_frame()
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

    play(scenario)
    return seen, fast_path_counts[0]


@pytest.mark.parametrize("version", [11, 12, 13])
@pytest.mark.parametrize("seed", range(4))
def test_fast_and_general_path_give_the_same_responses(seed: int, version: int) -> None:
    short, served = live(seed, version, lambda router: None)
    generic, none_served = live(
        seed, version, lambda router: fast_paths_of(router).produce.forget()
    )
    assert none_served == 0
    assert served > STEPS // 4, "too few requests took the fast path"
    assert short == generic
