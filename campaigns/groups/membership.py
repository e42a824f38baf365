"""Membership in a group as its member sees it, in either protocol, and the offsets of the group.

A membership says what its member may use now. It does one request at a time, each an operation in
the history, named after the process that asked.
"""

from abc import ABC, abstractmethod
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from campaigns.groups.coordinators import GROUP, CoordinatorRoute
from campaigns.groups.plan import ActorPlan
from lograft.model.errors import ErrorCode
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.history import History
from lograft.simulation.node_workload import TIMEOUT_MS, TopicPlan
from lograft.simulation.routing import ClusterClient
from lograft.wire.message import Message
from lograft.wire.messages import offset_commit as committing
from lograft.wire.messages import offset_fetch as fetching

R = TypeVar("R", bound=Message)

Place = tuple[str, int]

COMMIT_VERSION: Final = 9
FETCH_VERSION: Final = 9
#: The answer for a partition that nothing was committed for.
NO_OFFSET: Final = -1


class TurnOver(Exception):
    """A request got no answer, or an error that leaves nothing to do in this turn."""


class ActorContext(NamedTuple):
    """What every client process has."""

    #: Of this life; unique in the history.
    proc: str
    cluster: ClusterClient
    history: History
    random: Random
    topics: dict[str, TopicPlan]


class Requester:
    """One request after the other to the coordinator of a group, each written down."""

    def __init__(self, around: ActorContext, plan: ActorPlan) -> None:
        self.around = around
        self.group = plan.group
        self.member_id = ""
        self.epoch = -1
        self.instance_id = plan.name if plan.is_static else None
        self.route = CoordinatorRoute(around.cluster, plan.group, GROUP)
        self.assigned: list[Place] = []
        #: Grows whenever all was lost: what was known of partitions before counts no more.
        self.tenure = 0

    def lose_all(self) -> None:
        self.assigned = []
        self.tenure += 1

    async def ask(
        self,
        f: str,
        message: Message,
        version: int,
        answer: type[R],
        *,
        asked: dict[str, Any],
        timeout_ms: int = TIMEOUT_MS,
    ) -> R:
        """Raises TurnOver if no answer came; whoever asks writes down what the answer was."""
        history, proc = self.around.history, self.around.proc
        history.record(proc, "invoke", f, group=self.group, **asked)
        try:
            return await self.route.request(message, version, answer, timeout_ms=timeout_ms)
        except NotSent as error:
            history.record(proc, "fail", f, error=str(error))
            raise TurnOver from None
        except OutcomeUnknown as error:
            history.record(proc, "info", f, error=str(error))
            raise TurnOver from None

    def ok(self, f: str, **v: Any) -> None:
        self.around.history.record(self.around.proc, "ok", f, **v)

    def refused(self, f: str, code: int) -> None:
        """Nothing has happened, unless the coordinator had written something and was deposed."""
        self.route.heed(code)
        is_certain = code not in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
        self.around.history.record(
            self.around.proc, "fail" if is_certain else "info", f, error=int(code)
        )


class Membership(Requester, ABC):
    """`assigned` is what the member may use now, `epoch` what its commits are fenced by."""

    def __init__(self, around: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(around, plan)
        self.subscribed = subscribed

    @abstractmethod
    async def keep(self) -> None:
        """Joins if need be, sends what is due; `assigned` is true afterwards. Raises TurnOver."""

    @abstractmethod
    async def leave(self) -> None: ...

    @abstractmethod
    def on_commit(self, code: int) -> None:
        """What the answer to a commit says of the membership."""


async def commit(membership: Membership, place: Place, offset: int) -> int:
    """The answer's error code. Raises TurnOver."""
    topic, index = place
    member_id, epoch = membership.member_id, membership.epoch
    partition = committing.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset
    )
    request = committing.OffsetCommitRequest(
        group_id=membership.group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=membership.instance_id,
        topics=[committing.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    answer = await membership.ask(
        "commit",
        request,
        COMMIT_VERSION,
        committing.OffsetCommitResponse,
        asked={
            "tp": f"{topic}-{index}", "offset": offset, "member": member_id, "epoch": epoch,
        },
    )  # fmt: skip
    code = answer.topics[0].partitions[0].error_code
    if code:
        membership.refused("commit", code)
    else:
        membership.ok("commit")
    return code


async def fetch_offset(requester: Requester, place: Place) -> int:
    """The committed offset, NO_OFFSET if there is none. Raises TurnOver."""
    topic, index = place
    wanted = fetching.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
    request = fetching.OffsetFetchRequest(
        groups=[fetching.OffsetFetchRequestGroup(group_id=requester.group, topics=[wanted])],
        require_stable=True,
    )
    answer = await requester.ask(
        "offset_fetch",
        request,
        FETCH_VERSION,
        fetching.OffsetFetchResponse,
        asked={"tp": f"{topic}-{index}"},
    )
    found = answer.groups[0]
    code = found.error_code or found.topics[0].partitions[0].error_code
    if code:
        requester.refused("offset_fetch", code)
        raise TurnOver
    offset = found.topics[0].partitions[0].committed_offset
    requester.ok("offset_fetch", offset=offset)
    return offset
