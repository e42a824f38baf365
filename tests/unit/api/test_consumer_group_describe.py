import pytest

from lograft.api.authorization import ALL_OPERATIONS
from lograft.model.errors import ErrorCode
from lograft.security.authorization import ResourceType
from lograft.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import play
from tests.unit.api.test_consumer_group_heartbeat import heartbeat
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", [0, 1])
@scenario(play)
async def test_describes_a_group_with_its_members(bench: Bench, /, version: int) -> None:
    await heartbeat(bench, rack_id="east", server_assignor="range")
    request = ConsumerGroupDescribeRequest(
        group_ids=["g", "other", ""], include_authorized_operations=True
    )
    response = await bench.ask(request, version, ConsumerGroupDescribeResponse)
    group, missing, unnamed = response.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "range"
    assert group.authorized_operations == ALL_OPERATIONS[ResourceType.GROUP]
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "east", 2)
    assert member.subscribed_topic_names == ["t"]
    assert member.subscribed_topic_regex == ""
    assert member.member_type == (1 if version else -1)
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("t", [0, 1, 2])
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


@scenario(run)
async def test_other_brokers_return_not_coordinator(bench: Bench, /) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    response = await bench.ask(request, 1, ConsumerGroupDescribeResponse)
    assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
