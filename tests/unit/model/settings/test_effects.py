import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker import keys_of
from lograft.model.settings.effects import (
    check_supported,
    describe_effect,
    find_without_effect,
    is_supported,
)
from lograft.model.settings.keys import USED, NoEffect, PartlyUsed, Unsupported
from lograft.model.settings.topic import TOPIC_CONFIGS


def find(values: dict[str, str]) -> tuple[str, ...]:
    return find_without_effect(keys_of(values), values)


def test_settings_without_effect_are_found_by_name() -> None:
    values = {
        "num.io.threads": "16",
        "num.network.threads": " 3 ",
        "background.threads": "10",
        "num.partitions": "5",
        "unknown": "1",
        "listener.name.internal.sasl.jaas.config": "secret",
        "metric.reporters": "",
        "listener.name.internal.max.connections": "5",
        "listener.name.internal.ssl.allow.dn.changes": "true",
        "listener.name.internal.max.connections.per.ip": "5",
        "listener.name.EXTERNAL.ssl.client.auth": "required",
        "listener.name.9.ssl.client.auth": "required",
        "listener.name.internal.log.retention.ms": "5",
        "group.coordinator.rebalance.protocols": "classic,share, streams",
    }
    assert find(values) == (
        "group.coordinator.rebalance.protocols=share,streams",
        "listener.name.EXTERNAL.ssl.client.auth",
        "listener.name.internal.log.retention.ms",
        "listener.name.internal.max.connections.per.ip",
        "listener.name.internal.sasl.jaas.config",
        "metric.reporters",
        "num.io.threads",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("principal.builder.class", "org.example.Builder"),
        ("remote.log.storage.system.enable", "TRUE"),
        ("listener.name.internal.ssl.engine.factory.class", "org.example.Factory"),
    ],
)
def test_unsupported_setting_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name} is not supported by Lograft: .*Remove"):
        check_supported(keys_of([name]), {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", ""),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("remote.log.storage.system.enable", "false"),
        (
            "principal.builder.class",
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        ),
        ("num.io.threads", "16"),
        ("num.partitions", "5"),
    ],
)
def test_disabled_and_default_values_are_accepted(name: str, value: str) -> None:
    check_supported(keys_of([name]), {name: value})


def test_invalid_stored_value_has_no_effect_to_report() -> None:
    values = {"local.retention.ms": "x", "segment.bytes": "1000"}
    assert find_without_effect(TOPIC_CONFIGS, values) == ()
    assert is_supported(TOPIC_CONFIGS["remote.storage.enable"], "maybe")


def test_default_of_a_partly_used_list_is_not_reported() -> None:
    assert find({"group.coordinator.rebalance.protocols": "classic,consumer,streams"}) == ()
    assert find({"group.coordinator.rebalance.protocols": "consumer,classic"}) == ()


def test_effects_are_described_in_a_sentence() -> None:
    assert describe_effect(USED) is None
    assert describe_effect(NoEffect("there is none")) == "No effect in Lograft: there is none."
    partly = PartlyUsed(("share", "streams"), "there are none")
    assert describe_effect(partly) == "No effect in Lograft of share and streams: there are none."
    assert describe_effect(Unsupported("no")) == "Not supported by Lograft: no."
