from lograft.model.errors import ErrorCode
from lograft.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@scenario(run)
async def test_lists_resources_by_type(bench: Bench, /) -> None:
    await bench.create_topic("a")
    bench.controller.append(
        (
            ConfigRecord(resource_type=METRICS, resource_name="m", name="x", value="1"),
            ConfigRecord(resource_type=GROUP, resource_name="g", name="x", value="1"),
        )
    )

    async def send_request(version: int, *types: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(types))
        response = await bench.ask(request, version, ListConfigResourcesResponse)
        assert response.error_code == 0
        return [(r.resource_type, r.resource_name) for r in response.config_resources]

    assert await send_request(0) == [(METRICS, "m")]
    everything = [(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")]
    assert await send_request(1) == everything
    assert await send_request(1, GROUP, TOPIC) == [(GROUP, "g"), (TOPIC, "a")]
    request = ListConfigResourcesRequest(resource_types=[99])
    response = await bench.ask(request, 1, ListConfigResourcesResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
