"""What the requests within the metadata quorum have in common."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from lograft.api.context import Context
from lograft.broker.quorum.incoming_rpcs import CODE_OF, Answerer, fetch_from_wire, fetch_to_wire
from lograft.consensus import messages as core
from lograft.consensus.types import VoterEndpoint
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.seams import Address
from lograft.model.types import NodeId
from lograft.wire.messages.fetch import FetchRequest, FetchResponse

#: Before this version a fetch cannot say where logs part, nor an answer who leads.
FETCH_SINCE: Final = 12
FETCH_KEY: Final = 1
#: Where the leader is told, in Fetch and in the others.
FETCH_ENDPOINTS_SINCE: Final = 16
ENDPOINTS_SINCE: Final = 1


def is_of_other_cluster(context: Context, cluster_id: str | None) -> bool:
    """Who does not say which cluster it means is believed to mean this one."""
    return cluster_id is not None and cluster_id != context.shared.cluster_id


def leader_of(context: Context) -> Answerer:
    """Older versions cannot say where the leader is."""
    quorum = context.shared.quorum
    since = FETCH_ENDPOINTS_SINCE if context.api_key == FETCH_KEY else ENDPOINTS_SINCE
    known = quorum.leader_endpoint() if context.api_version >= since else None
    return Answerer(quorum.leader, known)


def learn_leader(
    context: Context, leader: NodeId, endpoints: Iterable[tuple[str, str, int]]
) -> None:
    """A leader's own word about where it is counts more than the log's."""
    wanted = context.shared.config.controller_listener_names[0]
    for name, host, port in endpoints:
        if name.upper() == wanted:
            context.shared.quorum.learn(leader, Address(host, port))


async def fetch_metadata(context: Context, request: FetchRequest) -> FetchResponse:
    """Fetch on the controller listener: a replica of the metadata log pulls from its leader."""
    shared = context.shared
    if is_of_other_cluster(context, request.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if context.api_version < FETCH_SINCE:
        raise InvalidInput(f"the metadata log is fetched with version {FETCH_SINCE} or later")
    bytes_max = min(request.max_bytes, shared.config.controller_quorum_fetch_max_bytes)
    answer = await shared.quorum.ask(fetch_from_wire(request), bytes_max=max(bytes_max, 1))
    assert isinstance(answer, core.FetchResponse)
    return fetch_to_wire(answer, leader_of(context), log_start=shared.quorum.log.log_start_offset)


class ListenerEntry(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def voter_endpoints(
    context: Context, listeners: Sequence[ListenerEntry]
) -> tuple[VoterEndpoint, ...]:
    """Where a voter is; the others must be able to reach it."""
    endpoints = tuple(VoterEndpoint(each.name, each.host, each.port) for each in listeners)
    wanted = context.shared.config.controller_listener_names[0]
    if not any(each.name.upper() == wanted for each in endpoints):
        raise InvalidInput(f"the voter has no listener {wanted}, by which the others reach it")
    return endpoints


def refusal(answer: core.Response) -> tuple[ErrorCode, str | None]:
    """Code and sentence for whoever changes the voters."""
    if answer.error is core.Error.NONE:
        return ErrorCode.NONE, None
    return CODE_OF[answer.error], _SENTENCES.get(answer.error, answer.error.value)


_SENTENCES: Final = {
    core.Error.NOT_LEADER: "This controller does not lead the metadata quorum (any more): the"
    " change may or may not become committed.",
    core.Error.DUPLICATE_VOTER: "The quorum already has a voter with this id.",
    core.Error.VOTER_NOT_FOUND: "The quorum has no voter with this id and directory id.",
    core.Error.CHANGE_IN_PROGRESS: "Another change of the voters is not committed yet: try again.",
    core.Error.LAST_VOTER: "The last voter cannot be removed.",
    core.Error.STATIC_VOTERS: "The voters are fixed by controller.quorum.voters (kraft.version 0).",
    core.Error.VERSION_NOT_SUPPORTED: "kraft.version cannot be upgraded: the active controller does"
    " not know yet whether all voters support it. Each voter reports its supported versions shortly"
    " after it starts.",
    core.Error.TIMED_OUT: "The voter did not catch up, or the change was not committed, in time.",
}
