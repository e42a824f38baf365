import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import leave, member_of, play, subscription
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(7))
@scenario(play)
async def test_describes_a_group_with_its_members(bench: Bench, /, version: int) -> None:
    member = await member_of(bench)
    request = DescribeGroupsRequest(
        groups=["g", "nobody's"], include_authorized_operations=version >= 3
    )
    group, missing = (await bench.ask(request, version, DescribeGroupsResponse)).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (described,) = group.members
    assert described.member_id == member.member_id
    assert bytes(described.member_metadata) == subscription("t")
    assert bytes(described.member_assignment) == b"all"
    assert described.client_host.startswith("/")
    if version >= 3:
        assert group.authorized_operations == 0b1101_0100_1000
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@scenario(play)
async def test_empty_group_has_no_protocol(bench: Bench, /) -> None:
    await leave(bench, await member_of(bench))
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = (await bench.ask(request, 6, DescribeGroupsResponse)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Empty",
        "consumer",
        "",
    )
    assert group.members == []
