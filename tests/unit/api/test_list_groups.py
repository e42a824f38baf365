import pytest

from lograft.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import leave, member_of, play
from tests.unit.api.offsets_bench import commit
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_lists_groups_of_all_partitions(bench: Bench, /, version: int) -> None:
    await commit(bench, 9, "t", {0: 1})
    for group in ("a", "b"):
        await member_of(bench, group)
    response = await bench.ask(ListGroupsRequest(), version, ListGroupsResponse)
    assert {group.group_id: group.protocol_type for group in response.groups} == {
        "a": "consumer",
        "b": "consumer",
        "g": "",
    }
    if version >= 4:
        states = {group.group_id: group.group_state for group in response.groups}
        assert states == {"a": "Stable", "b": "Stable", "g": "Empty"}


@scenario(play)
async def test_filters_by_state_and_type(bench: Bench, /) -> None:
    await leave(bench, await member_of(bench))
    await member_of(bench, "a")

    async def listed(states: list[str], types: list[str]) -> list[tuple[str, str]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        response = await bench.ask(request, 5, ListGroupsResponse)
        return [(group.group_id, group.group_type) for group in response.groups]

    assert await listed(["stable"], []) == [("a", "classic")]
    assert await listed(["Empty"], ["Classic"]) == [("g", "classic")]
    assert await listed([], ["consumer"]) == []
