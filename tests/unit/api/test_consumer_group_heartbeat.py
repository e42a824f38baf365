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


async def heartbeat(
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
async def test_member_joins_commits_and_leaves(bench: Bench, /, version: int) -> None:
    joined = await heartbeat(bench, version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert joined.heartbeat_interval_ms == 5_000
    assert joined.assignment is not None
    (topic,) = joined.assignment.topic_partitions
    assert topic.topic_id == bench.broker.image.topic_ids["t"]
    assert topic.partitions == [0, 1, 2]
    again = await heartbeat(bench, version, member_epoch=2)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None)
    mine = {"member_id": "m", "generation_id_or_member_epoch": 2}
    assert await commit(bench, 9, "t", {0: 5}, **mine) == {0: 0}
    assert (await heartbeat(bench, version, member_epoch=-1)).member_epoch == -1
    late = await commit(bench, 9, "t", {0: 6}, **mine)
    assert late == {0: ErrorCode.UNKNOWN_MEMBER_ID}


@scenario(play)
async def test_version_0_members_may_get_their_id_from_the_coordinator(bench: Bench, /) -> None:
    named = await heartbeat(bench, 0, member_id="")
    assert named.member_id is not None
    assert len(named.member_id) == 22
    unnamed = await heartbeat(bench, 1, member_id="")
    assert unnamed.error_code == ErrorCode.INVALID_REQUEST


@scenario(play)
async def test_rejection_has_an_error_message(bench: Bench, /) -> None:
    missing = await heartbeat(bench, member_epoch=3)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message == "Group g not found."


@scenario(play)
async def test_group_version_feature_is_required(bench: Bench, /) -> None:
    bench.controller.append((FeatureLevelRecord(name=GROUP_VERSION, feature_level=0),))
    assert (await heartbeat(bench)).error_code == ErrorCode.UNSUPPORTED_VERSION


@scenario(run)
async def test_other_brokers_return_not_coordinator(bench: Bench, /) -> None:
    assert (await heartbeat(bench)).error_code == ErrorCode.NOT_COORDINATOR


@scenario(play)
async def test_member_needs_permissions_on_group_and_topics(bench: Bench, /) -> None:
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
    assert (await heartbeat(bench)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await described(bench) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    hidden.clear()
    hidden.add("t")
    assert (await heartbeat(bench)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # A regular expression matches only topics that the member may describe.
    await bench.create_topic("to-all", partitions=1)
    matched = await heartbeat(bench, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert matched.error_code == 0
    assert matched.assignment is not None
    (topic,) = matched.assignment.topic_partitions
    assert topic.topic_id == bench.broker.image.topic_ids["to-all"]
    assert await described(bench) == 0
    hidden.add("to-all")
    assert await described(bench) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@scenario(play)
async def test_expensive_pattern_does_not_block_other_requests(bench: Bench, /) -> None:
    """A small pattern that takes a long time for each of many long names."""
    names = [f"{number:03}" + "xyz.-" * 48 + "q" for number in range(30)]

    for name in names:
        await bench.create_topic(name)
    joins = [
        asyncio.ensure_future(
            heartbeat(
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
    assert turns >= len(names) // 2, "each name is a separate step here"
    first = joins[0].result()
    assert first.assignment is not None
    ids = bench.broker.image.topic_ids
    given = {topic.topic_id for topic in first.assignment.topic_partitions}
    assert given == {ids[name] for name in names}
    assert joins[1].result().error_code == 0
    left = await heartbeat(bench, member_id="a", member_epoch=-1)
    assert left.error_code == 0
