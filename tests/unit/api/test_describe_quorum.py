from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID
from lograft.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from lograft.wire.records.register_controller_record import (
    ControllerEndpoint,
    RegisterControllerRecord,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_describes_the_metadata_quorum(bench: Bench, /, version: int, role: str) -> None:
    end = ControllerEndpoint(name="CONTROLLER", host="localhost", port=9093)
    bench.controller.append((RegisterControllerRecord(controller_id=1, end_points=[end]),))
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
            for name in ("__cluster_metadata", "a")
        ]
    )
    response = await bench.ask(request, version, DescribeQuorumResponse, role=role)
    known, unknown = (topic.partitions[0] for topic in response.topics)
    assert (known.error_code, known.leader_id, known.leader_epoch) == (0, 1, 3)
    assert known.high_watermark == 42
    (voter,) = known.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, 43)
    assert voter.replica_directory_id == (UUID(int=77) if version >= 2 else ZERO_UUID)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        (node,) = response.nodes
        assert [(end.name, end.port) for end in node.listeners] == [("CONTROLLER", 9093)]
