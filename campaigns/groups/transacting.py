"""Clients that transact: copiers (T8) and transfers (T9)."""

import asyncio
from collections.abc import Callable
from typing import Final

from campaigns.groups.membership import ActorContext, Membership, Place, TurnOver
from campaigns.groups.plan import ActorPlan
from campaigns.groups.reading import READ_COMMITTED, Positions, membership_of
from campaigns.groups.transactions import (
    MustAbort,
    SessionOver,
    TransactionalProducer,
)
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.node_workload import FETCH_VERSIONS, Reader

Learn = Callable[[str, int, int], None]

PAUSES: Final = (0.01, 0.05, 0.2)
#: In the middle of a transaction; the last is longer than a transaction may take.
HESITATIONS: Final = (*(0.0,) * 30, 0.1, 0.1, 0.3, 0.5, 3.6)
ABORTED: Final = 0.15
AMOUNT_MAX: Final = 9


class Copier:
    """Consumes, transforms, produces: the copies and the progress are one transaction."""

    def __init__(
        self, around: ActorContext, plan: ActorPlan, subscribed: list[str], output: str,
        learn: Learn,
    ) -> None:  # fmt: skip
        self._around = around
        self._output = output
        self._member = membership_of(around, plan, subscribed)
        self._positions = Positions(around, self._member)
        self._producer = TransactionalProducer(around, plan, learn)

    @property
    def membership(self) -> Membership:
        return self._member

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._around.random.choice(PAUSES))
            try:
                if not self._producer.is_ready:
                    await self._producer.init()
                await self._member.keep()
                await self._positions.follow()
                await self._copy()
            except TurnOver:
                # What was read and not copied is read again.
                self._positions.at.clear()
                self._member.route.look_again()
            except SessionOver:
                self._positions.at.clear()
                if self._producer.is_ready:
                    await _begin_anew(self._producer)

    async def _copy(self) -> None:
        producer, random = self._producer, self._around.random
        found: dict[Place, list[str]] = {}
        offsets: dict[Place, int] = {}
        for place in list(self._positions.at):
            records = await self._positions.poll(place)
            if records:
                found[place] = [uid for _, uid in records]
                offsets[place] = self._positions.at[place]
        if not found:
            return
        txn = producer.begin()
        is_committed = random.random() >= ABORTED
        try:
            for (_, index), uids in found.items():
                await producer.send((self._output, index), [f"{txn}:{uid}" for uid in uids])
            await asyncio.sleep(random.choice(HESITATIONS))
            await producer.commit_offsets(self._member, offsets)
        except MustAbort:
            is_committed = False
        await producer.end(commit=is_committed)
        if not is_committed:
            self._positions.at.clear()


class Transfer:
    """Takes from one partition what it adds to the other, in one transaction, after a look at
    what was committed in both."""

    membership: Final = None

    def __init__(self, around: ActorContext, plan: ActorPlan, topic: str, learn: Learn) -> None:
        self._around = around
        self._producer = TransactionalProducer(around, plan, learn)
        self._places = [(topic, index) for index in range(around.topics[topic].partitions)]
        self._readers = {
            place: Reader(
                around.cluster.partition(*place),
                around.topics[topic],
                place[1],
                around.random.choice(FETCH_VERSIONS),
            )
            for place in self._places
        }
        self._at = dict.fromkeys(self._places, 0)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._around.random.choice(PAUSES))
            try:
                if not self._producer.is_ready:
                    await self._producer.init()
                await self._transfer()
            except SessionOver:
                if self._producer.is_ready:
                    await _begin_anew(self._producer)

    async def _transfer(self) -> None:
        producer, random = self._producer, self._around.random
        txn = producer.begin()
        is_committed = random.random() >= ABORTED
        amount = random.randint(1, AMOUNT_MAX)
        places = random.sample(self._places, 2)
        try:
            for place, sign in zip(places, ("-", "+"), strict=True):
                await self._look(place)
                await producer.send(place, [f"{txn}:{sign}{amount}"])
                await asyncio.sleep(random.choice(HESITATIONS))
        except MustAbort:
            is_committed = False
        await producer.end(commit=is_committed)

    async def _look(self, place: Place) -> None:
        around, reader, wanted = self._around, self._readers[place], self._at[place]
        around.history.record(
            around.proc, "invoke", "poll", tp=reader.name, offset=wanted, iso=READ_COMMITTED
        )
        try:
            data, records, bad = await reader.fetch(
                wanted, bytes_max=1 << 20, wait_ms=0, isolation_level=READ_COMMITTED
            )
        except (NotSent, OutcomeUnknown) as error:
            around.history.record(around.proc, "fail", "poll", reason=str(error))
            return
        if data.error_code or data.diverging_epoch is not None:
            around.history.record(
                around.proc, "fail", "poll", error=data.error_code,
                diverging=data.diverging_epoch is not None,
            )  # fmt: skip
            return
        around.history.record(
            around.proc, "ok", "poll", records=records, hw=data.high_watermark,
            log_start=max(0, data.log_start_offset), bad_crc=bad,
        )  # fmt: skip
        for _, uid in records:
            self._producer.reads[uid.rpartition(":")[0]] = None
        if data.records:
            self._at[place] = max(wanted, reader.next_offset)


async def _begin_anew(producer: TransactionalProducer) -> None:
    try:
        await producer.init()
    except SessionOver:
        pass
