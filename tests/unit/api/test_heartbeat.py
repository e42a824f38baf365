import asyncio

import pytest

from lograft.model.errors import ErrorCode
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import heartbeat, member_of, play
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(5))
@scenario(play)
async def test_member_with_heartbeats_stays_in_the_group(bench: Bench, /, version: int) -> None:
    member = await member_of(bench)
    for _ in range(5):
        await asyncio.sleep(9)
        assert await heartbeat(bench, member, version) == 0
    await asyncio.sleep(10.1)
    assert await heartbeat(bench, member, version) == ErrorCode.UNKNOWN_MEMBER_ID


@scenario(play)
async def test_old_generation_is_rejected(bench: Bench, /) -> None:
    member = await member_of(bench)
    member.generation_id += 1
    assert await heartbeat(bench, member) == ErrorCode.ILLEGAL_GENERATION
