import pytest

from lograft.metadata.configs import incremental_alter_configs
from lograft.model.errors import ErrorCode
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.scenarios import scenario
from tests.unit.broker.bench import Bench, run

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


async def describe(
    bench: Bench,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = await bench.ask(request, version, DescribeConfigsResponse)
    return response.results[0]


async def alter(bench: Bench, resource_type: int, name: str, key: str, value: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=0, value=value)],
            )
        ]
    )
    reply = await bench.controller.submit(
        lambda image: incremental_alter_configs(image, request, config=bench.config)
    )
    assert reply.responses[0].error_code == 0, reply


@pytest.mark.parametrize("version", range(1, 5))
@scenario(run, log_segment_bytes="16777216")
async def test_topic_settings_have_their_sources(bench: Bench, /, version: int) -> None:
    await bench.create_topic("a", retention_ms="1000")
    result = await describe(bench, TOPIC, "a", version=version)
    assert result.error_code == 0
    configs = {config.name: config for config in result.configs}
    assert len(configs) > 25
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert configs["cleanup.policy"].config_source == 5
    assert configs["segment.bytes"].value == "16777216"
    assert configs["segment.bytes"].config_source == 4
    if version >= 3:
        assert configs["retention.ms"].config_type == 5


@scenario(run)
async def test_requested_keys_are_returned_with_synonyms_and_documentation(bench: Bench, /) -> None:
    await bench.create_topic("a", retention_ms="1000")
    result = await describe(bench, TOPIC, "a", ["retention.ms"], synonyms=True, documentation=True)
    (config,) = result.configs
    strongest = config.synonyms[0]
    assert (strongest.name, strongest.source) == ("retention.ms", 1)
    assert config.documentation


@pytest.mark.parametrize(
    ("resource_type", "name"),
    [(TOPIC, "a"), (BROKER, "1"), (LOGGER, "1"), (METRICS, "m"), (GROUP, "g")],
)
@scenario(run)
async def test_an_empty_list_of_keys_selects_all_settings(
    bench: Bench, /, resource_type: int, name: str
) -> None:
    await bench.create_topic("a")
    all_settings = await describe(bench, resource_type, name, None)
    assert all_settings.configs
    assert await describe(bench, resource_type, name, []) == all_settings


@pytest.mark.parametrize(
    ("resource_type", "name", "setting", "note"),
    [
        (
            TOPIC,
            "a",
            "local.retention.ms",
            "No effect in Lograft: tiered storage is not implemented yet.",
        ),
        (TOPIC, "a", "remote.storage.enable", "Not supported by Lograft: tiered storage"),
        (BROKER, "1", "num.io.threads", "No effect in Lograft: one event loop serves"),
        (BROKER, "1", "principal.builder.class", "Not supported by Lograft: Java classes"),
        (GROUP, "g", "share.session.timeout.ms", "No effect in Lograft: share groups"),
    ],
)
@scenario(run)
async def test_documentation_includes_the_effect_in_lograft(
    bench: Bench, /, resource_type: int, name: str, setting: str, note: str
) -> None:
    await bench.create_topic("a")
    result = await describe(bench, resource_type, name, [setting], documentation=True)
    (config,) = result.configs
    assert note in (config.documentation or "")


@scenario(run)
async def test_settings_of_a_broker_and_cluster_defaults(bench: Bench, /) -> None:
    await alter(bench, BROKER, "", "log.retention.ms", "5000")
    result = await describe(bench, BROKER, "1", ["log.retention.ms", "node.id"])
    values = {config.name: config for config in result.configs}
    assert (values["log.retention.ms"].value, values["log.retention.ms"].config_source) == (
        "5000",
        3,
    )
    assert values["node.id"].read_only
    assert bench.broker.config.topic_defaults.retention_ms == 5000
    everywhere = await describe(bench, BROKER, "")
    assert [(c.name, c.value) for c in everywhere.configs] == [("log.retention.ms", "5000")]
    other = await describe(bench, BROKER, "2")
    assert other.error_code == ErrorCode.INVALID_REQUEST


@scenario(run)
async def test_settings_of_loggers_client_metrics_and_groups(bench: Bench, /) -> None:
    loggers = await describe(bench, LOGGER, "1")
    assert "lograft.broker.logs.log_manager" in {config.name for config in loggers.configs}
    await alter(bench, METRICS, "sub", "interval.ms", "1000")
    metrics = await describe(bench, METRICS, "sub")
    assert [(c.name, c.value, c.config_source) for c in metrics.configs] == [
        ("interval.ms", "1000", 7),
        ("match", "", 5),
        ("metrics", "", 5),
    ]


@scenario(run, group_consumer_session_timeout_ms="50000")
async def test_group_settings_default_to_the_broker_settings(bench: Bench, /) -> None:
    await alter(bench, GROUP, "g", "share.delivery.count.limit", "7")
    group = await describe(bench, GROUP, "g", synonyms=True)
    found = {c.name: (c.value, c.config_source) for c in group.configs}
    assert len(found) == 17
    assert found["share.delivery.count.limit"] == ("7", 8)
    assert found["consumer.session.timeout.ms"] == ("50000", 4)
    assert found["consumer.heartbeat.interval.ms"] == ("5000", 5)
    assert found["share.isolation.level"] == ("read_uncommitted", 5)
    (limit,) = [c for c in group.configs if c.name == "share.delivery.count.limit"]
    assert [(s.name, s.value, s.source) for s in limit.synonyms] == [
        ("share.delivery.count.limit", "7", 8),
        ("group.share.delivery.count.limit", "5", 5),
    ]


@scenario(run)
async def test_unknown_resources_are_rejected(bench: Bench, /) -> None:
    unknown = await describe(bench, TOPIC, "b")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    illegal = await describe(bench, TOPIC, "bad name")
    assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await describe(bench, 99, "x")).error_code == ErrorCode.INVALID_REQUEST
    assert (await describe(bench, GROUP, "")).error_code == ErrorCode.INVALID_REQUEST


@scenario(run, ssl_key_password="hunter2")
async def test_passwords_are_not_returned(bench: Bench, /) -> None:
    result = await describe(bench, BROKER, "1", synonyms=True)
    assert "hunter2" not in repr(result)
    (secret,) = [c for c in result.configs if c.name == "ssl.key.password"]
    assert secret.is_sensitive
    assert secret.value is None


@scenario(run)
async def test_duplicate_resource_is_described_once(bench: Bench, /) -> None:
    resources = [DescribeConfigsResource(resource_type=BROKER, resource_name="1")] * 3
    request = DescribeConfigsRequest(resources=resources)
    response = await bench.ask(request, 4, DescribeConfigsResponse)
    assert len(response.results) == 1
