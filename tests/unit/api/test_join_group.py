import asyncio

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.join_group import JoinGroupResponse
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import heartbeat, join, join_request, member_of, play, subscription
from tests.unit.broker.bench import Bench, run

#: Before this version of JoinGroup strings are limited to 32767 bytes.
FLEXIBLE_SINCE = 6


@pytest.mark.parametrize("version", range(10))
@scenario(play)
async def test_two_members_join(bench: Bench, /, version: int) -> None:
    first, second = await asyncio.gather(
        join(bench, version, join_request()), join(bench, version, join_request())
    )
    assert (first.error_code, second.error_code) == (0, 0)
    assert first.generation_id == second.generation_id == 1
    assert first.leader == second.leader == first.member_id
    assert first.protocol_name == "range"
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert {member.member_id for member in first.members} == {
        first.member_id,
        second.member_id,
    }
    assert {bytes(member.metadata) for member in first.members} == {subscription("t")}
    assert second.members == []


@scenario(play)
async def test_new_member_first_gets_a_member_id(bench: Bench, /) -> None:
    response = await bench.ask(join_request(), 4, JoinGroupResponse)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id != ""


@pytest.mark.parametrize("version", range(10))
@scenario(play)
async def test_invalid_requests_are_rejected(bench: Bench, /, version: int) -> None:
    async def code(field: str, value: object) -> int:
        request = join_request()
        setattr(request, field, value)
        return (await join(bench, version, request)).error_code

    assert await code("session_timeout_ms", 5_999) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert await code("session_timeout_ms", 1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert await code("group_id", "") == ErrorCode.INVALID_GROUP_ID
    if version >= FLEXIBLE_SINCE:
        assert await code("group_id", "x" * 32_768) == ErrorCode.INVALID_GROUP_ID
    assert await code("protocols", []) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await code("member_id", "stranger") == ErrorCode.UNKNOWN_MEMBER_ID


@scenario(play)
async def test_rebalance_waits_for_the_other_members(bench: Bench, /) -> None:
    member = await member_of(bench)
    join_task = asyncio.ensure_future(join(bench, 9, join_request()))
    await asyncio.sleep(1)
    assert not join_task.done()
    assert await heartbeat(bench, member) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await join(bench, 9, join_request(member_id=member.member_id))
    newcomer = await join_task
    assert again.generation_id == newcomer.generation_id == 2
    assert again.leader == newcomer.leader == member.member_id


@scenario(run)
async def test_other_brokers_return_not_coordinator(bench: Bench, /) -> None:
    response = await bench.ask(join_request(member_id="m"), 9, JoinGroupResponse)
    assert (response.error_code, response.member_id) == (ErrorCode.NOT_COORDINATOR, "m")
