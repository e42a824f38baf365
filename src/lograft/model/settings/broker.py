"""`BrokerConfig`: all settings of a node, parsed, checked against each other and typed.

`broker_config(properties)` creates one from the values of a .properties file; `with_dynamic`
overlays the cluster's dynamic settings (`dynamic` decides which of them apply). A BrokerConfig
never changes: a change creates a new object, and code that stores a setting must read the current
one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

from lograft.model.errors import InvalidConfig
from lograft.model.listeners import Endpoint, SecurityProtocol, Voter
from lograft.model.node_layout import NodeLayout, node_layout
from lograft.model.seams import Address
from lograft.model.settings.authorizer import AUTHORIZER_SETTINGS, find_authorizer_problems
from lograft.model.settings.broker_table import BROKER_CONFIGS as BROKER_CONFIGS
from lograft.model.settings.broker_table import DYNAMIC_BROKER_CONFIGS
from lograft.model.settings.effects import JAVA_CLASS, NEEDS_MECHANISM, NOT_PER_LISTENER
from lograft.model.settings.jaas import parse_jaas
from lograft.model.settings.keys import (
    INT_MAX,
    ConfigKey,
    ConfigValue,
    Effect,
    Secret,
    UpdateMode,
    Used,
    split_list,
)
from lograft.model.settings.oauthbearer import HANDLER_CLASS
from lograft.model.settings.providers import find_unused
from lograft.model.settings.sasl import (
    JAAS_CONFIG,
    SERVER_MECHANISMS,
    find_sasl_problems,
)
from lograft.model.settings.topic import TopicConfig, topic_defaults
from lograft.model.types import NodeId

LISTENER_PREFIX: Final = "listener.name."
#: Limits that a listener may have besides those of the node.
LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
#: Settings that a listener may have besides those of TLS and SASL.
_LISTENER_SETTINGS: Final = frozenset({*LISTENER_LIMITS, "connections.max.reauth.ms"})
#: Settings that may have the name of a mechanism after the prefix of a listener.
_MECHANISM_SETTINGS: Final = frozenset({
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
})  # fmt: skip
_MECHANISMS: Final = frozenset(mechanism.lower() for mechanism in SERVER_MECHANISMS)
LOG_CLEANER_BUFFER_MIN: Final = 1 << 20
#: Dynamic settings that determine the listeners of a node.
_DYNAMIC_LAYOUT: Final = ("listeners", "listener.security.protocol.map")


class BrokerConfig:
    """The first block is computed from several settings; a field of the second block has the
    setting's name with _ for the dots. For settings without a field, use `value(name)`.

    Not a dataclass: generating one of this size would take more than half of the time that a
    starting node needs for its settings.
    """

    node_id: NodeId
    process_roles: frozenset[str]
    #: All listeners of the node, brokers' and controllers'. An empty host: all interfaces.
    listeners: tuple[Endpoint, ...]
    #: The listeners advertised to clients and brokers, without controller listeners.
    advertised_listeners: tuple[Endpoint, ...]
    #: The endpoints of this controller that are advertised to other controllers and brokers.
    advertised_controller_listeners: tuple[Endpoint, ...]
    listener_security: Mapping[str, SecurityProtocol]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    #: A static quorum; () if the quorum is dynamic (KIP-853).
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[Address, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    #: The configuration of a topic without overrides.
    topic_defaults: TopicConfig
    max_connections_per_ip_overrides: Mapping[str, int]
    #: The explicit values: of the file, of the whole cluster, and of this broker, which has the
    #: highest precedence. Never printed, because they include passwords.
    raw: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    authorizer_class_name: str
    auto_create_partitions_enable: bool
    auto_create_partitions_max: int
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    auto_rebalance_check_interval_ms: int
    auto_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    connections_max_reauth_ms: int
    controlled_shutdown_enable: bool
    controller_quorum_append_linger_ms: int
    controller_quorum_auto_join_enable: bool
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    cordoned_log_dirs: tuple[str, ...]
    default_replication_factor: int
    default_replication_mode: str
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    initial_broker_registration_timeout_ms: int
    internal_metadata_delete_delay_millis: int
    internal_metadata_log_segment_bytes: int | None
    internal_metadata_max_batch_size_in_bytes: int
    internal_topics_replication_mode: str
    leader_imbalance_check_interval_seconds: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_dir_failure_timeout_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    lograft_authentication_timeout_ms: int
    lograft_client_telemetry: bool
    lograft_http_authentication_enable: bool
    lograft_http_listeners: tuple[str, ...]
    lograft_log_format: str
    lograft_metrics_groups_max: int
    lograft_metrics_kafka_exporter_enable: bool
    lograft_metrics_partitions_max: int
    lograft_metrics_topics_max: int
    lograft_otlp_endpoint: str
    lograft_otlp_headers: Secret | None
    lograft_otlp_metrics_interval_ms: int
    lograft_otlp_traces_compressed_enable: bool
    lograft_otlp_traces_enable: bool
    lograft_otlp_traces_ratio: float
    lograft_slow_request_ms: int
    lograft_unauthenticated_connections_max: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_idle_interval_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    num_io_threads: int
    num_network_threads: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    partition_raft_election_timeout_ms: int
    partition_raft_fetch_timeout_ms: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    queued_max_requests: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: int
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    server_max_startup_time_ms: int
    socket_connection_setup_timeout_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    telemetry_max_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transaction_two_phase_commit_enable: bool
    transactional_id_expiration_ms: int
    unstable_api_versions_enable: bool
    unstable_feature_versions_enable: bool

    def __init__(self, values: Mapping[str, Any]) -> None:
        assert values.keys() == BrokerConfig.__annotations__.keys()
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a BrokerConfig is immutable, see with_dynamic")

    def __repr__(self) -> str:
        roles = ",".join(sorted(self.process_roles))
        return f"BrokerConfig(node_id={self.node_id}, process_roles={roles})"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.listeners if e.name in self.controller_listener_names)

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.listeners if e.name not in self.controller_listener_names)

    @property
    def used_listeners(self) -> dict[str, SecurityProtocol]:
        """Returns the listeners that the node opens, and those of other nodes to which it
        connects."""
        peers = (self.controller_listener_names[0], self.inter_broker_listener_name)
        return {endpoint.name: endpoint.security for endpoint in self.listeners} | {
            name: self.listener_security[name] for name in peers if name in self.listener_security
        }

    def text(self, name: str, *, listener: str | None = None) -> str | None:
        """Returns the explicit value with the highest precedence as text, otherwise the default.
        With a listener, the value under its prefix (`listener.name.<listener>.`) wins."""
        if listener is not None:
            own = self.text(f"{LISTENER_PREFIX}{listener.lower()}.{name}")
            if own is not None:
                return own
        for layer in (self.dynamic_broker, self.dynamic_default, self.raw):
            if name in layer:
                return layer[name]
        key = BROKER_CONFIGS.get(name)
        return key.default if key is not None else None

    def listener_text(self, name: str, *, listener: str) -> str | None:
        """Returns the explicit value under the prefix of a listener, or None."""
        return self.text(f"{LISTENER_PREFIX}{listener.lower()}.{name}")

    def value(self, name: str, *, listener: str | None = None) -> ConfigValue:
        """Returns the typed value of any setting."""
        return BROKER_CONFIGS[name].parse(self.text(name, listener=listener))

    def secret(self, name: str, *, listener: str | None = None) -> str | None:
        """Returns the text of a password setting."""
        value = self.value(name, listener=listener)
        return value.value if isinstance(value, Secret) else None


_NODE_FIELDS: Final = frozenset(field.name for field in fields(NodeLayout))
_WORKED_OUT: Final = _NODE_FIELDS | {
    "topic_defaults",
    "max_connections_per_ip_overrides",
    "raw",
    "dynamic_default",
    "dynamic_broker",
}
#: Field -> setting, for the fields that are copies of one setting.
_PLAIN: Final = {
    name: name.replace("_", ".") for name in BrokerConfig.__annotations__ if name not in _WORKED_OUT
}


def broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Parses and checks the settings of a node; raises InvalidConfig with what to change."""
    raw = dict(properties)
    if "zookeeper.connect" in raw and "process.roles" not in raw:
        raise InvalidConfig(
            "ZooKeeper mode (zookeeper.connect without process.roles) is not supported yet: set"
            " process.roles=broker,controller to use the built-in quorum instead"
        )
    # Kafka treats the two as one setting; both are shown if either is set.
    for given, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if given in raw:
            raw.setdefault(other, raw[given])
    check_values(raw)
    layout = node_layout(raw)
    config = BrokerConfig(
        {name: getattr(layout, name) for name in _NODE_FIELDS}
        | _settable_fields(raw)
        | {"raw": raw, "dynamic_default": {}, "dynamic_broker": {}}
    )
    _check_together(config)
    return config


