"""Functions shared by the requests of the metadata quorum."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from lograft.api.context import Context
from lograft.broker.quorum.incoming_rpcs import CODE_OF, KnownLeader, fetch_from_wire, fetch_to_wire
from lograft.consensus import messages as core
from lograft.consensus.types import VoterEndpoint
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.seams import Address
from lograft.model.types import NodeId
from lograft.wire.messages.fetch import FetchRequest, FetchResponse

#: Before this version Fetch has no diverging epoch in the response and no current leader.
FETCH_SINCE: Final = 12
FETCH_KEY: Final = 1
#: The versions from which on responses have the leader's endpoints: Fetch, and the other APIs.
FETCH_ENDPOINTS_SINCE: Final = 16
ENDPOINTS_SINCE: Final = 1


def has_foreign_cluster_id(context: Context, cluster_id: str | None) -> bool:
    """Returns False for a request without a cluster id."""
    return cluster_id is not None and cluster_id != context.shared.cluster_id


def leader_of(context: Context) -> KnownLeader:
    """Returns the leader, with its endpoints only for versions that have them."""
    quorum = context.shared.quorum
    since = FETCH_ENDPOINTS_SINCE if context.api_key == FETCH_KEY else ENDPOINTS_SINCE
    leader = quorum.leader_endpoint() if context.api_version >= since else None
    return KnownLeader(quorum.leader, leader)


def learn_leader(
    context: Context, leader: NodeId, endpoints: Iterable[tuple[str, str, int]]
) -> None:
    """Stores the endpoints that a leader sends, which take precedence over those in the log."""
    listener = context.shared.config.controller_listener_names[0]
    for name, host, port in endpoints:
        if name.upper() == listener:
            context.shared.quorum.learn(leader, Address(host, port))


async def fetch_metadata(context: Context, request: FetchRequest) -> FetchResponse:
    """Handles Fetch on the controller listener: a replica fetches the metadata log."""
    shared = context.shared
    if has_foreign_cluster_id(context, request.cluster_id):
        return FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if context.api_version < FETCH_SINCE:
        raise InvalidInput(f"Fetches of the metadata log need version {FETCH_SINCE} or later.")
    bytes_max = min(request.max_bytes, shared.config.controller_quorum_fetch_max_bytes)
    response = await shared.quorum.ask(fetch_from_wire(request), bytes_max=max(bytes_max, 1))
    assert isinstance(response, core.FetchResponse)
    return fetch_to_wire(response, leader_of(context), log_start=shared.quorum.log.log_start_offset)


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
    """Returns the voter's endpoints, which must include the listener that the voters use."""
    endpoints = tuple(VoterEndpoint(entry.name, entry.host, entry.port) for entry in listeners)
    listener = context.shared.config.controller_listener_names[0]
    if not any(entry.name.upper() == listener for entry in endpoints):
        raise InvalidInput(f"The voter has no listener {listener}, which the other voters use.")
    return endpoints


def error_of(response: core.Response) -> tuple[ErrorCode, str | None]:
    """Returns error code and message of a rejected change of the voters."""
    if response.error is core.Error.NONE:
        return ErrorCode.NONE, None
    return CODE_OF[response.error], _MESSAGES.get(response.error, response.error.value)


_MESSAGES: Final = {
    core.Error.NOT_LEADER: "This controller is not, or no longer, the leader of the metadata"
    " quorum: the change may or may not become committed.",
    core.Error.DUPLICATE_VOTER: "The quorum already has a voter with this id.",
    core.Error.VOTER_NOT_FOUND: "The quorum has no voter with this id and directory id.",
    core.Error.CHANGE_IN_PROGRESS: "Another change of the voters is not committed yet. Try again.",
    core.Error.LAST_VOTER: "The last voter cannot be removed.",
    core.Error.STATIC_VOTERS: "The voters are fixed by controller.quorum.voters (kraft.version 0).",
    core.Error.VERSION_NOT_SUPPORTED: "kraft.version cannot be upgraded: the active controller does"
    " not know yet whether all voters support it. Each voter reports its supported versions shortly"
    " after it starts.",
    core.Error.TIMED_OUT: "The voter did not catch up, or the change was not committed, in time.",
}
