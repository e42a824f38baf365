"""A consumer in a group: reads its assigned partitions and commits after processing."""

import asyncio
from typing import Final

from campaigns.groups.classic import ClassicMember
from campaigns.groups.consumer import ConsumerMember
from campaigns.groups.membership import (
    NO_OFFSET,
    ActorContext,
    Membership,
    Place,
    TurnOver,
    commit,
    fetch_offset,
)
from campaigns.groups.plan import ActorPlan
from lograft.model.errors import ErrorCode
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.node_workload import FETCH_VERSIONS, Reader

PAUSES: Final = (0.01, 0.05, 0.2)
FETCH_WAIT_MS: Final = 100
#: An unchanged offset is committed again after this time, because a late commit may have reset it.
COMMIT_SECONDS: Final = 1.0
READ_COMMITTED: Final = 1


def membership_of(context: ActorContext, plan: ActorPlan, subscribed: list[str]) -> Membership:
    kind: type[Membership] = ClassicMember if plan.protocol == "classic" else ConsumerMember
    return kind(context, plan, subscribed)


class Positions:
    """Positions of a member in its assigned partitions, from which it reads."""

    def __init__(self, context: ActorContext, membership: Membership) -> None:
        self._around = context
        self._membership = membership
        self._readers: dict[Place, Reader] = {}
        self.at: dict[Place, int] = {}
        self._tenure = membership.tenure

    async def update(self) -> None:
        """Sets missing positions to the committed offsets, and removes those of lost partitions."""
        assigned = self._membership.assigned
        if self._membership.tenure != self._tenure:
            self._tenure = self._membership.tenure
            self.at.clear()
        for place in [place for place in self.at if place not in assigned]:
            del self.at[place]
        for place in assigned:
            if place not in self.at:
                offset = await fetch_offset(self._membership, place)
                self.at[place] = 0 if offset == NO_OFFSET else offset

    async def poll(self, place: Place) -> list[tuple[int, str]]:
        """Reads committed records and advances the position. Raises TurnOver."""
        context, position = self._around, self.at[place]
        reader = self._reader(place)
        arguments = {
            "tp": reader.name,
            "offset": position,
            "group": self._membership.group,
            "iso": 1,
        }
        context.history.record(context.proc, "invoke", "poll", **arguments)
        try:
            data, records, bad = await reader.fetch(
                position,
                bytes_max=context.random.choice((200, 1_000)),
                wait_ms=FETCH_WAIT_MS,
                isolation_level=READ_COMMITTED,
            )
        except (NotSent, OutcomeUnknown) as error:
            context.history.record(context.proc, "fail", "poll", reason=str(error))
            raise TurnOver from None
        if data.error_code or data.diverging_epoch is not None:
            context.history.record(
                context.proc, "fail", "poll", error=data.error_code,
                diverging=data.diverging_epoch is not None,
            )  # fmt: skip
            raise TurnOver
        context.history.record(
            context.proc, "ok", "poll", records=records, hw=data.high_watermark,
            log_start=max(0, data.log_start_offset), bad_crc=bad,
        )  # fmt: skip
        if data.records:
            self.at[place] = max(position, reader.next_offset)
        return records

    def _reader(self, place: Place) -> Reader:
        found = self._readers.get(place)
        if found is None:
            topic, index = place
            context = self._around
            route = context.cluster.partition(topic, index)
            version = context.random.choice(FETCH_VERSIONS)
            found = self._readers[place] = Reader(route, context.topics[topic], index, version)
        return found


class GroupConsumer:
    def __init__(self, context: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        self._around = context
        self.membership = membership_of(context, plan, subscribed)
        self._positions = Positions(context, self.membership)
        #: Last committed offset of each partition, and its time.
        self._committed: dict[Place, tuple[int, float]] = {}

    async def run(self) -> None:
        random = self._around.random
        while True:
            await asyncio.sleep(random.choice(PAUSES))
            try:
                await self.membership.maintain()
                await self._positions.update()
                for place in list(self._positions.at):
                    await self._read(place)
            except TurnOver:
                self.membership.route.mark_stale()
                await asyncio.sleep(random.choice(PAUSES))

    async def _read(self, place: Place) -> None:
        await self._positions.poll(place)
        reached = self._positions.at[place]
        offset, at = self._committed.get(place, (-1, 0.0))
        now = asyncio.get_running_loop().time()
        if offset == reached and now - at < COMMIT_SECONDS:
            return
        membership = self.membership
        code = await commit(membership, place, reached)
        if code == ErrorCode.NONE:
            self._committed[place] = (reached, now)
        else:
            # Another member may have owned the partition in between: restart at the committed
            # offset.
            self._positions.at.clear()
            membership.on_commit(code)
            raise TurnOver
