import pytest

from lograft.metadata.brokers import fence_broker
from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.records.register_controller_record import (
    ControllerEndpoint,
    RegisterControllerRecord,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import CLUSTER_ID, Bench, run


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_brokers_are_listed(bench: Bench, /, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await bench.ask(request, version, DescribeClusterResponse)
    assert response.error_code == 0
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 1)
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1, "localhost", 9092)]
    assert response.cluster_authorized_operations == 8096


@scenario(run)
async def test_fenced_brokers_are_listed_on_request(bench: Bench, /) -> None:
    await bench.controller.submit(lambda image: fence_broker(image, 1, config=bench.config))
    plain = await bench.ask(DescribeClusterRequest(), 2, DescribeClusterResponse)
    assert plain.brokers == []
    request = DescribeClusterRequest(include_fenced_brokers=True)
    full = await bench.ask(request, 2, DescribeClusterResponse)
    assert [(b.broker_id, b.is_fenced) for b in full.brokers] == [(1, True)]


@scenario(run)
async def test_controllers_are_listed_only_on_their_own_listener(bench: Bench, /) -> None:
    end = ControllerEndpoint(name="CONTROLLER", host="localhost", port=9093)
    bench.controller.append((RegisterControllerRecord(controller_id=1, end_points=[end]),))
    ask_controllers = DescribeClusterRequest(endpoint_type=2)
    wrong = await bench.ask(ask_controllers, 1, DescribeClusterResponse)
    assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    right = await bench.ask(ask_controllers, 1, DescribeClusterResponse, role="controller")
    assert [(b.broker_id, b.port) for b in right.brokers] == [(1, 9093)]
    strange = await bench.ask(DescribeClusterRequest(endpoint_type=9), 1, DescribeClusterResponse)
    assert strange.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
