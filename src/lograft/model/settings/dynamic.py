"""Dynamic broker settings: which stored values apply to a node, and which changes are valid.

A value is invalid by itself (`value_problem`), in combination with others (`find_violations`), or
as a change of the current config (`CHANGE_CHECKS`). Requests with invalid values are rejected: by
the broker whose settings they change, and by the active controller as far as it can validate them
without the broker's configuration file (`check_without_file`). Invalid values that are already
stored (by Apache Kafka, by an older version, or valid only for another node) are skipped
individually: they never disable other values.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.listeners import check_listener_texts, parse_security_map
from lograft.model.settings.broker import (
    BROKER_CONFIGS,
    LISTENER_LIMITS,
    LISTENER_PREFIX,
    BrokerConfig,
    Violation,
    base_name,
    check_times,
    check_value,
    find_violations,
    keys_of,
    with_dynamic,
)
from lograft.model.settings.effects import check_supported
from lograft.model.settings.keys import (
    LONG_MAX,
    ConfigSource,
    UpdateMode,
    check_length,
    split_list,
)
from lograft.model.settings.topic import topic_defaults

PROVIDERS: Final = "config.providers"
#: Matches also variables that no provider could resolve, which are mistakes too.
_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")
#: TLS stores belong to a listener: Kafka accepts them dynamically only under its prefix.
STORE_SETTINGS: Final = frozenset({
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
})  # fmt: skip
#: Settings of a listener that may be set for all brokers.
_CLUSTER_LISTENER_SETTINGS: Final = frozenset({*LISTENER_LIMITS, "num.network.threads"})
#: Class names of Kafka that Lograft accepts, for settings whose effect does not need the class.
_KNOWN_CLASSES: Final = {
    "metric.reporters": frozenset({"org.apache.kafka.common.metrics.JmxReporter"})
}
#: Kafka resizes its thread pools to between half and double their size.
_THREAD_COUNTS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
#: Dynamic settings that are only meaningful together with the rest of a node's layout.
_LAYOUT: Final = ("listeners", "listener.security.protocol.map")
_LOCAL_RETENTION: Final = ("log.local.retention.bytes", "log.local.retention.ms")
_RETENTION: Final = (
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
)
#: Depend on the broker's file, whatever the other dynamic settings are.
_DEPENDENT_ON_FILE: Final = frozenset(
    {"cordoned.log.dirs", *_LAYOUT, *_LOCAL_RETENTION, *_RETENTION}
)
#: Values of a file with which the dynamic settings would be valid.
_MOST_TOLERANT: Final = {
    "log.cleaner.dedupe.buffer.size": str(LONG_MAX),
    "log.cleaner.threads": "1",
}
#: If more values than this contradict each other, all are skipped instead of the fewest.
_SEARCHED_MAX: Final = 10


class SkippedValue(NamedTuple):
    """A stored value that does not apply to this node."""

    name: str
    #: DYNAMIC_BROKER or DYNAMIC_DEFAULT_BROKER.
    source: ConfigSource
    reason: str


class ResolvedConfig(NamedTuple):
    config: BrokerConfig
    skipped: tuple[SkippedValue, ...] = ()


#: Raises InvalidConfig if the node cannot change from the first config to the second.
ChangeCheck: TypeAlias = Callable[[BrokerConfig, BrokerConfig], None]
#: Raises InvalidConfig if files that settings name cannot be used. Gets the config after a request,
#: and the names of the settings that the request sets, perhaps to their current value.
FileCheck: TypeAlias = Callable[[BrokerConfig, Collection[str]], None]
_Entry: TypeAlias = tuple[ConfigSource, str]


def validate_dynamic(
    values: Mapping[str, str], *, changed_names: Iterable[str], whole_cluster: bool
) -> None:
    """Checks the values of a broker, or of all (`whole_cluster`), that a request has changed, as
    far as possible without that broker's own file. Raises InvalidInput; for brokers Kafka's error
    code is INVALID_REQUEST."""
    changed = {name: values[name] for name in changed_names if name in values}
    for check in _SCOPE_CHECKS:
        rejected = [name for name in changed if check.rejects(name, whole_cluster)]
        if rejected:
            raise InvalidInput(f"{check.message}: [{', '.join(rejected)}]{check.advice}")
    try:
        for name, text in changed.items():
            _check_text(name, text)
    except InvalidConfig as error:
        raise InvalidInput(str(error)) from None


def value_problem(name: str, text: str, *, whole_cluster: bool) -> str | None:
    """Returns why a stored value cannot apply, regardless of the other settings."""
    try:
        validate_dynamic({name: text}, changed_names=[name], whole_cluster=whole_cluster)
    except InvalidInput as error:
        return str(error)
    return None


def resolve_dynamic(
    static: BrokerConfig, *, default: Mapping[str, str], broker: Mapping[str, str]
) -> ResolvedConfig:
    """Returns the node's config with all valid stored values. Of values that contradict each other,
    the smallest set is skipped; of equally small sets, the one with more values of this broker."""
    values: dict[_Entry, str] = {}
    skipped: list[SkippedValue] = []
    for source, layer in (
        (ConfigSource.DYNAMIC_BROKER, broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, default),
    ):
        for name in sorted(layer):
            is_default = source is ConfigSource.DYNAMIC_DEFAULT_BROKER
            problem = value_problem(name, layer[name], whole_cluster=is_default)
            if problem is None:
                values[source, name] = layer[name]
            else:
                skipped.append(SkippedValue(name, source, problem))
    # Each round removes at least one value: dropping some may uncover another contradiction.
    while violations := _first_linked(_contradictions(static, values), values):
        dropped = {
            entry: values.pop(entry) for entry in _fewest_to_drop(static, values, violations)
        }
        for (source, name), text in dropped.items():
            # Without the other skipped values, which have their own reasons.
            reasons = [*_contradictions(static, {**values, (source, name): text}), *violations]
            reason = next((v for v in reasons if name in v.names), violations[0])
            skipped.append(SkippedValue(name, source, reason.message))
    return ResolvedConfig(_overlay(static, values), tuple(skipped))


def check_change(
    static: BrokerConfig,
    current: ResolvedConfig,
    *,
    default: Mapping[str, str],
    broker: Mapping[str, str],
    named: Collection[_Entry],
    checks: Iterable[ChangeCheck],
    file_checks: Iterable[FileCheck] = (),
) -> None:
    """Raises InvalidInput unless this node can apply the given dynamic values, of which a request
    sets those `named`. Values that were already skipped before the request are ignored."""
    changed = resolve_dynamic(static, default=default, broker=broker)
    skipped_before = {(skipped.source, skipped.name) for skipped in current.skipped} - set(named)
    for value in changed.skipped:
        if (value.source, value.name) not in skipped_before:
            raise InvalidInput(value.reason)
    try:
        for check in checks:
            check(current.config, changed.config)
        for check_files in file_checks:
            check_files(changed.config, [name for _, name in named])
    except InvalidConfig as error:
        raise InvalidInput(str(error)) from None


def check_thread_counts(old: BrokerConfig, new: BrokerConfig) -> None:
    listeners = [None, *(endpoint.name for endpoint in new.listeners)]
    for name in _THREAD_COUNTS:
        for listener in listeners if name == "num.network.threads" else (None,):
            before, after = (
                int(config.text(name, listener=listener) or 0) for config in (old, new)
            )
            if before != after and not before // 2 <= after <= before * 2:
                raise InvalidConfig(
                    f"{name}={after} must be at least half and at most double the current value"
                    f" {before}: change it in several steps"
                )


#: Checks of the model; a node adds those that need its files and sockets.
CHANGE_CHECKS: Final[tuple[ChangeCheck, ...]] = (check_thread_counts,)


def check_without_file(
    own: BrokerConfig, values: Mapping[str, str], *, named: Collection[str]
) -> None:
    """Raises InvalidInput if no broker could apply the dynamic values, of which a request sets
    those `named`, whatever its file is. `own` is the config of the controller that makes the
    check."""
    try:
        if "listener.security.protocol.map" in values:
            parse_security_map(values["listener.security.protocol.map"])
        if "listeners" in values:
            check_listener_texts(split_list(values["listeners"]))
    except InvalidConfig as error:
        if set(_LAYOUT).intersection(named):
            raise InvalidInput(str(error)) from None
    # Stored values that are invalid by themselves are ignored.
    judged = {
        name: text
        for name, text in values.items()
        if name not in _DEPENDENT_ON_FILE and value_problem(name, text, whole_cluster=False) is None
    }
    config = with_dynamic(own, default=_MOST_TOLERANT, broker=judged)
    stored = {*judged, *_MOST_TOLERANT, "max.connections.per.ip.overrides"}
    for violation in find_violations(config):
        if stored.issuperset(violation.names) and set(violation.names).intersection(named):
            raise InvalidInput(violation.message)


class _ScopeCheck(NamedTuple):
    rejects: Callable[[str, bool], bool]
    message: str
    advice: str = ""


def _is_read_only(name: str, _: bool) -> bool:
    key = BROKER_CONFIGS.get(base_name(name))
    return key is not None and key.mode is UpdateMode.READ_ONLY


def _needs_listener(name: str, _: bool) -> bool:
    return name in STORE_SETTINGS


def _needs_broker(name: str, whole_cluster: bool) -> bool:
    base = base_name(name)
    if not whole_cluster or base in _CLUSTER_LISTENER_SETTINGS:
        return False
    key = BROKER_CONFIGS.get(base)
    return name.startswith(LISTENER_PREFIX) or (
        key is not None and key.mode is UpdateMode.PER_BROKER
    )


_SCOPE_CHECKS: Final = (
    _ScopeCheck(
        _is_read_only,
        "Cannot update these configs dynamically",
        "; change the node's configuration file and restart it",
    ),
    _ScopeCheck(
        _needs_listener,
        "These security configs can be dynamically updated only per-listener using the listener"
        " prefix",
        f"; write {LISTENER_PREFIX}<listener>.<config>",
    ),
    _ScopeCheck(
        _needs_broker,
        "Cannot update these configs at default cluster level, broker id must be specified",
    ),
)


def _check_text(name: str, text: str) -> None:
    if name == PROVIDERS or name.startswith(f"{PROVIDERS}."):
        raise InvalidConfig(
            f"{name} cannot be set dynamically, because only the configuration file has variables:"
            " set it there and restart the node"
        )
    check_no_variables({name: text})
    check_length(name, text)
    check_value(name, text)
    check_times({name: text})
    topic_defaults({name: text})
    base = base_name(name)
    check_supported(keys_of([name]), {name: text})
    if base in LISTENER_LIMITS and int(text) < 1:
        raise InvalidConfig(f"Invalid value {text} for configuration {name}: it must be at least 1")
    if base in _KNOWN_CLASSES:
        for item in split_list(text):
            if item not in _KNOWN_CLASSES[base]:
                raise InvalidConfig(f"Invalid value {item} for configuration {name}: unknown class")


def check_no_variables(values: Mapping[str, str]) -> None:
    """Raises InvalidConfig for variables in dynamic settings of brokers, topics, groups and
    clients."""
    for name, text in values.items():
        if _VARIABLE.search(text):
            raise InvalidConfig(
                f"Invalid value for configuration {name}: variables are resolved in the"
                " configuration file only; use the value itself, or set it in the file"
            )


def _overlay(static: BrokerConfig, values: Mapping[_Entry, str]) -> BrokerConfig:
    layers: dict[ConfigSource, dict[str, str]] = {}
    for (source, name), text in values.items():
        layers.setdefault(source, {})[name] = text
    return with_dynamic(
        static,
        default=layers.get(ConfigSource.DYNAMIC_DEFAULT_BROKER, {}),
        broker=layers.get(ConfigSource.DYNAMIC_BROKER, {}),
    )


def _contradictions(static: BrokerConfig, values: Mapping[_Entry, str]) -> list[Violation]:
    try:
        config = _overlay(static, values)
    except InvalidConfig as error:
        rest = {entry: text for entry, text in values.items() if entry[1] not in _LAYOUT}
        if len(rest) == len(values):
            return [Violation(tuple(name for _, name in values), str(error))]
        return [Violation(_LAYOUT, str(error)), *_contradictions(static, rest)]
    return [
        *find_violations(config),
        *_listener_violations(static, config),
        *_local_retention_violations(static, config),
    ]


def _listener_violations(static: BrokerConfig, config: BrokerConfig) -> Iterator[Violation]:
    before = static.used_listeners
    for name, security in config.used_listeners.items():
        if before.get(name, security) is not security:
            yield Violation(
                ("listener.security.protocol.map",),
                f"Security protocol cannot be updated for existing listener {name}:"
                " restart the node, or add a listener",
            )


def _local_retention_violations(static: BrokerConfig, config: BrokerConfig) -> Iterator[Violation]:
    known = {name for name, _ in _excessive_local_retentions(static)}
    for name, message in _excessive_local_retentions(config):
        if name not in known:
            is_dynamic = name in config.dynamic_broker or name in config.dynamic_default
            # The local retention has no effect, so it is skipped rather than the retention.
            yield Violation((name,) if is_dynamic else _RETENTION, message)


def _excessive_local_retentions(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    totals = (config.topic_defaults.retention_bytes, config.topic_defaults.retention_ms)
    for name, total in zip(_LOCAL_RETENTION, totals, strict=True):
        local = int(config.text(name) or -2)
        if total >= 0 and local != -2 and not 0 <= local <= total:
            total_name = name.replace(".local", "")
            yield name, f"{name}={local} must be -2 or at most {total_name} ({total})"


def _first_linked(found: list[Violation], values: Collection[_Entry]) -> list[Violation]:
    """Returns the first violation that involves stored values, and all that share settings with it,
    directly or through others."""
    stored = {name for _, name in values}
    first = next((violation for violation in found if stored.intersection(violation.names)), None)
    names: set[str] = set(first.names) if first is not None else set()
    linked: list[Violation] = []
    while True:
        more = [v for v in found if v not in linked and names.intersection(v.names)]
        if not more:
            return linked
        linked += more
        names.update(name for violation in more for name in violation.names)


def _fewest_to_drop(
    static: BrokerConfig, values: Mapping[_Entry, str], found: list[Violation]
) -> tuple[_Entry, ...]:
    """Returns the values to skip so that no violation of the settings in `found` remains."""
    involved = {name for violation in found for name in violation.names}
    # In the order of preference: `values` has this broker's first.
    candidates = [entry for entry in values if entry[1] in involved]
    if len(candidates) <= _SEARCHED_MAX:
        for count in range(1, len(candidates)):
            for dropped in combinations(candidates, count):
                rest = {entry: text for entry, text in values.items() if entry not in dropped}
                left = _contradictions(static, rest)
                if not any(involved.intersection(violation.names) for violation in left):
                    return dropped
    return tuple(candidates)
