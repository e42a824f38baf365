import asyncio

import pytest

from lograft.model.errors import ErrorCode
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import heartbeat, join, join_request, member_of, play, sync
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(6))
@scenario(play)
async def test_every_member_gets_the_leaders_assignment(bench: Bench, /, version: int) -> None:
    leader, other = await asyncio.gather(
        join(bench, 3, join_request()), join(bench, 3, join_request())
    )
    waiting = asyncio.ensure_future(sync(bench, version, other))
    await asyncio.sleep(1)
    assert not waiting.done()
    leader_response = {
        leader.member_id.replace("-", "_"): b"first",
        other.member_id.replace("-", "_"): b"second",
    }
    own = await sync(bench, version, leader, **leader_response)
    others = await waiting
    assert (own.error_code, bytes(own.assignment)) == (0, b"first")
    assert (others.error_code, bytes(others.assignment)) == (0, b"second")
    if version >= 5:
        assert (own.protocol_type, own.protocol_name) == ("consumer", "range")


@scenario(play)
async def test_invalid_members_are_rejected(bench: Bench, /) -> None:
    member = await member_of(bench)
    member.generation_id = 7
    assert (await sync(bench, 5, member)).error_code == ErrorCode.ILLEGAL_GENERATION
    member.member_id = "stranger"
    assert (await sync(bench, 5, member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@scenario(play)
async def test_group_is_stable_on_the_next_coordinator(bench: Bench, /) -> None:
    member = await member_of(bench)
    partitions = bench.broker.groups
    index = partitions.partition_of("g")
    shard = partitions._shards.pop(index)
    shard.close()
    partitions.on_role(shard.partition)
    while not partitions._shards[index].is_loaded:
        # A member is not removed while the group is being loaded.
        assert await heartbeat(bench, member) == 0
        await asyncio.sleep(0.001)
    assert await heartbeat(bench, member) == 0
    assert bytes((await sync(bench, 5, member)).assignment) == b"all"
