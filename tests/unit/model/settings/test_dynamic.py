"""Dynamic settings: which values are rejected, and which are skipped without affecting the
others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.listeners import SecurityProtocol
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.model.settings.dynamic import (
    CHANGE_CHECKS,
    ResolvedConfig,
    check_change,
    check_without_file,
    resolve_dynamic,
    validate_dynamic,
    value_problem,
)
from lograft.model.settings.keys import VALUE_LENGTH_MAX, ConfigSource

BROKER, DEFAULT = ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER
LISTENERS = "PLAINTEXT://:9092,CONTROLLER://:9093"
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"


def node(**settings: str) -> BrokerConfig:
    return broker_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": LISTENERS,
            "listener.security.protocol.map": MAP,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": "/data",
        }
        | settings
    )


def skipped(static: BrokerConfig, default: dict[str, str], broker: dict[str, str]) -> set[str]:
    resolved = resolve_dynamic(static, default=default, broker=broker)
    return {f"{value.source.name}:{value.name}" for value in resolved.skipped}


def rejection(
    broker: dict[str, str],
    *,
    static: BrokerConfig | None = None,
    stored: dict[str, str] | None = None,
    named: list[str] | None = None,
) -> str | None:
    """Returns why the change from `stored` to `broker` is rejected."""
    static = static or node()
    current = resolve_dynamic(static, default={}, broker=stored or {})
    try:
        check_change(
            static,
            current,
            default={},
            broker=broker,
            named=[(BROKER, name) for name in (list(broker) if named is None else named)],
            checks=CHANGE_CHECKS,
        )
    except InvalidInput as error:
        return str(error)
    return None


def test_invalid_value_does_not_affect_the_others() -> None:
    resolved = resolve_dynamic(
        node(),
        default={"message.max.bytes": "x", "log.retention.ms": "5", "node.id": "9"},
        broker={"log.cleaner.dedupe.buffer.size": "1000", "num.io.threads": "11"},
    )
    assert resolved.config.topic_defaults.retention_ms == 5
    assert resolved.config.num_io_threads == 11
    assert resolved.config.log_cleaner_dedupe_buffer_size == 128 << 20
    assert resolved.config.node_id == 1
    reasons = {(value.source, value.name): value.reason for value in resolved.skipped}
    assert reasons.keys() == {
        (DEFAULT, "message.max.bytes"),
        (DEFAULT, "node.id"),
        (BROKER, "log.cleaner.dedupe.buffer.size"),
    }
    assert "Not a number" in reasons[DEFAULT, "message.max.bytes"]
    assert "1 MiB" in reasons[BROKER, "log.cleaner.dedupe.buffer.size"]


def test_fewest_contradicting_values_are_skipped() -> None:
    # Either of the two alone would be valid with the other's default; this broker's is skipped
    # first.
    threads, buffer = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
    assert skipped(node(), {threads: "4"}, {buffer: "2000000"}) == {f"DYNAMIC_BROKER:{buffer}"}
    assert skipped(node(), {buffer: "2000000"}, {threads: "4"}) == {f"DYNAMIC_BROKER:{threads}"}
    # The cluster's value is invalid too: it would apply if only this broker's value were skipped.
    assert skipped(node(), {buffer: "5"}, {buffer: "6"}) == {
        f"DYNAMIC_BROKER:{buffer}",
        f"DYNAMIC_DEFAULT_BROKER:{buffer}",
    }
    # This broker's value makes the invalid cluster value irrelevant.
    assert skipped(node(), {buffer: "5"}, {buffer: "3000000"}) == set()


def test_unknown_name_is_kept() -> None:
    resolved = resolve_dynamic(node(), default={"custom": "1"}, broker={})
    assert resolved.config.dynamic_default == {"custom": "1"}
    assert resolved.skipped == ()


def test_listeners_change_and_advertised_listeners_do_not() -> None:
    values = {
        "listeners": f"{LISTENERS},EXTRA://:9094",
        "listener.security.protocol.map": f"{MAP},EXTRA:PLAINTEXT",
    }
    config, skipped_values = resolve_dynamic(node(), default={}, broker=values)
    assert skipped_values == ()
    assert [endpoint.name for endpoint in config.listeners] == ["PLAINTEXT", "CONTROLLER", "EXTRA"]
    assert config.listener_security["EXTRA"] is SecurityProtocol.PLAINTEXT
    assert [endpoint.name for endpoint in config.advertised_listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    "listener_map",
    [
        MAP.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:SSL"),
        "PLAINTEXT:PLAINTEXT",
        "rubbish",
        "PLAINTEXT:NOSUCH,CONTROLLER:PLAINTEXT",
    ],
)
def test_invalid_protocol_maps_are_skipped(listener_map: str) -> None:
    name = "listener.security.protocol.map"
    assert skipped(node(), {}, {name: listener_map}) == {f"DYNAMIC_BROKER:{name}"}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ssl.keystore.location", "/store.pem", "only per-listener"),
        ("max.connections", "0", "at least 1"),
        ("listener.name.x.max.connection.creation.rate", "0", "at least 1"),
        ("max.connections.per.ip.overrides", "x", "host:count"),
        ("metric.reporters", "no.such.Reporter", "unknown class"),
        ("principal.builder.class", "no.such.Builder", "not supported"),
        ("listener.name.x.ssl.engine.factory.class", "no.such.Factory", "not supported"),
        ("log.flush.interval.ms", "-5", "log.flush.interval.ms: Value must be at least 0"),
        ("sasl.kerberos.service.name", "${file:/secrets:name}", "in the configuration file only"),
        ("listener.name.x.ssl.key.password", "a${env:SECRET}", "in the configuration file only"),
        ("no.such.setting", "${env:SECRET}", "in the configuration file only"),
        ("no.such.setting", "a ${HOME} b", "in the configuration file only"),
        ("no.such.setting", "x" * (VALUE_LENGTH_MAX + 1), "the limit is"),
        ("max.connections.per.ip.overrides", "127.0.0.1:\N{SUPERSCRIPT TWO}", "host:count"),
        ("max.connections.per.ip.overrides", "h:2147483648", "host:count"),
        ("log.cleaner.io.max.bytes.per.second", "1_000", "Not a number"),
        ("log.cleaner.io.max.bytes.per.second", "inf", "Not a number"),
        ("config.providers", "env", "cannot be set dynamically"),
        ("config.providers.env.class", "Provider", "cannot be set dynamically"),
    ],
)
def test_values_that_no_broker_applies_are_rejected(name: str, text: str, reason: str) -> None:
    assert reason in (value_problem(name, text, whole_cluster=False) or "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listener.name.x.max.connections", "5"),
        ("listener.name.x.num.network.threads", "5"),
        ("metric.reporters", ""),
        ("log.retention.ms", "-2"),
        ("no.such.setting", "$HOME {x}"),
        ("no.such.setting", "x" * VALUE_LENGTH_MAX),
        ("max.connections.per.ip.overrides", "h:2147483647"),
        ("log.cleaner.io.max.bytes.per.second", "1.5E7"),
        ("log.cleaner.io.max.bytes.per.second", "Infinity"),
    ],
)
def test_valid_cluster_values_are_accepted(name: str, text: str) -> None:
    assert value_problem(name, text, whole_cluster=True) is None


@pytest.mark.parametrize(
    "layout",
    [
        {"listener.security.protocol.map": "rubbish"},
        {"listeners": "PLAINTEXT://127.0.0.1:1,X://a:1"},
        {"listeners": "rubbish", "listener.security.protocol.map": f"{MAP},X:PLAINTEXT"},
    ],
)
def test_invalid_layout_does_not_hide_other_invalid_values(layout: dict[str, str]) -> None:
    broker = {"log.cleaner.dedupe.buffer.size": "1000", "num.io.threads": "11"}
    resolved = resolve_dynamic(
        node(), default={"max.connections.per.ip": "0"}, broker=broker | layout
    )
    assert {value.name for value in resolved.skipped} == {
        "log.cleaner.dedupe.buffer.size",
        "max.connections.per.ip",
        next(iter(layout)),
    }
    assert resolved.config.num_io_threads == 11
    assert rejection(broker | layout) is not None


def test_each_skipped_value_has_its_own_reason() -> None:
    layout = {
        "listener.security.protocol.map": "rubbish",
        "listeners": "PLAINTEXT://:9,CONTROLLER://:9",
    }
    resolved = resolve_dynamic(node(), default={}, broker=layout)
    reasons = {value.name: value.reason for value in resolved.skipped}
    assert "'rubbish'" in reasons["listener.security.protocol.map"]
    assert "different port" in reasons["listeners"]


TEXTS = {
    "cordoned.log.dirs": ("/data", "/other", "*"),
    "group.consumer.assignment.interval.ms": ("5000", "0", "100000"),
    "group.consumer.max.assignment.interval.ms": ("15000", "4000", "x"),
    "group.consumer.min.assignment.interval.ms": ("0", "6000", "20000"),
    "listener.security.protocol.map": (
        f"{MAP},EXTRA:PLAINTEXT",
        "rubbish",
        MAP.replace(":PLAINTEXT", ":SASL_PLAINTEXT", 1),
        f"{MAP},EXTRA:SASL_SSL",
    ),
    "listeners": (f"{LISTENERS},EXTRA://:9094", LISTENERS, "CONTROLLER://:9093", "rubbish"),
    "log.cleaner.dedupe.buffer.size": ("3000000", "1000", "x"),
    "log.cleaner.threads": ("1", "0", "2", "200"),
    "log.local.retention.ms": ("5", "99999999999999", "-2"),
    "log.retention.ms": ("5", "1000000", "-1", "0"),
    "log.roll.ms": ("0", "5"),
    "max.connections.per.ip": ("0", "5", "-1"),
    "max.connections.per.ip.overrides": ("h:1", "", "h:x"),
    "no.such.setting": ("", "${x}"),
    "node.id": ("7",),
    "replica.fetch.wait.max.ms": ("100",),
}
#: Valid whatever the others are.
FINE = {"num.io.threads": "11", "message.max.bytes": "12345", "no.such.name": "x"}


def layers() -> st.SearchStrategy[dict[str, str]]:
    pairs = st.sampled_from([(name, text) for name, texts in TEXTS.items() for text in texts])
    return st.lists(pairs, max_size=10).map(dict)


@given(default=layers(), broker=layers(), is_fine_for_all=st.booleans())
@settings(deadline=None)
def test_invalid_values_never_disable_the_others(
    default: dict[str, str], broker: dict[str, str], is_fine_for_all: bool
) -> None:
    (default if is_fine_for_all else broker).update(FINE)
    config, skipped_values = resolve_dynamic(node(), default=default, broker=broker)
    assert config.num_io_threads == 11
    assert config.message_max_bytes == 12345
    assert config.text("no.such.name") == "x"
    skipped_entries = {(value.source, value.name) for value in skipped_values}
    kept = {
        source: {
            name: text for name, text in layer.items() if (source, name) not in skipped_entries
        }
        for source, layer in ((BROKER, broker), (DEFAULT, default))
    }
    assert config.dynamic_broker == kept[BROKER]
    assert config.dynamic_default == kept[DEFAULT]
    assert resolve_dynamic(node(), default=kept[DEFAULT], broker=kept[BROKER]).skipped == ()


def test_invalid_local_retention_does_not_block_other_changes() -> None:
    local = {"log.local.retention.ms": "99999999999999"}
    assert skipped(node(), {}, local) == {"DYNAMIC_BROKER:log.local.retention.ms"}
    assert (
        rejection(local | {"num.io.threads": "9"}, stored=local, named=["num.io.threads"]) is None
    )
    # The retention has an effect, the local one has none.
    assert skipped(node(), {"log.local.retention.ms": "9"}, {"log.retention.ms": "5"}) == {
        "DYNAMIC_DEFAULT_BROKER:log.local.retention.ms"
    }
    stored = {"log.local.retention.ms": "9"}
    assert "at most" in (rejection(stored | {"log.retention.ms": "5"}, stored=stored) or "")


def test_local_retention_in_the_file() -> None:
    static = node(**{"log.local.retention.ms": "9"})
    assert skipped(static, {}, {"log.retention.ms": "5"}) == {"DYNAMIC_BROKER:log.retention.ms"}
    static = node(**{"log.local.retention.ms": "9", "log.retention.ms": "5"})
    assert skipped(static, {}, {"log.retention.ms": "4"}) == set()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
def test_protocol_of_a_listener_in_use_cannot_change(protocol: str) -> None:
    static = node(**{"process.roles": "broker", "listeners": "PLAINTEXT://:9092"})
    listener_map = {"listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}"}
    reason = rejection(listener_map, static=static)
    assert "cannot be updated for existing listener CONTROLLER" in (reason or "")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"log.cleaner.dedupe.buffer.size": "1000"}, "1 MiB"),
        ({"log.cleaner.threads": "0"}, "at least 1"),
        ({"log.cleaner.threads": "3", "log.cleaner.dedupe.buffer.size": "3000000"}, "1 MiB"),
        ({"max.connections.per.ip": "0"}, "overrides"),
        ({"listener.security.protocol.map": "rubbish"}, "NAME:PROTOCOL"),
        ({"listeners": "rubbish"}, "NAME://host:port"),
        # Valid for brokers with a suitable file.
        ({"log.cleaner.threads": "1000"}, None),
        ({"log.cleaner.dedupe.buffer.size": "3000000"}, None),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:1"}, None),
        ({"listeners": "OTHER://:1"}, None),
        ({"cordoned.log.dirs": "/other"}, None),
        ({"log.local.retention.ms": "99999999999999"}, None),
        ({"group.consumer.assignment.interval.ms": "100000000"}, None),
    ],
)
def test_values_that_no_broker_could_apply_are_rejected(
    values: dict[str, str], reason: str | None
) -> None:
    static = node(**{"log.cleaner.threads": "2"})
    if reason is None:
        check_without_file(static, values, named=list(values))
    else:
        with pytest.raises(InvalidInput, match=reason):
            check_without_file(static, values, named=list(values))
    # Values that are already stored, also by a Kafka controller, do not affect other changes.
    more = values | {"num.io.threads": "9", "log.roll.ms": "x"}
    check_without_file(static, more, named=["num.io.threads"])


def test_deleting_an_invalid_value_is_allowed() -> None:
    validate_dynamic({}, changed_names=["num.partitions"], whole_cluster=True)


def test_change_is_checked_only_for_the_settings_that_it_names() -> None:
    stored = {"log.cleaner.dedupe.buffer.size": "1000"}
    fine = stored | {"log.retention.ms": "5"}
    assert rejection(fine, stored=stored, named=["log.retention.ms"]) is None
    assert "1 MiB" in (rejection(stored, stored=stored) or "")
    assert rejection({}, stored=stored, named=[]) is None


def test_deleting_a_required_value_is_rejected() -> None:
    stored = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:1"}
    left = {"max.connections.per.ip": "0"}
    reason = rejection(left, stored=stored, named=["max.connections.per.ip.overrides"])
    assert "overrides" in (reason or "")


@pytest.mark.parametrize(
    ("values", "is_valid"),
    [
        ({"num.io.threads": "16"}, True),
        ({"num.io.threads": "17"}, False),
        ({"num.io.threads": "3"}, False),
        ({"listener.name.plaintext.num.network.threads": "7"}, False),
        ({"listener.name.plaintext.num.network.threads": "6"}, True),
        ({"log.cleaner.threads": "0"}, False),
        ({"log.local.retention.ms": "-1"}, False),
        ({"log.local.retention.ms": "604800001"}, False),
        ({"log.local.retention.ms": "604800000"}, True),
        ({"cordoned.log.dirs": "/other"}, False),
        ({"cordoned.log.dirs": "/data"}, True),
        ({"group.consumer.assignment.interval.ms": "100000000"}, False),
        ({"listeners": "CONTROLLER://:9093"}, False),
    ],
)
def test_changes_of_one_broker_are_checked(values: dict[str, str], is_valid: bool) -> None:
    assert (rejection(values) is None) == is_valid


def test_check_of_the_node_may_reject() -> None:
    def reject(old: BrokerConfig, new: BrokerConfig) -> None:
        raise InvalidConfig(f"{old.num_io_threads} to {new.num_io_threads}")

    with pytest.raises(InvalidInput, match="8 to 9"):
        check_change(
            node(),
            ResolvedConfig(node()),
            default={},
            broker={"num.io.threads": "9"},
            named=[(BROKER, "num.io.threads")],
            checks=[reject],
        )
