"""A member of a classic group."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lograft.coordination.deadlines import Deadline
from lograft.coordination.types import CoordinatorResult
from lograft.wire.messages.join_group import JoinGroupRequest
from lograft.wire.records.group_metadata_value import MemberMetadata


def _allows_all(topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The properties of a requesting client that matter to groups."""

    client_id: str
    #: In Kafka's notation: "/127.0.0.1".
    host: str
    api_version: int
    #: Whether it is authorized to describe a topic: patterns match only those topics.
    can_describe: Callable[[str], bool] = _allows_all


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    member_id: str
    #: Instance id of a static member (KIP-345), which may rejoin with another member id.
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    #: The supported protocols in order of preference, each with the metadata for the leader. After
    #: a failover, only the protocol of the current generation.
    protocols: Mapping[str, bytes]
    #: The partitions that the leader assigned to it in this generation.
    assignment: bytes = b""
    #: Its first JoinGroup is still parked. It cannot send heartbeats and the coordinator cannot
    #: see whether the client is still alive, so the request is parked only for a limited time.
    is_new: bool = False
    session: Deadline[CoordinatorResult] | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def has_protocols(self, protocols: Mapping[str, bytes]) -> bool:
        """The order counts: it is the order of preference."""
        return list(self.protocols.items()) == list(protocols.items())

    def update(self, request: JoinGroupRequest) -> None:
        self.protocols = protocols_of(request)
        self.rebalance_timeout_ms = rebalance_timeout_of(request)
        self.session_timeout_ms = request.session_timeout_ms


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    return {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """Version 0 has one timeout for both purposes."""
    given_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if given_ms == -1 else given_ms


def build_member(member_id: str, request: JoinGroupRequest, client: Client) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=client.client_id,
        client_host=client.host,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request),
    )


def member_of_record(stored: MemberMetadata, protocol: str | None) -> Member:
    timeout_ms = stored.rebalance_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocols={} if protocol is None else {protocol: bytes(stored.subscription)},
        assignment=bytes(stored.assignment),
    )
