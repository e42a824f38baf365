"""Dynamic settings take effect while the broker runs: all code reads them from the current
config."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from lograft.client.admin import Admin, ConfigChange, NewTopic, Operation, broker_resource
from lograft.metadata.types import ResourceType
from lograft.model.settings.broker_table import DYNAMIC_BROKER_CONFIGS
from lograft.model.settings.keys import ConfigType, Used
from lograft.model.settings.topic import TOPIC_SYNONYMS
from lograft.model.types import Epoch, Offset
from lograft.node import Node
from lograft.testing import VirtualCluster
from lograft.wire.records.config_record import ConfigRecord
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import play

#: Valid values that differ from the defaults, where the type alone is not sufficient.
SAMPLES: Final = {
    "compression.gzip.level": "5",
    "compression.type": "lz4",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleanup.policy": "compact",
    "log.message.timestamp.type": "LogAppendTime",
    "min.insync.replicas": "2",
    "compression.lz4.level": "7",
    "compression.zstd.level": "7",
}
#: Broker settings that are the defaults of topics.
TOPIC_DEFAULTS: Final = {
    synonym: topic_setting
    for topic_setting, synonyms in TOPIC_SYNONYMS.items()
    for synonym, _ in synonyms
    if synonym in DYNAMIC_BROKER_CONFIGS
    and isinstance(DYNAMIC_BROKER_CONFIGS[synonym].effect, Used)
}
#: Values derived from other settings, as used by the code.
READERS: Final[dict[str, tuple[str, Callable[[Node], Any]]]] = {
    "auto.create.partitions.enable": (
        "true",
        lambda node: node.broker.config.auto_create_partitions_enable,
    ),
    "cordoned.log.dirs": ("*", lambda node: node.broker.logs.config.cordoned_log_dirs),
    "log.cleaner.backoff.ms": ("77", lambda node: node.broker.logs.config.log_cleaner_backoff_ms),
    "log.cleaner.dedupe.buffer.size": (
        "7000000",
        lambda node: node.broker.logs.config.log_cleaner_dedupe_buffer_size,
    ),
    "log.cleaner.io.max.bytes.per.second": (
        "7000000",
        lambda node: node.broker.logs.config.log_cleaner_io_max_bytes_per_second,
    ),
    "lograft.client.telemetry": (
        "true",
        lambda node: node.broker.config.lograft_client_telemetry,
    ),
    "producer.id.expiration.ms": (
        "7000",
        lambda node: node.broker.logs.config.producer_id_expiration_ms,
    ),
    "follower.replication.throttled.rate": (
        "7",
        lambda node: node.broker.replicas.fetching.rate,
    ),
    "group.consumer.assignment.interval.ms": (
        "77",
        lambda node: node.broker.config.group_consumer_assignment_interval_ms,
    ),
    "auto.create.partitions.max": (
        "7",
        lambda node: node.broker.config.auto_create_partitions_max,
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "7",
        lambda node: node.broker.moves.throttle.rate,
    ),
    "transaction.partition.verification.enable": (
        "false",
        lambda node: node.broker.config.transaction_partition_verification_enable,
    ),
    "lograft.metrics.groups.max": (
        "7",
        lambda node: node.broker.config.lograft_metrics_groups_max,
    ),
    "lograft.metrics.kafka.exporter.enable": (
        "false",
        lambda node: node.broker.config.lograft_metrics_kafka_exporter_enable,
    ),
    "lograft.metrics.partitions.max": (
        "7",
        lambda node: node.broker.config.lograft_metrics_partitions_max,
    ),
    "lograft.metrics.topics.max": (
        "7",
        lambda node: node.broker.config.lograft_metrics_topics_max,
    ),
    "lograft.slow.request.ms": (
        "7",
        lambda node: node.broker.config.lograft_slow_request_ms,
    ),
    "leader.replication.throttled.rate": ("7", lambda node: node.broker.replicas.sending.rate),
}


#: Settings whose effect is tested elsewhere, with the place.
ELSEWHERE: Final = {
    "config.providers": "static only: model/settings/test_dynamic.py",
    "listener.security.protocol.map": "net/test_listener_set.py",
    "listeners": "net/test_listener_set.py",
    "max.connection.creation.rate": "net/test_connection_limits.py",
    "max.connections": "net/test_listener_set.py",
    "max.connections.per.ip": "net/test_connection_limits.py",
    "max.connections.per.ip.overrides": "net/test_listener_set.py",
    "sasl.enabled.mechanisms": "api/test_sasl_session.py",
    "sasl.jaas.config": "api/test_sasl_session.py",
    "sasl.kerberos.principal.to.local.rules": "model/settings/test_kerberos.py",
    "sasl.kerberos.service.name": "model/settings/test_kerberos.py",
    "sasl.mechanism.inter.broker.protocol": "broker/links/test_logins.py",
}


def test_every_dynamic_setting_with_an_effect_has_a_test() -> None:
    used = {name for name, key in DYNAMIC_BROKER_CONFIGS.items() if isinstance(key.effect, Used)}
    # TLS is in net/test_tls_rotation.py.
    used = {name for name in used if not name.startswith(("ssl.", "lograft.ssl."))}
    assert used - set(TOPIC_DEFAULTS) - set(READERS) - set(ELSEWHERE) == set()


def sample(name: str) -> str:
    key = DYNAMIC_BROKER_CONFIGS[name]
    if name in SAMPLES:
        return SAMPLES[name]
    if key.type is ConfigType.BOOLEAN:
        return "false" if key.default == "true" else "true"
    return "7654321"


@scenario(play)
async def test_every_topic_default_reaches_open_partitions(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    assert len(TOPIC_DEFAULTS) > 15

    await admin.create_topics([NewTopic("t", partitions=1, replicas=1)])
    broker = cluster.node(1).broker
    (partition,) = broker.partitions
    for name in TOPIC_DEFAULTS:
        before = partition.config
        changes = [ConfigChange(name, sample(name))]
        await admin.alter_configs({broker_resource(): changes})
        await cluster.wait_for(lambda before=before: partition.config != before)
        assert partition.log is not None
        assert partition.log.config == partition.config == broker.topic_config("t")


@pytest.mark.parametrize("name", READERS)
@scenario(play)
async def test_readers_of_a_setting_follow_it(
    cluster: VirtualCluster, admin: Admin, /, name: str
) -> None:
    text, read = READERS[name]

    node = cluster.node(1)
    before = read(node)
    await admin.alter_configs({broker_resource(1): [ConfigChange(name, text)]})
    await cluster.wait_for(lambda: read(node) != before)
    change = ConfigChange(name, None, Operation.DELETE)
    await admin.alter_configs({broker_resource(1): [change]})
    await cluster.wait_for(lambda: read(node) == before)


def test_an_invalid_stored_value_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: VirtualCluster, admin: Admin) -> None:
        broker = cluster.node(1).broker
        record = ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="1",
            name="message.max.bytes",
            value="rubbish",
        )
        broker.metadata.on_committed(
            Offset(broker.image.offset), Epoch(broker.image.epoch), [record]
        )
        for value in ("5000", "6000"):
            change = ConfigChange("log.retention.ms", value)
            await admin.alter_configs({broker_resource(): [change]})
            await cluster.wait_for(
                lambda value=value: broker.config.topic_defaults.retention_ms == int(value)
            )

    play(scenario)
    logged = [message for message in caplog.messages if "message.max.bytes" in message]
    assert len(logged) == 1
    assert "skipping the per-broker value of message.max.bytes" in logged[0]


@scenario(play)
async def test_invalid_stored_values_and_listeners_that_stay_are_reported(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    broker = cluster.node(1).broker
    values = {
        "listener.security.protocol.map": "rubbish",
        "log.cleaner.dedupe.buffer.size": "1000",
    }
    records = [
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name=name, value=value)
        for name, value in values.items()
    ]
    broker.metadata.on_committed(Offset(broker.image.offset), Epoch(broker.image.epoch), records)
    reported = (await admin.describe_skipped_configs([1]))[1]
    assert len(reported) == 2
    assert all(any(each.startswith(name) for each in reported) for name in values)
    own = broker.config.broker_listeners
    moved = ",".join(
        f"{each.name}://{each.host}:{each.port + 100 * (each in own)}"
        for each in broker.config.listeners
    )
    await admin.alter_configs({broker_resource(1): [ConfigChange("listeners", moved)]})
    await cluster.wait_for(lambda: any(find() for find in broker.metadata.apply_failures))
    reported = (await admin.describe_skipped_configs([1]))[1]
    assert len(reported) == 3
    assert "stays at" in reported[-1]


def test_invalid_settings_of_topics_are_logged_once_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: VirtualCluster, admin: Admin) -> None:
        await admin.create_topics([NewTopic("t", partitions=1, replicas=1)])
        broker = cluster.node(1).broker
        (partition,) = broker.partitions

        def store(**values: str | None) -> None:
            records = [
                ConfigRecord(
                    resource_type=ResourceType.TOPIC,
                    resource_name="t",
                    name=name.replace("_", "."),
                    value=value,
                )
                for name, value in values.items()
            ]
            offset, epoch = Offset(broker.image.offset), Epoch(broker.image.epoch)
            broker.metadata.on_committed(offset, epoch, records)

        store(segment_bytes="1000", segment_ms="77")
        store(retention_ms="88")
        assert (partition.config.segment_ms, partition.config.retention_ms) == (77, 88)
        assert partition.config.segment_bytes == broker.config.topic_defaults.segment_bytes
        assert (await admin.describe_skipped_configs([1]))[1] == (
            "segment.bytes of topic t: Invalid value 1000 for configuration segment.bytes: Value"
            " must be at least 1048576",
        )
        store(segment_bytes=None)
        assert (await admin.describe_skipped_configs([1]))[1] == ()

    play(scenario)
    logged = [message for message in caplog.messages if "segment.bytes for topic t" in message]
    assert len(logged) == 1
