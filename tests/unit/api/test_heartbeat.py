import asyncio

import pytest

from lograft.model.errors import ErrorCode
from tests.support.scenarios import scenario
from tests.unit.api.groups_bench import beat, member_of, play
from tests.unit.broker.bench import Bench


@pytest.mark.parametrize("version", range(5))
@scenario(play)
async def test_a_member_that_is_heard_of_stays(bench: Bench, /, version: int) -> None:
    member = await member_of(bench)
    for _ in range(5):
        await asyncio.sleep(9)
        assert await beat(bench, member, version) == 0
    await asyncio.sleep(10.1)
    assert await beat(bench, member, version) == ErrorCode.UNKNOWN_MEMBER_ID


@scenario(play)
async def test_another_generation(bench: Bench, /) -> None:
    member = await member_of(bench)
    member.generation_id += 1
    assert await beat(bench, member) == ErrorCode.ILLEGAL_GENERATION
