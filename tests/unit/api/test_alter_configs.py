import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run


@pytest.mark.parametrize("version", range(3))
@scenario(run)
async def test_replaces_the_whole_configuration(bench: Bench, /, version: int) -> None:
    (partition,) = await bench.create_topic("a", retention_ms="1000", flush_messages="7")

    async def alter(name: str, validate_only: bool = False, **configs: str) -> int:
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[
                        AlterableConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )
        response = await bench.ask(request, version, AlterConfigsResponse)
        return response.responses[0].error_code

    assert await alter("a", validate_only=True, retention_ms="2000") == 0
    assert partition.config.retention_ms == 1000
    assert await alter("a", retention_ms="2000") == 0
    assert partition.config.retention_ms == 2000
    assert partition.config.flush_messages > 7
    assert partition.log is not None
    assert partition.log.config is partition.config, "the log uses the new config immediately"
    assert await alter("a", retention_ms="soon") == ErrorCode.INVALID_CONFIG
    assert await alter("b", retention_ms="1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bench.controller.down = True
    assert await alter("a", retention_ms="1") == ErrorCode.REQUEST_TIMED_OUT


@scenario(run)
async def test_requests_for_other_brokers_are_rejected(bench: Bench, /) -> None:
    def setting(name: str) -> AlterConfigsResource:
        return AlterConfigsResource(
            resource_type=4,
            resource_name=name,
            configs=[AlterableConfig(name="log.retention.ms", value="77")],
        )

    request = AlterConfigsRequest(resources=[setting("2"), setting(""), setting("1")])
    response = await bench.ask(request, 2, AlterConfigsResponse)
    assert [(r.resource_name, r.error_code) for r in response.responses] == [
        ("2", ErrorCode.INVALID_REQUEST),
        ("", 0),
        ("1", 0),
    ]
    assert "broker 1" in str(response.responses[0].error_message)
    only = AlterConfigsRequest(resources=[setting("x")])
    (rejected,) = (await bench.ask(only, 2, AlterConfigsResponse)).responses
    assert rejected.error_code == ErrorCode.INVALID_REQUEST
