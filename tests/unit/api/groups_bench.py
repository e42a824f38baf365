"""Classic groups in a broker on a bench, which clients join and leave."""

import asyncio
from struct import Struct

from lograft.model.errors import ErrorCode
from lograft.wire.codec import write
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lograft.wire.records.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.unit.api.offsets_bench import find_coordinator, run_coordinator
from tests.unit.broker.bench import Bench, Scenario


def subscription(*topics: str) -> bytes:
    encoded = ConsumerProtocolSubscription(topics=list(topics))
    return Struct(">h").pack(1) + write(encoded, 1)


def join_request(
    *, group: str = "g", member_id: str = "", topics: tuple[str, ...] = ("t",)
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))],
    )


async def join(bench: Bench, version: int, request: JoinGroupRequest) -> JoinGroupResponse:
    if version == 0:
        request.rebalance_timeout_ms = -1
    response = await bench.ask(request, version, JoinGroupResponse)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = response.member_id
        response = await bench.ask(request, version, JoinGroupResponse)
    return response


async def sync(
    bench: Bench, version: int, joined: JoinGroupResponse, **assigned: bytes
) -> SyncGroupResponse:
    """`assigned` is by member id, with _ in place of its dashes."""
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id.replace("_", "-"), assignment=what)
            for member_id, what in assigned.items()
        ],
    )
    return await bench.ask(request, version, SyncGroupResponse)


async def member_of(bench: Bench, group: str = "g") -> JoinGroupResponse:
    """Returns the response of the only member, once the group is stable."""
    joined = await join(bench, 9, join_request(group=group))
    assert joined.error_code == 0
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    assert (await bench.ask(request, 5, SyncGroupResponse)).assignment == b"all"
    return joined


async def heartbeat(bench: Bench, joined: JoinGroupResponse, version: int = 4) -> int:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    return (await bench.ask(request, version, HeartbeatResponse)).error_code


async def leave(bench: Bench, joined: JoinGroupResponse, version: int = 5) -> LeaveGroupResponse:
    request = LeaveGroupRequest(group_id="g")
    if version < 3:
        request.member_id = joined.member_id
    else:
        request.members = [MemberIdentity(member_id=joined.member_id)]
    return await bench.ask(request, version, LeaveGroupResponse)


def play(scenario: Scenario) -> None:
    async def with_coordinator(bench: Bench) -> None:
        await bench.create_topic("t", partitions=3)
        await find_coordinator(bench)
        async with asyncio.timeout(600):
            await scenario(bench)

    run_coordinator(with_coordinator, group_initial_rebalance_delay_ms="50")
