"""Who is no member and looks at the offsets of groups all the time; now and then it resets them."""

import asyncio
from typing import Final

from campaigns.groups.coordinators import GROUP, CoordinatorRoute
from campaigns.groups.membership import (
    COMMIT_VERSION,
    ActorContext,
    Place,
    Requester,
    TurnOver,
    fetch_offset,
)
from campaigns.groups.plan import ActorPlan, Reset
from lograft.model.errors import ErrorCode
from lograft.model.types import ResetAction
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.history import EventType
from lograft.simulation.node_workload import TIMEOUT_MS
from lograft.wire.messages import offset_commit as committing

PAUSES: Final = (0.02, 0.1, 0.3)
#: After these nothing was written.
REFUSED: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
})  # fmt: skip


async def look_on(around: ActorContext, plans: list[ActorPlan], places: list[Place]) -> None:
    """Stable offsets of one group after the other, for ever."""
    requesters = [Requester(around, plan) for plan in plans]
    while True:
        await asyncio.sleep(around.random.choice(PAUSES))
        requester = around.random.choice(requesters)
        try:
            await fetch_offset(requester, around.random.choice(places))
        except TurnOver:
            requester.route.look_again()


async def reset(around: ActorContext, resets: list[Reset], places: list[Place]) -> None:
    """Sets a live group back, all partitions in one step."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number, each in enumerate(resets):
        await asyncio.sleep(max(0.0, start + each.at_ms / 1000 - loop.time()))
        await _reset(around, each, places, f"{around.proc}{number}")


async def _reset(around: ActorContext, each: Reset, places: list[Place], proc: str) -> None:
    procs = {place: f"{proc}-{place[0]}-{place[1]}" for place in places}
    for (topic, index), name in procs.items():
        around.history.record(
            name, "invoke", "commit", group=each.group, tp=f"{topic}-{index}",
            offset=each.offset, member="", epoch=0, reset=True,
        )  # fmt: skip

    def end(kind: EventType, error: int | str) -> None:
        for name in procs.values():
            around.history.record(name, kind, "commit", error=error)

    topics: dict[str, list[committing.OffsetCommitRequestPartition]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(
            committing.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=each.offset
            )
        )
    request = committing.OffsetCommitRequest(
        group_id=each.group,
        generation_id_or_member_epoch=0,
        reset_action=ResetAction.RESET,
        topics=[
            committing.OffsetCommitRequestTopic(name=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
    route = CoordinatorRoute(around.cluster, each.group, GROUP)
    try:
        answer = await route.request(
            request, COMMIT_VERSION, committing.OffsetCommitResponse, timeout_ms=TIMEOUT_MS
        )
    except (NotSent, OutcomeUnknown) as error:
        end("fail" if isinstance(error, NotSent) else "info", str(error))
        return
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    code = next((code for code in codes if code), 0)
    end("ok" if not code else "fail" if code in REFUSED else "info", code)
