import pytest

from lograft.metadata.types import GROUP_VERSION
from lograft.model.errors import ErrorCode
from lograft.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lograft.wire.records.feature_level_record import FeatureLevelRecord
from tests.unit.api.offsets_bench import commit, play
from tests.unit.broker.bench import Bench, run


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
def test_a_member_joins_commits_and_leaves(version: int) -> None:
    async def scenario(bench: Bench) -> None:
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
        assert late == {0: ErrorCode.unknown_member_id}

    play(scenario)


def test_version_0_may_leave_its_name_to_the_coordinator() -> None:
    async def scenario(bench: Bench) -> None:
        named = await beat(bench, 0, member_id="")
        assert named.member_id is not None
        assert len(named.member_id) == 22
        unnamed = await beat(bench, 1, member_id="")
        assert unnamed.error_code == ErrorCode.invalid_request

    play(scenario)


def test_a_refusal_has_a_sentence() -> None:
    async def scenario(bench: Bench) -> None:
        missing = await beat(bench, member_epoch=3)
        assert missing.error_code == ErrorCode.group_id_not_found
        assert missing.error_message == "Group g not found."

    play(scenario)


def test_it_needs_the_feature() -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.append((FeatureLevelRecord(name=GROUP_VERSION, feature_level=0),))
        assert (await beat(bench)).error_code == ErrorCode.unsupported_version

    play(scenario)


def test_a_broker_that_is_not_the_coordinator() -> None:
    async def scenario(bench: Bench) -> None:
        assert (await beat(bench)).error_code == ErrorCode.not_coordinator

    run(scenario)
