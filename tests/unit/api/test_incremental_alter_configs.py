import logging

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.unit.broker.bench import Bench, batch_of, run

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER = 2, 4, 8


async def alter(
    bench: Bench,
    resource: tuple[int, str],
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> int:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    AlterableConfig(name=name, config_operation=operation, value=value)
                    for name, operation, value in changes
                ],
            )
        ],
        validate_only=validate_only,
    )
    response = await bench.ask(request, version, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


@pytest.mark.parametrize("version", range(2))
def test_topics_change_while_in_use(version: int) -> None:
    async def scenario(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a", retention_ms="1000")
        topic = (TOPIC, "a")
        assert await alter(bench, topic, ("max.message.bytes", SET, "100"), version=version) == 0
        assert partition.config.max_message_bytes == 100
        assert partition.config.retention_ms == 1000
        assert (
            await alter(bench, topic, ("cleanup.policy", APPEND, "compact"), version=version) == 0
        )
        policies = (partition.config.cleanup_compact, partition.config.cleanup_delete)
        assert policies == (True, True)
        assert await alter(bench, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
        policies = (partition.config.cleanup_compact, partition.config.cleanup_delete)
        assert policies == (True, False)
        assert await alter(bench, topic, ("retention.ms", DELETE, None)) == 0
        assert partition.config.retention_ms > 1000
        assert await alter(bench, topic, ("retention.ms", SET, "x")) == ErrorCode.invalid_config

    run(scenario)


def test_a_flush_setting_takes_effect_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        assert await alter(bench, (TOPIC, "a"), ("flush.messages", SET, "1")) == 0
        batch = memoryview(bytearray(batch_of(b"x")))
        result = partition.append(batch, now_ms=bench.broker.clock.wall_ms())
        assert partition.high_watermark == 0
        await partition.wait_committed(result.end_offset, timeout_ms=1000)

    run(scenario)


def test_brokers_settings_reach_their_topics() -> None:
    async def scenario(bench: Bench) -> None:
        (partition,) = await bench.create_topic("a")
        (own,) = await bench.create_topic("own", retention_ms="1")
        assert await alter(bench, (BROKER, ""), ("log.retention.ms", SET, "77000")) == 0
        assert (partition.config.retention_ms, own.config.retention_ms) == (77000, 1)
        assert await alter(bench, (BROKER, "1"), ("log.retention.ms", SET, "88000")) == 0
        assert partition.config.retention_ms == 88000
        refused = await alter(bench, (BROKER, "1"), ("node.id", SET, "5"))
        assert refused == ErrorCode.invalid_request

    run(scenario)


def test_loggers_change_in_this_process_only() -> None:
    name = "lograft.broker.log_manager"
    logger = logging.getLogger(name)

    async def scenario(bench: Bench) -> None:
        me = (LOGGER, "1")
        before = bench.controller.image.offset
        assert await alter(bench, me, (name, SET, "DEBUG"), validate_only=True) == 0
        assert logger.level == logging.NOTSET
        assert await alter(bench, me, (name, SET, "DEBUG")) == 0
        assert logger.level == logging.DEBUG
        assert await alter(bench, me, (name, DELETE, None)) == 0
        assert logger.level == logging.NOTSET
        assert bench.controller.image.offset == before
        assert await alter(bench, me, (name, SET, "LOUD")) == ErrorCode.invalid_config
        assert await alter(bench, me, ("no.such", SET, "INFO")) == ErrorCode.invalid_config
        assert await alter(bench, me, ("root", DELETE, None)) == ErrorCode.invalid_request
        assert await alter(bench, me, (name, APPEND, "INFO")) == ErrorCode.invalid_request
        other = await alter(bench, (LOGGER, "2"), (name, SET, "INFO"))
        assert other == ErrorCode.invalid_request
        assert "no.such" not in logging.root.manager.loggerDict

    run(scenario)


def test_no_controller() -> None:
    async def scenario(bench: Bench) -> None:
        bench.controller.down = True
        refused = await alter(bench, (TOPIC, "a"), ("retention.ms", SET, "1"))
        assert refused == ErrorCode.request_timed_out

    run(scenario)
