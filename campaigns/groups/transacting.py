"""Transactional clients: copiers (T8) and transfers (T9)."""

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
#: Pauses within a transaction; the last one is longer than the transaction timeout.
HESITATIONS: Final = (*(0.0,) * 30, 0.1, 0.1, 0.3, 0.5, 3.6)
ABORTED: Final = 0.15
AMOUNT_MAX: Final = 9


class Copier:
    """Consumes, transforms and produces: copies and committed offsets are one transaction."""

    def __init__(
        self, context: ActorContext, plan: ActorPlan, subscribed: list[str], output: str,
        learn: Learn,
    ) -> None:  # fmt: skip
        self._around = context
        self._output = output
        self._member = membership_of(context, plan, subscribed)
        self._positions = Positions(context, self._member)
        self._producer = TransactionalProducer(context, plan, learn)

    @property
    def membership(self) -> Membership:
        return self._member

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._around.random.choice(PAUSES))
            try:
                if not self._producer.is_ready:
                    await self._producer.init()
                await self._member.maintain()
                await self._positions.update()
                await self._copy()
            except TurnOver:
                # Records that were read, but not copied, are read again.
                self._positions.at.clear()
                self._member.route.mark_stale()
            except SessionOver:
                self._positions.at.clear()
                if self._producer.is_ready:
                    await _restart_session(self._producer)

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
    """Moves an amount from one partition to another in a transaction, after reading the committed
    records of both."""

    membership: Final = None

    def __init__(self, context: ActorContext, plan: ActorPlan, topic: str, learn: Learn) -> None:
        self._around = context
        self._producer = TransactionalProducer(context, plan, learn)
        self._places = [(topic, index) for index in range(context.topics[topic].partitions)]
        self._readers = {
            place: Reader(
                context.cluster.partition(*place),
                context.topics[topic],
                place[1],
                context.random.choice(FETCH_VERSIONS),
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
                    await _restart_session(self._producer)

    async def _transfer(self) -> None:
        producer, random = self._producer, self._around.random
        txn = producer.begin()
        is_committed = random.random() >= ABORTED
        amount = random.randint(1, AMOUNT_MAX)
        places = random.sample(self._places, 2)
        try:
            for place, sign in zip(places, ("-", "+"), strict=True):
                await self._read_committed(place)
                await producer.send(place, [f"{txn}:{sign}{amount}"])
                await asyncio.sleep(random.choice(HESITATIONS))
        except MustAbort:
            is_committed = False
        await producer.end(commit=is_committed)

    async def _read_committed(self, place: Place) -> None:
        context, reader, position = self._around, self._readers[place], self._at[place]
        context.history.record(
            context.proc, "invoke", "poll", tp=reader.name, offset=position, iso=READ_COMMITTED
        )
        try:
            data, records, bad = await reader.fetch(
                position, bytes_max=1 << 20, wait_ms=0, isolation_level=READ_COMMITTED
            )
        except (NotSent, OutcomeUnknown) as error:
            context.history.record(context.proc, "fail", "poll", reason=str(error))
            return
        if data.error_code or data.diverging_epoch is not None:
            context.history.record(
                context.proc, "fail", "poll", error=data.error_code,
                diverging=data.diverging_epoch is not None,
            )  # fmt: skip
            return
        context.history.record(
            context.proc, "ok", "poll", records=records, hw=data.high_watermark,
            log_start=max(0, data.log_start_offset), bad_crc=bad,
        )  # fmt: skip
        for _, uid in records:
            self._producer.reads[uid.rpartition(":")[0]] = None
        if data.records:
            self._at[place] = max(position, reader.next_offset)


async def _restart_session(producer: TransactionalProducer) -> None:
    try:
        await producer.init()
    except SessionOver:
        pass
