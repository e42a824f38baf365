"""Membership in a group of either protocol, from the member's view, and the group's offsets.

A membership has the partitions that the member may use now. It sends one request at a time; each is
an operation in the history, named after the requesting process."""

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
#: Returned for a partition without a committed offset.
NO_OFFSET: Final = -1


class TurnOver(Exception):
    """A request got no response, or an error after which the current iteration must end."""


class ActorContext(NamedTuple):
    """Context of a client process."""

    #: Name of the process, unique in the history.
    proc: str
    cluster: ClusterClient
    history: History
    random: Random
    topics: dict[str, TopicPlan]


class Requester:
    """Sends requests to the coordinator of a group, one at a time, and records them."""

    def __init__(self, context: ActorContext, plan: ActorPlan) -> None:
        self.context = context
        self.group = plan.group
        self.member_id = ""
        self.epoch = -1
        self.instance_id = plan.name if plan.is_static else None
        self.route = CoordinatorRoute(context.cluster, plan.group, GROUP)
        self.assigned: list[Place] = []
        #: Incremented when all partitions are lost, which invalidates their positions.
        self.tenure = 0

    def lose_all(self) -> None:
        self.assigned = []
        self.tenure += 1

    async def request(
        self,
        f: str,
        message: Message,
        version: int,
        response_type: type[R],
        *,
        arguments: dict[str, Any],
        timeout_ms: int = TIMEOUT_MS,
    ) -> R:
        """Sends a request and records its invocation; the caller records the result. Raises
        TurnOver if there is no response."""
        history, proc = self.context.history, self.context.proc
        history.record(proc, "invoke", f, group=self.group, **arguments)
        try:
            return await self.route.request(message, version, response_type, timeout_ms=timeout_ms)
        except NotSent as error:
            history.record(proc, "fail", f, error=str(error))
            raise TurnOver from None
        except OutcomeUnknown as error:
            history.record(proc, "info", f, error=str(error))
            raise TurnOver from None

    def ok(self, f: str, **v: Any) -> None:
        self.context.history.record(self.context.proc, "ok", f, **v)

    def on_error(self, f: str, code: int) -> None:
        """Records an error: a failure, or an unknown outcome if the coordinator may have appended
        records before it was deposed."""
        self.route.handle_error(code)
        is_certain = code not in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )
        self.context.history.record(
            self.context.proc, "fail" if is_certain else "info", f, error=int(code)
        )


class Membership(Requester, ABC):
    """A membership: `assigned` are the partitions that the member may use, `epoch` fences its
    commits."""

    def __init__(self, context: ActorContext, plan: ActorPlan, subscribed: list[str]) -> None:
        super().__init__(context, plan)
        self.subscribed = subscribed

    @abstractmethod
    async def maintain(self) -> None:
        """Joins or sends a heartbeat if due; `assigned` is valid afterwards. Raises TurnOver."""

    @abstractmethod
    async def leave(self) -> None: ...

    @abstractmethod
    def on_commit(self, code: int) -> None:
        """Updates the membership after an error code of a commit."""


async def commit(membership: Membership, place: Place, offset: int) -> int:
    """Commits an offset and returns the error code. Raises TurnOver."""
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
    response = await membership.request(
        "commit",
        request,
        COMMIT_VERSION,
        committing.OffsetCommitResponse,
        arguments={
            "tp": f"{topic}-{index}", "offset": offset, "member": member_id, "epoch": epoch,
        },
    )  # fmt: skip
    code = response.topics[0].partitions[0].error_code
    if code:
        membership.on_error("commit", code)
    else:
        membership.ok("commit")
    return code


async def fetch_offset(requester: Requester, place: Place) -> int:
    """Returns the committed offset, or NO_OFFSET if there is none. Raises TurnOver."""
    topic, index = place
    topic_request = fetching.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
    request = fetching.OffsetFetchRequest(
        groups=[fetching.OffsetFetchRequestGroup(group_id=requester.group, topics=[topic_request])],
        require_stable=True,
    )
    response = await requester.request(
        "offset_fetch",
        request,
        FETCH_VERSION,
        fetching.OffsetFetchResponse,
        arguments={"tp": f"{topic}-{index}"},
    )
    result = response.groups[0]
    code = result.error_code or result.topics[0].partitions[0].error_code
    if code:
        requester.on_error("offset_fetch", code)
        raise TurnOver
    offset = result.topics[0].partitions[0].committed_offset
    requester.ok("offset_fetch", offset=offset)
    return offset
