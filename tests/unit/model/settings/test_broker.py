import pytest
from hypothesis import given
from hypothesis import strategies as st

from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.properties import parse_properties
from lograft.model.seams import Address
from lograft.model.settings.broker import (
    broker_config,
    unknown_settings,
    with_dynamic,
)
from lograft.model.settings.dynamic import validate_dynamic
from lograft.model.settings.jaas import SCRAM_MODULE
from lograft.model.settings.providers import ProviderKind

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
#: The settings that the files shipped with Kafka have in common, next to the node's identity.
SHIPPED = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
SHARE = """
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
SECURITY_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
SHIPPED_FILES = {
    "3.1 server": f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{SECURITY_MAP}
log.dirs=/tmp/kraft-combined-logs
{SHIPPED}""",
    "3.1 broker": f"""
process.roles=broker
node.id=2
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{SECURITY_MAP}
log.dirs=/tmp/kraft-broker-logs
{SHIPPED}""",
    "3.1 controller": f"""
process.roles=controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9093
controller.listener.names=PLAINTEXT
listener.security.protocol.map={SECURITY_MAP}
log.dirs=/tmp/raft-controller-logs
{SHIPPED}""",
    "4.3 server": f"""
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{SECURITY_MAP}
log.dirs=/tmp/kraft-combined-logs
{SHIPPED}{SHARE}""",
    "4.3 broker": f"""
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{SECURITY_MAP}
log.dirs=/tmp/kraft-broker-logs
{SHIPPED}{SHARE}""",
    "4.3 controller": f"""
process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-controller-logs
{SHIPPED}{SHARE}""",
}


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_files_shipped_with_kafka_work_unchanged(name: str) -> None:
    properties = parse_properties(SHIPPED_FILES[name])
    config = broker_config(properties)
    assert unknown_settings(config) == ()
    role = name.split()[1]
    assert config.is_broker == (role != "controller")
    assert config.is_controller == (role != "broker")
    if config.is_broker:
        assert [str(e) for e in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    if config.is_controller:
        assert [e.port for e in config.controller_listeners] == [9093]
    assert config.topic_defaults.retention_ms == 168 * 3_600_000


def test_defaults() -> None:
    config = broker_config(COMBINED)
    assert (config.node_id, config.num_partitions, config.log_dirs) == (1, 1, ("/tmp/kafka-logs",))
    assert config.metadata_log_dir == "/tmp/kafka-logs"
    assert config.auto_create_partitions_enable is False
    assert config.auto_create_partitions_max == 10
    assert config.default_replication_mode == "isr"
    assert config.value("group.consumer.assignors") == ("uniform", "range", "consistent")
    assert config.raw["broker.id"] == "1"
    with pytest.raises(AttributeError, match="is immutable"):
        config.num_partitions = 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"process.roles": None}, "process.roles"),
        (
            {"process.roles": None, "zookeeper.connect": "zk:2181"},
            "ZooKeeper mode .* yet",
        ),
        ({"process.roles": "broker,leader"}, "must be one of: broker, controller"),
        ({"node.id": None}, "node.id: give the node a number"),
        ({"node.id": "-2"}, "at least 0"),
        ({"broker.id": "7"}, "node.id is 1 but broker.id is 7"),
        ({"controller.quorum.bootstrap.servers": None}, "bootstrap.servers .* or .*voters"),
        ({"controller.quorum.bootstrap.servers": "nohost"}, "host:port"),
        ({"controller.quorum.voters": "2@h:9093"}, r"node.id 1 .* not in .* \(2@h:9093\)"),
        ({"controller.quorum.voters": "h:9093"}, r"\{id\}@\{host\}:\{port\}"),
        ({"controller.quorum.voters": "1@0.0.0.0:9093"}, "routable"),
        ({"controller.quorum.voters": "1@h:9093,1@g:9093"}, "node 1 more than once"),
        ({"process.roles": "broker"}, "must not listen as a controller"),
        ({"process.roles": "controller"}, "must only contain names from controller.listener"),
        ({"listeners": "PLAINTEXT://:9092"}, "must only contain values appearing in listeners"),
        (
            {"controller.listener.names": "CONTROLLER,OTHER"},
            r"must only contain values appearing in listeners \(PLAINTEXT, CONTROLLER\)",
        ),
        ({"listeners": "CONTROLLER://:9093"}, "at least one broker advertised listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "cannot use 0.0.0.0"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "different port: 9092"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"}, "different name"),
        ({"listeners": "FOO://:9092,CONTROLLER://:9093"}, "security protocol .* listener FOO"),
        ({"listeners": "localhost:9092,CONTROLLER://:9093"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:9093"}, "NAME://host:port"),
        ({"advertised.listeners": "SSL://h:9092"}, "not among the listeners"),
        (
            {"advertised.listeners": "PLAINTEXT://h:9092,PLAINTEXT://h:9094"},
            "^advertised.listeners: Each listener must have a different name: PLAINTEXT",
        ),
        ({"inter.broker.listener.name": "SSL"}, "SSL is not one of PLAINTEXT"),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "Only one of",
        ),
        ({"controller.listener.names": None}, "controller.listener.names"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "NAME:PROTOCOL"),
        ({"num.partitions": "0"}, "num.partitions: Value must be at least 1"),
        ({"log.flush.scheduler.interval.ms": "-1"}, "scheduler.interval.ms: Value must be"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.retention.minutes": "0"}, "log.retention.minutes .* must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.hours.* must be unlimited"),
        ({"connections.max.idle.ms": "0"}, r"idle.ms \(0\) must be more than .*delay.ms \(100\)"),
        ({"connection.failed.authentication.delay.ms": "600000"}, "must be more than"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "must contain classic"),
        ({"cordoned.log.dirs": "/tmp/kafka-logs,*"}, r"write \* alone"),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "45000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            r"heartbeat.interval.ms \(45000\) must be less than group.consumer.session.timeout.ms",
        ),
        ({"log.cleaner.threads": "1000"}, "dedupe"),
        ({"queued.max.request.bytes": "5"}, "socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "overrides"),
        ({"max.connections.per.ip.overrides": "x"}, "host:count"),
        (
            {"group.consumer.heartbeat.interval.ms": "60000"},
            r"must be between group.consumer.min.* \(5000\) and .*max.* \(15000\)",
        ),
        ({"group.share.max.session.timeout.ms": "1000"}, "group.share.session.timeout.ms"),
        ({"log.dirs": ""}, "log.dirs: The list must not be empty"),
        ({"log.dirs": "/a,/b\0c"}, "it contains a NUL character: correct log.dirs"),
        ({"metadata.log.dir": "/m\0"}, "it contains a NUL character"),
        ({"group.consumer.assignors": "uniform,fair"}, "assignors: String must be one of: uniform"),
        ({"offsets.topic.compression.codec": "9"}, "codec: Value must be no more than 4"),
    ],
)
def test_contradictions_are_rejected_with_one_sentence(
    changes: dict[str, str | None], sentence: str
) -> None:
    merged = {**COMBINED, **changes}
    with pytest.raises(InvalidConfig, match=sentence) as error:
        broker_config({name: text for name, text in merged.items() if text is not None})
    assert "\n" not in str(error.value)


