import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import leave, member_of, play
from tests.unit.api.offsets_bench import commit, fetch_all
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(3))
@scenario(play)
async def test_only_empty_groups_are_deleted_with_their_offsets(
    bench: Bench, /, version: int
) -> None:
    async def delete(*groups: str) -> dict[str, int]:
        request = DeleteGroupsRequest(groups_names=list(groups))
        response = await bench.ask(request, version, DeleteGroupsResponse)
        return {result.group_id: result.error_code for result in response.results}

    await commit(bench, 9, "t", {0: 1, 2: 5})
    member = await member_of(bench)
    assert await delete("g", "nobody's") == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "nobody's": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    await leave(bench, member)
    assert await fetch_all(bench, 9) != {}
    assert await delete("g") == {"g": 0}
    assert await fetch_all(bench, 9) == {}
    assert (await bench.ask(ListGroupsRequest(), 5, ListGroupsResponse)).groups == []
