"""An observer that is not a member: fetches offsets of groups continuously, and resets groups."""

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
#: Error codes after which no offset was written.
REJECTED: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
})  # fmt: skip


async def observe_offsets(
    context: ActorContext, plans: list[ActorPlan], places: list[Place]
) -> None:
    """Fetches stable offsets of random groups, forever."""
    requesters = [Requester(context, plan) for plan in plans]
    while True:
        await asyncio.sleep(context.random.choice(PAUSES))
        requester = context.random.choice(requesters)
        try:
            await fetch_offset(requester, context.random.choice(places))
        except TurnOver:
            requester.route.mark_stale()


async def reset(context: ActorContext, resets: list[Reset], places: list[Place]) -> None:
    """Resets live groups; all partitions of a group in one request."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number, each in enumerate(resets):
        await asyncio.sleep(max(0.0, start + each.at_ms / 1000 - loop.time()))
        await _reset(context, each, places, f"{context.proc}{number}")


async def _reset(context: ActorContext, each: Reset, places: list[Place], proc: str) -> None:
    procs = {place: f"{proc}-{place[0]}-{place[1]}" for place in places}
    for (topic, index), name in procs.items():
        context.history.record(
            name, "invoke", "commit", group=each.group, tp=f"{topic}-{index}",
            offset=each.offset, member="", epoch=0, reset=True,
        )  # fmt: skip

    def end(kind: EventType, error: int | str) -> None:
        for name in procs.values():
            context.history.record(name, kind, "commit", error=error)

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
    route = CoordinatorRoute(context.cluster, each.group, GROUP)
    try:
        response = await route.request(
            request, COMMIT_VERSION, committing.OffsetCommitResponse, timeout_ms=TIMEOUT_MS
        )
    except (NotSent, OutcomeUnknown) as error:
        end("fail" if isinstance(error, NotSent) else "info", str(error))
        return
    codes = [partition.error_code for topic in response.topics for partition in topic.partitions]
    code = next((code for code in codes if code), 0)
    end("ok" if not code else "fail" if code in REJECTED else "info", code)
