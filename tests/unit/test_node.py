import asyncio
import logging
from pathlib import Path
from typing import cast

import pytest

from lograft.cli.node_runner import embedded_properties
from lograft.metadata.types import ControllerResult
from lograft.model.errors import InvalidConfig, LograftError
from lograft.model.seams import Runtime
from lograft.model.settings.broker import BROKER_CONFIGS, broker_config
from lograft.model.settings.effects import NO_EFFECT_WARNING
from lograft.model.settings.keys import ConfigKey, ConfigType, Unsupported
from lograft.node import Node, run
from lograft.testing.cluster import Cluster
from lograft.wire.records.client_quota_record import ClientQuotaRecord, EntityData

UNSUPPORTED = [key for key in BROKER_CONFIGS.values() if isinstance(key.effect, Unsupported)]


@pytest.mark.parametrize("key", UNSUPPORTED, ids=lambda key: key.name)
def test_a_node_rejects_an_unsupported_setting_by_name(key: ConfigKey) -> None:
    value = "true" if key.type is ConfigType.BOOLEAN else "org.example.Something"
    config = broker_config(embedded_properties("data", 9092) | {key.name: value})
    with pytest.raises(InvalidConfig, match=f"{key.name} is not supported by Lograft: .+ Remove"):
        Node(config, cast(Runtime, None), halt=lambda reason: None)


def node_of(**settings: str) -> Node:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    config = broker_config(embedded_properties("data", 9092) | values)
    return Node(config, cast(Runtime, None), halt=lambda reason: None)


BROKER_ONLY = {
    "process_roles": "broker",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller_quorum_bootstrap_servers": "localhost:9093",
}


@pytest.mark.parametrize(
    "settings",
    [
        {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,OTHER:SASL_SSL"},
        # Only the first controller listener is used by brokers.
        BROKER_ONLY
        | {
            "controller_listener_names": "CONTROLLER,OLD",
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,OLD:SASL_SSL",
        },
    ],
)
def test_a_mapping_to_sasl_that_no_used_listener_has_is_accepted(
    settings: dict[str, str],
) -> None:
    node_of(**settings)


def test_a_node_logs_settings_without_effect_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"num.io.threads": "16", "sasl.jaas.config": "secret", "num.partitions": "3"}
    with caplog.at_level("WARNING"), Cluster(properties=settings):
        pass
    (record,) = (record for record in caplog.records if "no effect" in record.message)
    assert record.message.endswith(": num.io.threads, sasl.jaas.config")


def test_a_node_warns_about_stored_metadata_that_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Apache Kafka may have written the metadata."""
    quota = ClientQuotaRecord(
        entity=[EntityData(entity_type="ip", entity_name="gateway")],
        key="connection_creation_rate",
        value=10.0,
    )

    async def store_quota(node: Node) -> None:
        controller = node.shared.local_controller
        assert controller is not None
        await controller.submit(lambda _: ControllerResult((quota,), None))

    with Cluster() as cluster:
        cluster.create_topic("orders", configs={"local.retention.ms": "5"})
        cluster.call(1, store_quota)
        cluster.stop(1)
        caplog.clear()
        cluster.start(1)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in warnings if "no effect" in text] == [
        NO_EFFECT_WARNING % "local.retention.ms of 1 topic (orders)"
    ]
    assert [
        text
        for text in warnings
        if "connection quotas of gateway are stored but not enforced" in text
    ]


def test_a_node_that_halts_during_its_start_exits_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor must be able to distinguish this from a requested stop."""

    async def start(node: Node) -> None:
        node._halt("its disk is full")
        await asyncio.Event().wait()

    monkeypatch.setattr(Node, "start", start)
    config = broker_config(embedded_properties(str(tmp_path), 0))
    with pytest.raises(LograftError, match="the node is stopping: its disk is full"):
        run(config, lambda node: None)


def test_http_without_encryption_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "lograft.http.listeners": "http://0.0.0.0:0,http://localhost:0",
        "lograft.http.authentication.enable": "true",
        "listener.name.http.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with Cluster(properties=settings):
        pass
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.name == "lograft.node" and record.levelno == logging.WARNING
    ]
    assert warnings == [
        "the HTTP listener http://0.0.0.0:0 does not encrypt: passwords and tokens can be read on"
        " the network; use an https URL unless the network is trusted"
    ]
