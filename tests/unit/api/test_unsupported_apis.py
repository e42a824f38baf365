"""No API of Kafka 4.3.1 closes the connection, whether Lograft supports it or not."""

from typing import Any
from uuid import UUID

import pytest

from lograft.api.router import served_apis
from lograft.model.errors import ErrorCode
from lograft.wire.apis import API_VERSIONS, ApiSpec, request_class, response_class
from lograft.wire.message import Message
from lograft.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from lograft.wire.messages.produce import ProduceRequest
from lograft.wire.messages.share_group_describe import ShareGroupDescribeRequest
from lograft.wire.messages.write_share_group_state import (
    PartitionData,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

#: The APIs that the protocol has on each kind of listener.
EVERYTHING = [
    (spec, role)
    for spec in API_VERSIONS.values()
    for role in ("broker", "controller")
    if role in spec.listeners
]
SERVED = {role: {spec.key for spec in served_apis(role)} for role in ("broker", "controller")}


def minimal(spec: ApiSpec) -> Message:
    if spec.name == "Produce":
        return ProduceRequest(acks=1)
    return request_class(spec.key)()


@pytest.mark.parametrize(
    ("spec", "role"), EVERYTHING, ids=lambda value: getattr(value, "name", value)
)
@scenario(run)
async def test_every_version_of_every_api_gets_a_response(
    bench: Bench, /, spec: ApiSpec, role: str
) -> None:
    for version in range(spec.min_version, spec.max_version + 1):
        response: Any = await bench.ask(minimal(spec), version, response_class(spec.key), role=role)
        if spec.key not in SERVED[role] and hasattr(response, "error_code"):
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "does not support" in response.error_message


@pytest.mark.parametrize(
    "request_",
    [
        ShareGroupDescribeRequest(group_ids=["g", "h"]),
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name) for name in "gh"]
        ),
    ],
    ids=lambda request: type(request).__name__,
)
@scenario(run)
async def test_every_group_of_a_request_has_the_error(bench: Bench, /, request_: Message) -> None:
    response: Any = await bench.ask(request_, 1, response_class(request_.KEY))
    assert [group.group_id for group in response.groups] == ["g", "h"]
    assert {group.error_code for group in response.groups} == {ErrorCode.UNSUPPORTED_VERSION}


@scenario(run)
async def test_every_partition_of_a_request_has_the_error(bench: Bench, /) -> None:
    request = WriteShareGroupStateRequest(
        topics=[
            WriteStateData(
                topic_id=UUID(int=5),
                partitions=[PartitionData(partition=index) for index in range(2)],
            )
        ]
    )
    response: Any = await bench.ask(request, 1, response_class(request.KEY))
    (topic,) = response.results
    assert topic.topic_id == UUID(int=5)
    assert [(partition.partition, partition.error_code) for partition in topic.partitions] == [
        (0, ErrorCode.UNSUPPORTED_VERSION),
        (1, ErrorCode.UNSUPPORTED_VERSION),
    ]
