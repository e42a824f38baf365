"""Followers start elections in the order that a resigning leader specifies, regardless of the order
in which its messages arrive."""

from collections.abc import Callable
from typing import Final

import pytest

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
)
from lograft.consensus.roles import Role
from lograft.consensus.types import (
    Effects,
    HardState,
    LogEnd,
    RaftSettings,
    ReplicaKey,
    VoterSet,
)
from lograft.model.types import Epoch, NodeId, Offset

LEADER, LOW, HIGH = (ReplicaKey(NodeId(node)) for node in (2, 1, 3))
EPOCH: Final = Epoch(1)
SLOT_MS: Final = RaftSettings().succession_slot_ms
NOW_MS: Final = 1_000

Event = Callable[[RaftCore, int], None]


def follower(me: ReplicaKey) -> tuple[RaftCore, int]:
    """A follower that has received a response from its leader, and the number of its next fetch."""
    core = RaftCore(
        me,
        VoterSet.of([LOW, LEADER, HIGH]),
        hard_state=HardState(EPOCH),
        log_end=LogEnd(EPOCH, Offset(5)),
    )
    fetches: list[int] = []

    def take(effects: Effects) -> None:
        fetches.extend(
            each.message.request_id
            for each in effects.send
            if isinstance(each.message, FetchRequest)
        )
        if effects.persist is not None:
            take(core.on_persisted(1))

    take(core.start(0))
    take(core.on_durable(Offset(5), 0))
    take(core.step(BeginQuorumEpochRequest(sender=LEADER, to=me, epoch=EPOCH), 1))
    take(core.tick(1))
    take(core.step(answer(fetches[-1]), 2))
    take(core.tick(NOW_MS))
    assert len(fetches) == 2
    return core, fetches[-1]


def answer(request_id: int, error: Error = Error.NONE) -> FetchResponse:
    return FetchResponse(
        sender=LEADER.node_id,
        epoch=EPOCH,
        leader=LEADER.node_id,
        error=error,
        request_id=request_id,
        high_watermark=Offset(5),
    )


def resigns(core: RaftCore, _fetch: int) -> None:
    request = EndQuorumEpochRequest(sender=LEADER, epoch=EPOCH, successors=(HIGH, LOW))
    core.step(request, NOW_MS)


def refuses_the_fetch(core: RaftCore, fetch: int) -> None:
    core.step(answer(fetch, Error.NOT_LEADER), NOW_MS)


def answers_the_fetch(core: RaftCore, fetch: int) -> None:
    """It was sent before the resignation."""
    core.step(answer(fetch), NOW_MS)


@pytest.mark.parametrize(
    "events",
    [
        (resigns,),
        (resigns, refuses_the_fetch),
        (refuses_the_fetch, resigns),
        (answers_the_fetch, resigns),
        (resigns, answers_the_fetch),
        (refuses_the_fetch, resigns, resigns),
    ],
)
def test_the_named_successor_stands_first(events: tuple[Event, ...]) -> None:
    for me, earliest_ms in ((HIGH, 0), (LOW, SLOT_MS)):
        core, fetch = follower(me)
        for event in events:
            event(core, fetch)
        for passed_ms in range(0, earliest_ms, 5):
            core.tick(NOW_MS + passed_ms)
            assert core.role is Role.FOLLOWER, f"{me.node_id} stood after {passed_ms} ms"
        core.tick(NOW_MS + earliest_ms + SLOT_MS // 2)
        assert core.role is Role.PROSPECTIVE, f"{me.node_id} does not stand in its turn"


def test_a_follower_stands_without_the_leaders_message() -> None:
    core, fetch = follower(LOW)
    refuses_the_fetch(core, fetch)
    roles = []
    for passed_ms in (SLOT_MS - 1, SLOT_MS + SLOT_MS // 2):
        core.tick(NOW_MS + passed_ms)
        roles.append(core.role)
    assert roles == [Role.FOLLOWER, Role.PROSPECTIVE]
