"""Settings as in Apache Kafka: the output of DescribeConfigs, variables in the configuration
file."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lograft.metadata.types import ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.settings.keys import AlterOperation
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
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
    IncrementalAlterConfigsResponse,
)
from tests.compatibility.librdkafka import create_topic
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import NODE_ID, Kind, Server, kinds_under_test

pytestmark = pytest.mark.interop
PATIENCE_SECONDS = 10.0


def describe(
    server: Server, resource_type: ResourceType, name: str, keys: list[str] | None
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=keys
            )
        ]
    )
    with connect(server) as connection:
        response = ask(connection, request, 4)
    assert isinstance(response, DescribeConfigsResponse)
    assert response.results[0].error_code == 0, response
    return response.results[0]


@pytest.mark.parametrize("resource_type", ResourceType)
def test_an_empty_list_of_keys_selects_all_settings(
    server: Server, resource_type: ResourceType, new_topic: Callable[[], str]
) -> None:
    name = str(NODE_ID)
    if resource_type is ResourceType.TOPIC:
        name = new_topic()
        create_topic(server.bootstrap, name)
    every_setting = describe(server, resource_type, name, None).configs
    assert every_setting
    with_empty_list = describe(server, resource_type, name, []).configs
    assert {each.name for each in with_empty_list} == {each.name for each in every_setting}


def alter(server: Server, resource_type: ResourceType, resource: str, name: str, value: str) -> int:
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource_type,
                resource_name=resource,
                configs=[
                    AlterableConfig(name=name, config_operation=AlterOperation.SET, value=value)
                ],
            )
        ]
    )
    with connect(server) as connection:
        response = ask(connection, request, 1)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def test_tiered_storage_that_the_cluster_does_not_have_is_rejected(
    server: Server, new_topic: Callable[[], str]
) -> None:
    topic_name = new_topic()
    with connect(server) as connection:
        response = ask(
            connection,
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=topic_name,
                        num_partitions=1,
                        replication_factor=1,
                        configs=[CreatableTopicConfig(name="remote.storage.enable", value="true")],
                    )
                ],
                timeout_ms=5000,
            ),
            7,
        )
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG
    create_topic(server.bootstrap, topic_name)
    for value, code in (("true", ErrorCode.INVALID_CONFIG), ("false", ErrorCode.NONE)):
        found = alter(server, ResourceType.TOPIC, topic_name, "remote.storage.enable", value)
        assert found == code


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.log.storage.system.enable", "true"),
        ("authorizer.class.name", "org.example.Authorizer"),
        ("principal.builder.class", "org.example.Builder"),
        ("ssl.engine.factory.class", "org.example.Factory"),
        ("log.cleaner.threads", "${file:/secrets:threads}"),
    ],
)
def test_settings_that_a_broker_cannot_apply_are_rejected(
    server: Server, name: str, value: str
) -> None:
    code = alter(server, ResourceType.BROKER, str(NODE_ID), name, value)
    assert code == ErrorCode.INVALID_REQUEST


def test_a_setting_of_a_share_group_is_stored(server: Server, new_topic: Callable[[], str]) -> None:
    """Also in Lograft, where it has no effect yet."""
    group = new_topic()
    name = "share.record.lock.duration.ms"
    assert alter(server, ResourceType.GROUP, group, name, "20000") == ErrorCode.NONE
    # The broker answers the change before it has replayed the record.
    deadline = time.monotonic() + PATIENCE_SECONDS
    shown = None
    while shown != "20000" and time.monotonic() < deadline:
        (config,) = describe(server, ResourceType.GROUP, group, [name]).configs
        shown = config.value
    assert shown == "20000"


@pytest.mark.parametrize("kind", kinds_under_test())
def test_variables_in_the_configuration_file(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both start with the same file; its passwords are not shown."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "node.properties").write_text("rack=rack 1\npassword=hidden treasure\n")
    (secrets / "partitions").write_text("7\n")
    monkeypatch.setenv("LOGRAFT_TEST_HOURS", "5")
    java = "org.apache.kafka.common.config.provider"
    settings = {
        "config.providers": "file,dir,env",
        "config.providers.file.class": f"{java}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.dir.class": f"{java}.DirectoryConfigProvider",
        "config.providers.env.class": f"{java}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "LOGRAFT_.*",
        "broker.rack": f"<${{file:{secrets}/node.properties:rack}}>",
        "num.partitions": f"1${{dir:{secrets}:partitions}}",
        "log.retention.hours": "${env:LOGRAFT_TEST_HOURS}",
        "ssl.key.password": f"${{file:{secrets}/node.properties:password}}",
        "sasl.kerberos.service.name": "${vault:secret:name}",
    }
    with Server.of(kind, tmp_path / "node", settings=settings).started() as server:
        shown = {
            config.name: config.value
            for config in describe(server, ResourceType.BROKER, str(NODE_ID), []).configs
        }
        assert {name: shown[name] for name in settings} == {
            "config.providers": "file,dir,env",
            "broker.rack": "<rack 1>",
            "num.partitions": "17",
            "log.retention.hours": "5",
            "ssl.key.password": None,
            # There is no provider with this name, so it is plain text.
            "sasl.kerberos.service.name": "${vault:secret:name}",
            # Kafka treats unknown names as secrets.
            **{name: None for name in settings if name.startswith("config.providers.")},
        }
    assert "hidden treasure" not in server.log_path.read_text()