def with_dynamic(
    config: BrokerConfig, *, default: Mapping[str, str], broker: Mapping[str, str]
) -> BrokerConfig:
    """Returns the config with the dynamic settings of the cluster and of this broker applied. They
    are not checked against each other. Settings that are not dynamic have no effect; unknown names
    are kept, because DescribeConfigs shows them."""
    default = {name: text for name, text in default.items() if _may_be_dynamic(name)}
    broker = {name: text for name, text in broker.items() if _may_be_dynamic(name)}
    values = {**config.raw, **default, **broker}
    layout: dict[str, Any] = {}
    if any(name in _DYNAMIC_LAYOUT for name in (*default, *broker)):
        # What the node advertises is registered at its start and does not change.
        changed = node_layout(values)
        layout = {"listeners": changed.listeners, "listener_security": changed.listener_security}
    return BrokerConfig(
        config.__dict__
        | layout
        | _settable_fields(values)
        | {"dynamic_default": default, "dynamic_broker": broker}
    )


def _may_be_dynamic(name: str) -> bool:
    key = BROKER_CONFIGS.get(base_name(name))
    return key is None or key.mode is not UpdateMode.READ_ONLY


def unknown_settings(config: BrokerConfig) -> tuple[str, ...]:
    """Returns unknown names in the file, and names with the prefix of a listener that is not in the
    protocol map, in order: they have no effect, which deserves a warning."""
    unknown = [name for name in config.raw if _is_unknown(name, config)]
    return tuple(sorted([*unknown, *find_unused(config.raw)]))