def test_broker_must_not_be_a_voter() -> None:
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
    }
    with pytest.raises(InvalidConfig, match=r"give the broker another node\.id"):
        broker_config(properties)


def test_only_controllers_join_a_quorum() -> None:
    properties = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.auto.join.enable": "true",
    }
    with pytest.raises(InvalidConfig, match=r"controller role in process\.roles"):
        broker_config(properties)


def test_listeners_are_parsed_in_every_form() -> None:
    config = broker_config(
        COMBINED
        | {
            "listeners": "plaintext://[::1]:9092, INTERNAL://10.0.0.1:0 ,CONTROLLER://:0",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "INTERNAL:SASL_SSL",
            "inter.broker.listener.name": "internal",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.internal.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required"
            ' username="node" password="secret";',
            "advertised.listeners": "PLAINTEXT://[2001:db8::7]:19092,INTERNAL://b1.lan:0",
            "controller.quorum.bootstrap.servers": "[::1]:9093, c2:9093",
            "log.dirs": "/a, /b,/a",
            "metadata.log.dir": "/m",
        }
    )
    assert [str(e) for e in config.listeners] == [
        "PLAINTEXT://[::1]:9092",
        "INTERNAL://10.0.0.1:0",
        "CONTROLLER://:0",
    ]
    assert config.advertised_listeners[0].address == Address("2001:db8::7", 19092)
    assert config.advertised_listeners[1].security.uses_tls
    assert config.inter_broker_listener_name == "INTERNAL"
    assert config.controller_quorum_bootstrap_servers == (
        Address("::1", 9093),
        Address("c2", 9093),
    )
    assert (config.log_dirs, config.metadata_log_dir) == (("/a", "/b"), "/m")


def test_controller_needs_no_inter_broker_listener() -> None:
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:SSL,INSIDE:SSL",
        "controller.quorum.voters": "1@localhost:9093",
    }
    assert broker_config(settings).inter_broker_listener_name == "PLAINTEXT"
    with pytest.raises(InvalidConfig, match=r"listener\.security\.protocol\.map does not name"):
        broker_config(settings | {"inter.broker.listener.name": "OUTSIDE"})


def test_ipv4_and_ipv6_listeners_may_share_a_port() -> None:
    config = broker_config(
        COMBINED
        | {
            "listeners": "PLAINTEXT://127.0.0.1:9092,OTHER://[::1]:9092,CONTROLLER://:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "OTHER:PLAINTEXT",
        }
    )
    assert len(config.broker_listeners) == 2


