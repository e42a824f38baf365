import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import heartbeat, leave, member_of, play
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_a_member_leaves_once(bench: Bench, /, version: int) -> None:
    member = await member_of(bench)
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        response = await leave(bench, member, version)
        if version < 3:
            assert response.error_code == expected
        else:
            assert response.error_code == 0
            assert [member.error_code for member in response.members] == [expected]
    assert await heartbeat(bench, member) == ErrorCode.UNKNOWN_MEMBER_ID


@scenario(play)
async def test_each_member_has_its_own_error(bench: Bench, /) -> None:
    member = await member_of(bench)
    request = LeaveGroupRequest(
        group_id="g",
        members=[
            MemberIdentity(member_id="stranger", reason="lost"),
            MemberIdentity(member_id=member.member_id, reason="the work is done"),
            MemberIdentity(member_id="", group_instance_id="nobody"),
        ],
    )
    response = await bench.ask(request, 5, LeaveGroupResponse)
    assert [(member.member_id, member.error_code) for member in response.members] == [
        ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        (member.member_id, ErrorCode.NONE),
        ("", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