def _is_unknown(name: str, config: BrokerConfig) -> bool:
    if name.startswith("config.providers."):
        return False
    if name in AUTHORIZER_SETTINGS:
        return not config.authorizer_class_name
    listener, _, _ = name.removeprefix(LISTENER_PREFIX).partition(".")
    if listener == "http" and config.lograft_http_listeners:
        return base_name(name) not in BROKER_CONFIGS
    return base_name(name) not in BROKER_CONFIGS or (
        name.startswith(LISTENER_PREFIX) and listener.upper() not in config.listener_security
    )


def keys_of(names: Iterable[str]) -> dict[str, ConfigKey]:
    """Returns the table rows of those names that are settings, with or without a listener
    prefix."""
    return {name: key for name in names if (key := find_key(name)) is not None}


def find_key(name: str) -> ConfigKey | None:
    """Returns the table row of a setting, with or without the prefix of a listener."""
    base = base_name(name)
    key = BROKER_CONFIGS.get(base) or DYNAMIC_BROKER_CONFIGS.get(base)
    if key is None or not isinstance(key.effect, Used):
        return key
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism = rest.removesuffix(base).removesuffix(".")
    if base == JAAS_CONFIG and (base == name or mechanism not in _MECHANISMS):
        return key._replace(effect=NEEDS_MECHANISM)
    if base == HANDLER_CLASS and mechanism != "oauthbearer":
        return key._replace(effect=JAVA_CLASS)
    # As in Kafka, prefixes have the names of listeners and mechanisms in lower case.
    is_misplaced = base != name and (
        not (base.startswith(("ssl.", "sasl.", "lograft.ssl.")) or base in _LISTENER_SETTINGS)
        or listener != listener.lower()
        or (mechanism != "" and not _may_have_mechanism(mechanism, base))
    )
    return key._replace(effect=NOT_PER_LISTENER) if is_misplaced else key


