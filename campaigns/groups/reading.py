"""A consumer of a group: reads what it may, and commits after it has processed."""

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
#: What has not moved is committed again: an older commit that came late may have set it back.
COMMIT_SECONDS: Final = 1.0
READ_COMMITTED: Final = 1


def membership_of(around: ActorContext, plan: ActorPlan, subscribed: list[str]) -> Membership:
    kind: type[Membership] = ClassicMember if plan.protocol == "classic" else ConsumerMember
    return kind(around, plan, subscribed)


class Positions:
    """Where a member goes on in each partition that it may use, and what it reads there."""

    def __init__(self, around: ActorContext, membership: Membership) -> None:
        self._around = around
        self._membership = membership
        self._readers: dict[Place, Reader] = {}
        self.at: dict[Place, int] = {}
        self._tenure = membership.tenure

    async def follow(self) -> None:
        """Begins at the committed offset wherever it has none; forgets what it lost."""
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
        """Raises TurnOver. Committed records only; the position is after them."""
        around, wanted = self._around, self.at[place]
        reader = self._reader(place)
        asked = {"tp": reader.name, "offset": wanted, "group": self._membership.group, "iso": 1}
        around.history.record(around.proc, "invoke", "poll", **asked)
        try:
            data, records, bad = await reader.fetch(
                wanted,
                bytes_max=around.random.choice((200, 1_000)),
                wait_ms=FETCH_WAIT_MS,
                isolation_level=READ_COMMITTED,
            )
        except (NotSent, OutcomeUnknown) as error:
            around.history.record(around.proc, "fail", "poll", reason=str(error))
            raise TurnOver from None
        if data.error_code or data.diverging_epoch is not None:
            around.history.record(
                around.proc, "fail", "poll", error=data.error_code,
                diverging=data.diverging_epoch is not None,
            )  # fmt: skip
            raise TurnOver
        around.history.record(
            around.proc, "ok", "poll", records=records, hw=data.high_watermark,
            log_start=max(0, data.log_start_offset), bad_crc=bad,
        )  # fmt: skip
        if data.records:
            self.at[place] = max(wanted, reader.next_offset)
        return records

    def _reader(self, place: Place) -> Reader:
        found = self._readers.get(place)
        if found is None:
            topic, index = place
            around = self._around
            route = around.cluster.partition(topic, index)
            version = around.random.choice(FETCH_VERSIONS)
            found = self._readers[place] = Reader(route, around.topics[topic], index, version)
        return found


class GroupConsumer:
    def __init__(self, around: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        self._around = around
        self.membership = membership_of(around, plan, subscribed)
        self._positions = Positions(around, self.membership)
        #: By partition: what was committed last, and when.
        self._committed: dict[Place, tuple[int, float]] = {}

    async def run(self) -> None:
        random = self._around.random
        while True:
            await asyncio.sleep(random.choice(PAUSES))
            try:
                await self.membership.keep()
                await self._positions.follow()
                for place in list(self._positions.at):
                    await self._read(place)
            except TurnOver:
                self.membership.route.look_again()
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
            # It may have been another's meanwhile: begin again where the group is.
            self._positions.at.clear()
            membership.on_commit(code)
            raise TurnOver
