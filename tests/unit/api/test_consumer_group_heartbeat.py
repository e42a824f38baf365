import asyncio

import pytest

from lograft.metadata.types import GROUP_VERSION
from lograft.model.errors import ErrorCode
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import commit, play
from tests.unit.api.stand_in_authorizer import StandInAuthorizer
from tests.unit.broker.bench import Bench, run
from tests.unit.coordination.test_pattern_matching import HOSTILE


async def beat(
    bench: Bench, version: int = 1, member_id: str = "m", member_epoch: int = 0, **fields: object
) -> ConsumerGroupHeartbeatResponse:
    if member_epoch == 0:
        fields = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=member_epoch,
        **fields,  # type: ignore[arg-type]
    )
    return await bench.ask(request, version, ConsumerGroupHeartbeatResponse)


@pytest.mark.parametrize("version", [0, 1])
@scenario(play)
async def test_a_member_joins_commits_and_leaves(bench: Bench, /, version: int) -> None:
    joined = await beat(bench, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert joined.heartbeat_interval_ms == 5_000
    assert joined.assignment is not None
    (topic,) = joined.assignment.topic_partitions
    assert topic.topic_id == bench.broker.image.topic_ids["t"]
    assert topic.partitions == [0, 1, 2]
    again = await beat(bench, version, member_epoch=2)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None)
    mine = {"member_id": "m", "generation_id_or_member_epoch": 2}
    assert await commit(bench, 9, "t", {0: 5}, **mine) == {0: 0}
    assert (await beat(bench, version, member_epoch=-1)).member_epoch == -1
    late = await commit(bench, 9, "t", {0: 6}, **mine)
    assert late == {0: ErrorCode.UNKNOWN_MEMBER_ID}


@scenario(play)
async def test_version_0_may_leave_its_name_to_the_coordinator(bench: Bench, /) -> None:
    named = await beat(bench, 0, member_id="")
    assert named.member_id is not None
    assert len(named.member_id) == 22
    unnamed = await beat(bench, 1, member_id="")
    assert unnamed.error_code == ErrorCode.INVALID_REQUEST


@scenario(play)
async def test_a_refusal_has_a_sentence(bench: Bench, /) -> None:
    missing = await beat(bench, member_epoch=3)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group g not found."


@scenario(play)
async def test_it_needs_the_feature(bench: Bench, /) -> None:
    bench.controller.append((FeatureLevelRecord(name=GROUP_VERSION, feature_level=0),))
    assert (await beat(bench)).error_code == ErrorCode.UNSUPPORTED_VERSION


@scenario(run)
async def test_a_broker_that_is_not_the_coordinator(bench: Bench, /) -> None:
    assert (await beat(bench)).error_code == ErrorCode.NOT_COORDINATOR


@scenario(play)
async def test_a_member_needs_access_to_its_group_and_topics(bench: Bench, /) -> None:
    authorizer = StandInAuthorizer()
    hidden = authorizer.hidden

    async def described(bench: Bench) -> int:
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        response = await bench.ask(request, 1, ConsumerGroupDescribeResponse)
        (group,) = response.groups
        assert group.error_code == 0 or not group.members
        return group.error_code

    bench.authorize_with(authorizer)
    hidden.add("g")
    assert (await beat(bench)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await described(bench) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    hidden.clear()
    hidden.add("t")
    assert (await beat(bench)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # A pattern matches only what the member may see.
    await bench.create_topic("to-all", partitions=1)
    matched = await beat(bench, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert matched.error_code == 0
    assert matched.assignment is not None
    (topic,) = matched.assignment.topic_partitions
    assert topic.topic_id == bench.broker.image.topic_ids["to-all"]
    assert await described(bench) == 0
    hidden.add("to-all")
    assert await described(bench) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@scenario(play)
async def test_others_are_served_while_a_costly_pattern_is_matched(bench: Bench, /) -> None:
    """A small pattern that takes long for each of many long names."""
    names = [f"{number:03}" + "xyz.-" * 48 + "q" for number in range(30)]

    for name in names:
        await bench.create_topic(name)
    joins = [
        asyncio.ensure_future(
            beat(
                bench,
                member_id=member_id,
                subscribed_topic_names=None,
                subscribed_topic_regex=HOSTILE,
            )
        )
        for member_id in ("a", "b")
    ]
    turns = 0
    while not all(join.done() for join in joins):
        answered = await bench.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        assert answered.error_code == 0
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(names) // 2, "a piece is a name here"
    first = joins[0].result()
    assert first.assignment is not None
    ids = bench.broker.image.topic_ids
    given = {topic.topic_id for topic in first.assignment.topic_partitions}
    assert given == {ids[name] for name in names}
    assert joins[1].result().error_code == 0
    left = await beat(bench, member_id="a", member_epoch=-1)
    assert left.error_code == 0