def test_plaintext_controller_is_not_assumed_with_tls() -> None:
    with pytest.raises(InvalidConfig, match="listener CONTROLLER"):
        broker_config(COMBINED | {"listeners": "SSL://:9092,CONTROLLER://:9093"})


def test_dynamic_settings_override_the_file_and_apply_to_topics() -> None:
    static = broker_config(COMBINED | {"log.retention.hours": "24", "log.segment.bytes": "2000000"})
    assert static.topic_defaults.retention_ms == 24 * 3_600_000
    config = with_dynamic(
        static,
        default={"log.retention.ms": "5", "log.segment.bytes": "3000000", "nonsense": "x"},
        broker={"log.segment.bytes": "4000000", "num.io.threads": "2"},
    )
    assert config.topic_defaults.retention_ms == 5
    assert config.topic_defaults.segment_bytes == 4_000_000
    assert config.num_io_threads == 2
    assert static.topic_defaults.segment_bytes == 2_000_000
    back = with_dynamic(config, default={}, broker={})
    assert back.topic_defaults == static.topic_defaults


@pytest.mark.parametrize(
    ("name", "text", "whole_cluster", "sentence"),
    [
        ("num.partitions", "3", True, "Cannot update these configs dynamically"),
        ("node.id", "3", False, "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:1", True, "broker id must be specified"),
        ("listener.name.x.ssl.keystore.type", "PEM", True, "broker id must be specified"),
        ("num.io.threads", "0", False, "at least 1"),
        ("message.max.bytes", "x", True, "Not a number"),
        ("log.retention.ms", "0", True, "log.retention.ms"),
    ],
)
def test_invalid_dynamic_changes_are_rejected(
    name: str, text: str, whole_cluster: bool, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        validate_dynamic({name: text}, changed_names=[name], whole_cluster=whole_cluster)


def test_valid_dynamic_changes_are_accepted() -> None:
    changes = {"log.retention.ms": "-1", "leader.replication.throttled.rate": "7", "custom": "x"}
    validate_dynamic(changes, changed_names=changes, whole_cluster=True)


def test_unknown_settings_are_listed() -> None:
    properties = {
        "num.partition": "3",
        "listener.name.plaintext.ssl.keystore.location": "/k",
        "listener.name.plaintext.scram-sha-512.connections.max.reauth.ms": "1",
        "listener.name.plaintxt.ssl.keystore.location": "/k",
        "listener.name.plaintext.ssl.keystore.locations": "/k",
        "config.providers.vault.param.url": "x",
        "config.providers": "file,env",
        "config.providers.file.class": ProviderKind.FILE.value,
        "config.providers.file.param.allowed.path": "/etc/secrets",
        "config.providers.env.class": ProviderKind.ENVIRONMENT.value,
        "config.providers.env.param.allowed.paths": "/etc/secrets",
        "config.providers.env.param.allowlist.pattern": "A.*",
        "log.message.format.version": "2.8",
        "num.partitions": "3",
    }
    assert unknown_settings(broker_config(COMBINED | properties)) == (
        "config.providers.env.param.allowed.paths",
        "config.providers.file.param.allowed.path",
        "config.providers.vault.param.url",
        "listener.name.plaintext.ssl.keystore.locations",
        "listener.name.plaintxt.ssl.keystore.location",
        "log.message.format.version",
        "num.partition",
    )


def test_listener_can_have_its_own_value() -> None:
    config = broker_config(
        COMBINED
        | {
            "ssl.key.password": "a",
            "listener.name.internal.ssl.key.password": "b",
            "max.connections.per.ip.overrides": "::1:5, host:7",
        }
    )
    assert config.secret("ssl.key.password") == "a"
    assert config.secret("ssl.key.password", listener="INTERNAL") == "b"
    assert config.secret("ssl.key.password", listener="PLAINTEXT") == "a"
    assert config.max_connections_per_ip_overrides == {"::1": 5, "host": 7}
    assert "ssl" not in repr(config)


pieces = st.sampled_from(
    ["PLAINTEXT", "CONTROLLER", "://", ":", "@", ",", "[", "]", "::1", "9092", "1", "-1", "host"]
    + ["broker", "controller", " ", "=", "ü", "0.0.0.0", "99999999999"]
)
texts = st.lists(pieces, max_size=8).map("".join)
settings = st.sampled_from(
    [
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dirs",
        "metadata.log.dir",
        "log.roll.ms",
        "log.retention.ms",
        "max.connections.per.ip.overrides",
        "group.consumer.session.timeout.ms",
    ]
)


@given(st.dictionaries(settings, texts, max_size=4))
def test_any_file_gives_a_config_or_an_error_message(changes: dict[str, str]) -> None:
    try:
        broker_config(COMBINED | changes)
    except InvalidConfig:
        pass