def _may_have_mechanism(mechanism: str, base: str) -> bool:
    if base.startswith("sasl.oauthbearer."):
        return mechanism == "oauthbearer"
    return mechanism in _MECHANISMS and base in _MECHANISM_SETTINGS


def base_name(name: str) -> str:
    """`listener.name.internal.ssl.key.password` -> `ssl.key.password`."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    _, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    # Names of SASL settings may include a mechanism: listener.name.x.plain.sasl.jaas.config
    mechanism, _, setting = rest.partition(".")
    is_of_mechanism = setting.startswith("sasl.") or setting in _MECHANISM_SETTINGS
    if rest not in BROKER_CONFIGS and mechanism and is_of_mechanism:
        return setting
    return rest


def check_values(properties: Mapping[str, str]) -> None:
    """Checks each setting by itself."""
    for name, text in properties.items():
        check_value(name, text)


def check_value(name: str, text: str) -> None:
    key = find_key(name)
    if key is not None:
        key.parse(text)
    if name == "max.connections.per.ip.overrides":
        _ip_overrides(text)
    if base_name(name) == JAAS_CONFIG and isinstance(find_effect(name), Used):
        parse_jaas(text, setting=name)


def find_effect(name: str) -> Effect | None:
    key = find_key(name)
    return None if key is None else key.effect


def _settable_fields(values: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that are computed from single values, whatever their source."""
    result: dict[str, Any] = {}
    for field_name, name in _PLAIN.items():
        key = BROKER_CONFIGS[name]
        result[field_name] = key.parse(values.get(name, key.default))
    result["topic_defaults"] = topic_defaults(values)
    result["max_connections_per_ip_overrides"] = _ip_overrides(
        values.get("max.connections.per.ip.overrides", "")
    )
    return result


def _ip_overrides(text: str) -> dict[str, int]:
    result = {}
    for entry in split_list(text):
        host, _, count = entry.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,10}", count.strip()) or int(count) > INT_MAX:
            raise InvalidConfig(
                f"max.connections.per.ip.overrides contains {entry!r}: write host:count,host:count"
                f" with counts up to {INT_MAX}"
            )
        result[host.strip()] = int(count)
    return result


def check_times(values: Mapping[str, str]) -> None:
    if values.get("log.retention.ms", "-1").strip() == "0":
        raise InvalidConfig("log.retention.ms must be unlimited (-1) or at least 1")
    if int(values.get("log.roll.ms", "1")) < 1:
        raise InvalidConfig("log.roll.ms must be at least 1")
    if int(values.get("log.roll.jitter.ms", "0")) < 0:
        raise InvalidConfig("log.roll.jitter.ms must be at least 0")


class Violation(NamedTuple):
    """Settings that contradict each other."""

    names: tuple[str, ...]
    message: str


