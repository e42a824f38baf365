import logging
from collections.abc import Collection

import pytest

from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode, InvalidConfig
from lograft.model.settings.broker import BrokerConfig
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, batch_of, run

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def alter(
    bench: Bench,
    resource: tuple[int, str],
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
    role: str = "broker",
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
    response = await bench.ask(request, version, IncrementalAlterConfigsResponse, role=role)
    return response.responses[0].error_code


@pytest.mark.parametrize("version", range(2))
@scenario(run)
async def test_topic_settings_change_while_in_use(bench: Bench, /, version: int) -> None:
    (partition,) = await bench.create_topic("a", retention_ms="1000")
    topic = (TOPIC, "a")
    assert await alter(bench, topic, ("max.message.bytes", SET, "100"), version=version) == 0
    assert partition.config.max_message_bytes == 100
    assert partition.config.retention_ms == 1000
    assert await alter(bench, topic, ("cleanup.policy", APPEND, "compact"), version=version) == 0
    policies = (partition.config.cleanup_compact, partition.config.cleanup_delete)
    assert policies == (True, True)
    assert await alter(bench, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
    policies = (partition.config.cleanup_compact, partition.config.cleanup_delete)
    assert policies == (True, False)
    assert await alter(bench, topic, ("retention.ms", DELETE, None)) == 0
    assert partition.config.retention_ms > 1000
    assert await alter(bench, topic, ("retention.ms", SET, "x")) == ErrorCode.INVALID_CONFIG


@scenario(run)
async def test_flush_setting_takes_effect_immediately(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    assert await alter(bench, (TOPIC, "a"), ("flush.messages", SET, "1")) == 0
    batch = memoryview(bytearray(batch_of(b"x")))
    result = partition.append(batch, now_ms=bench.broker.clock.wall_ms())
    assert partition.high_watermark == 0
    await partition.wait_committed(result.end_offset, timeout_ms=1000)


@scenario(run)
async def test_broker_settings_apply_to_topics(bench: Bench, /) -> None:
    (partition,) = await bench.create_topic("a")
    (own,) = await bench.create_topic("own", retention_ms="1")
    assert await alter(bench, (BROKER, ""), ("log.retention.ms", SET, "77000")) == 0
    assert (partition.config.retention_ms, own.config.retention_ms) == (77000, 1)
    assert await alter(bench, (BROKER, "1"), ("log.retention.ms", SET, "88000")) == 0
    assert partition.config.retention_ms == 88000
    rejected = await alter(bench, (BROKER, "1"), ("node.id", SET, "5"))
    assert rejected == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("role", ["broker", "controller"])
@scenario(run)
async def test_node_checks_files_in_its_own_settings(bench: Bench, /, role: str) -> None:
    """On the listener of the active controller too."""
    checked: list[tuple[str, ...]] = []

    def reject(config: BrokerConfig, named: Collection[str]) -> None:
        checked.append(tuple(named))
        raise InvalidConfig("no such file")

    bench.broker.metadata.file_checks.append(reject)
    name = "listener.name.x.ssl.keystore.location"
    change = (name, SET, "/nowhere")
    assert await alter(bench, (BROKER, "1"), change, role=role) == ErrorCode.INVALID_REQUEST
    assert set(checked) == {(name,)}
    assert bench.broker.image.config_of(ResourceType.BROKER, "1") == {}


@pytest.mark.parametrize("resource", ["", "2"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("log.cleaner.dedupe.buffer.size", "1000"), ("max.connections.per.ip", "0")],
)
@scenario(run)
async def test_controller_rejects_values_that_no_broker_could_apply(
    bench: Bench, /, resource: str, name: str, text: str
) -> None:
    change = (name, SET, text)
    code = await alter(bench, (BROKER, resource), change, role="controller")
    assert code == ErrorCode.INVALID_REQUEST
    assert bench.broker.image.config_of(ResourceType.BROKER, resource) == {}


@scenario(run)
async def test_controller_checks_a_broker_with_the_cluster_defaults(bench: Bench, /) -> None:
    overrides = ("max.connections.per.ip.overrides", SET, "h:1")
    limit = ("max.connections.per.ip", SET, "0")
    assert await alter(bench, (BROKER, ""), overrides, role="controller") == 0
    code = await alter(bench, (BROKER, "2"), limit, role="controller")
    assert code == ErrorCode.BROKER_ID_NOT_REGISTERED, "the value itself is valid"


@pytest.mark.parametrize("resource", [(TOPIC, "a"), (BROKER, ""), (METRICS, "m"), (GROUP, "g")])
@scenario(run)
async def test_variables_in_dynamic_values_are_rejected(
    bench: Bench, /, resource: tuple[int, str]
) -> None:
    names = {TOPIC: "cleanup.policy", BROKER: "custom", METRICS: "metrics"}

    await bench.create_topic("a")
    name = names.get(resource[0], "consumer.session.timeout.ms")
    for text in ("${env:X}", "a ${x}"):
        assert await alter(bench, resource, (name, SET, text)) in (
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REQUEST,
        )


def test_a_broker_reports_settings_without_effect_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        changes = [
            ("num.io.threads", SET, "16"),
            ("background.threads", SET, "12"),
            ("log.retention.ms", SET, "5000"),
        ]
        assert await alter(bench, (BROKER, ""), *changes, validate_only=True) == 0
        assert not caplog.records
        assert await alter(bench, (BROKER, ""), *changes) == 0
        (warning,) = (record.getMessage() for record in caplog.records)
        assert "background.threads, num.io.threads" in warning
        assert "log.retention.ms" not in warning
        # Unchanged settings do not cause another warning.
        assert await alter(bench, (BROKER, ""), ("log.retention.ms", SET, "6000")) == 0
        assert len(caplog.records) == 1

    with caplog.at_level(logging.WARNING):
        run(scenario)


@pytest.mark.parametrize(
    ("resource", "setting", "code"),
    [
        ((TOPIC, "a"), ("remote.storage.enable", "true"), ErrorCode.INVALID_CONFIG),
        ((BROKER, "1"), ("principal.builder.class", "x.Y"), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1"), ("sasl.kerberos.service.name", "${env:X}"), ErrorCode.INVALID_REQUEST),
        ((BROKER, ""), ("config.providers", "env"), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "a"), ("remote.storage.enable", "false"), ErrorCode.NONE),
    ],
)
@scenario(run)
async def test_an_unsupported_setting_is_rejected(
    bench: Bench, /, resource: tuple[int, str], setting: tuple[str, str], code: ErrorCode
) -> None:
    await bench.create_topic("a")
    name, value = setting
    assert await alter(bench, resource, (name, SET, value)) == code


@scenario(run)
async def test_log_levels_change_in_this_process_only(bench: Bench, /) -> None:
    name = "lograft.broker.logs.log_manager"
    logger = logging.getLogger(name)

    me = (LOGGER, "1")
    before = bench.controller.image.offset
    assert await alter(bench, me, (name, SET, "DEBUG"), validate_only=True) == 0
    assert logger.level == logging.NOTSET
    assert await alter(bench, me, (name, SET, "DEBUG")) == 0
    assert logger.level == logging.DEBUG
    assert await alter(bench, me, (name, DELETE, None)) == 0
    assert logger.level == logging.NOTSET
    assert bench.controller.image.offset == before
    assert await alter(bench, me, (name, SET, "LOUD")) == ErrorCode.INVALID_CONFIG
    assert await alter(bench, me, ("no.such", SET, "INFO")) == ErrorCode.INVALID_CONFIG
    assert await alter(bench, me, ("root", DELETE, None)) == ErrorCode.INVALID_REQUEST
    assert await alter(bench, me, (name, APPEND, "INFO")) == ErrorCode.INVALID_REQUEST
    other = await alter(bench, (LOGGER, "2"), (name, SET, "INFO"))
    assert other == ErrorCode.INVALID_REQUEST
    assert "no.such" not in logging.root.manager.loggerDict


@scenario(run)
async def test_request_without_controller_is_rejected(bench: Bench, /) -> None:
    bench.controller.down = True
    rejected = await alter(bench, (TOPIC, "a"), ("retention.ms", SET, "1"))
    assert rejected == ErrorCode.REQUEST_TIMED_OUT