def find_violations(config: BrokerConfig) -> Iterator[Violation]:
    """Yields contradictions between settings that are valid by themselves."""
    given = {**config.raw, **config.dynamic_default, **config.dynamic_broker}
    yield from _group_bounds(config, given)
    yield from _heartbeats(config)
    if config.controller_quorum_auto_join_enable and not config.is_controller:
        yield Violation(
            ("controller.quorum.auto.join.enable",),
            "controller.quorum.auto.join.enable=true requires the controller role in process.roles",
        )
    threads = config.log_cleaner_threads
    if not threads or config.log_cleaner_dedupe_buffer_size // threads <= LOG_CLEANER_BUFFER_MIN:
        yield Violation(
            ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
            "log.cleaner.threads must be at least 1, and log.cleaner.dedupe.buffer.size more than"
            f" 1 MiB for each of the {threads} log.cleaner.threads",
        )
    if "*" in config.cordoned_log_dirs and len(config.cordoned_log_dirs) > 1:
        yield Violation(
            ("cordoned.log.dirs",),
            "cordoned.log.dirs has * and other values: write * alone to cordon all log dirs",
        )
    missing = [path for path in config.cordoned_log_dirs if path not in ("*", *config.log_dirs)]
    if missing:
        yield Violation(
            ("cordoned.log.dirs",),
            f"cordoned.log.dirs has {', '.join(missing)}, which is not in log.dirs",
        )
    yield from _replica_times(config)
    for names, problem in find_sasl_problems(config):
        yield Violation(names, problem)
    for name, problem in find_authorizer_problems(config.raw):
        yield Violation((name,), problem)
    if config.topic_defaults.retention_ms == 0:
        yield Violation(
            ("log.retention.hours", "log.retention.minutes", "log.retention.ms"),
            "log.retention.ms, log.retention.minutes or log.retention.hours, whichever applies,"
            " must be unlimited (-1) or at least 1",
        )
    idle_ms, delay_ms = (
        config.connections_max_idle_ms,
        config.connection_failed_authentication_delay_ms,
    )
    if 0 <= idle_ms <= delay_ms:
        yield Violation(
            ("connections.max.idle.ms", "connection.failed.authentication.delay.ms"),
            f"connections.max.idle.ms ({idle_ms}) must be more than"
            f" connection.failed.authentication.delay.ms ({delay_ms}), or -1 for no limit",
        )
    if "classic" not in config.group_coordinator_rebalance_protocols:
        yield Violation(
            ("group.coordinator.rebalance.protocols",),
            "group.coordinator.rebalance.protocols must contain classic: disabling the classic"
            " protocol is not supported",
        )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield Violation(
            ("queued.max.request.bytes",),
            "queued.max.request.bytes must be at least socket.request.max.bytes"
            f" ({config.socket_request_max_bytes}), or 0 or less for no limit",
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        yield Violation(
            ("max.connections.per.ip", "max.connections.per.ip.overrides"),
            "max.connections.per.ip=0 rejects all connections: allow some addresses in"
            " max.connections.per.ip.overrides",
        )


def _group_bounds(config: BrokerConfig, given: Iterable[str]) -> Iterator[Violation]:
    """Checks that group.x.y is between group.x.min.y and group.x.max.y, as the defaults are."""
    for name in given:
        family = re.fullmatch(r"(group\.(?:consumer|share|streams))\.(?:(?:min|max)\.)?(.+)", name)
        if family is None:
            continue
        middle, lowest, highest = (
            f"{family[1]}.{bound}{family[2]}" for bound in ("", "min.", "max.")
        )
        if middle not in BROKER_CONFIGS or lowest not in BROKER_CONFIGS:
            continue
        low, value, high = (int(config.text(name) or 0) for name in (lowest, middle, highest))
        if not low <= value <= high:
            yield Violation(
                (middle, lowest, highest),
                f"{middle} ({value}) must be between {lowest} ({low}) and {highest} ({high})",
            )


def _heartbeats(config: BrokerConfig) -> Iterator[Violation]:
    for kind in ("consumer", "share", "streams"):
        names = (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
        heartbeat_ms, session_ms = (int(config.text(name) or 0) for name in names)
        if heartbeat_ms >= session_ms:
            yield Violation(
                names,
                f"{names[0]} ({heartbeat_ms}) must be less than {names[1]} ({session_ms})",
            )


def _replica_times(config: BrokerConfig) -> Iterator[Violation]:
    if config.replica_fetch_wait_max_ms > config.replica_socket_timeout_ms:
        yield Violation(
            ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
            "replica.socket.timeout.ms must be at least replica.fetch.wait.max.ms, to prevent"
            " unnecessary socket timeouts",
        )
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        yield Violation(
            ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
            "replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms, to prevent frequent"
            " ISR changes",
        )


def _check_together(config: BrokerConfig) -> None:
    check_times({**config.raw, **config.dynamic_default, **config.dynamic_broker})
    for violation in find_violations(config):
        raise InvalidConfig(violation.message)
