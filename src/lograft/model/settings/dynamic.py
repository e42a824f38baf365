"""Dynamic broker settings: which stored values apply to a node, and which changes are valid.

A value is invalid by itself (`value_problem`), together with others (`violations`), or as a change
of what is in force now (`CHANGE_CHECKS`). Requests with invalid values are rejected. Stored ones
(of a Kafka folder, of an older version, or right for another node only) are skipped one by one, so
that an invalid value never disables the others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.settings.broker import (
    BROKER_CONFIGS,
    LISTENER_PREFIX,
    BrokerConfig,
    Violation,
    base_name,
    check_times,
    check_value,
    keys_of,
    violations,
    with_dynamic,
)
from lograft.model.settings.effects import check_supported
from lograft.model.settings.keys import ConfigSource, UpdateMode, split_list
from lograft.model.settings.topic import topic_defaults

PROVIDERS: Final = "config.providers"
#: TLS stores belong to a listener: Kafka takes them dynamically under its prefix only.
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
#: Settings of a listener that may be set for all brokers, and must be at least 1 there.
_LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate")
_CLUSTER_LISTENER_SETTINGS: Final = frozenset({*_LISTENER_LIMITS, "num.network.threads"})
#: Kafka's classes that Lograft knows by name, for settings whose effect does not need the class.
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
#: More stored values than this in contradictions are all skipped, rather than the fewest possible.
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


#: Raises InvalidConfig when the node cannot change from the first config to the second.
ChangeCheck: TypeAlias = Callable[[BrokerConfig, BrokerConfig], None]
#: Raises InvalidConfig when files cannot be used that settings name. It gets the config after a
#: request, and the names of the settings that the request sets, perhaps to the value they have.
FileCheck: TypeAlias = Callable[[BrokerConfig, Collection[str]], None]
_Entry: TypeAlias = tuple[ConfigSource, str]


def validate_dynamic(
    values: Mapping[str, str], *, changed_names: Iterable[str], whole_cluster: bool
) -> None:
    """Checks the values of a broker, or of all (`whole_cluster`), that a request has changed, as
    far as they can be judged without that broker's own file. Raises InvalidInput: for brokers
    Kafka answers INVALID_REQUEST."""
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
    """Why a stored value cannot apply, whatever the other settings are."""
    try:
        validate_dynamic({name: text}, changed_names=[name], whole_cluster=whole_cluster)
    except InvalidInput as error:
        return str(error)
    return None


def resolve_dynamic(
    static: BrokerConfig, *, default: Mapping[str, str], broker: Mapping[str, str]
) -> ResolvedConfig:
    """The node's config with all stored values that are valid. Of values that contradict each
    other, the smallest set is skipped, of equal ones the one with more values of this broker."""
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
    found = _contradictions(static, values)
    if found:
        dropped = _fewest_to_drop(static, values, found)
        for source, name in dropped:
            reason = next((each.message for each in found if name in each.names), found[0].message)
            skipped.append(SkippedValue(name, source, reason))
            del values[source, name]
    return ResolvedConfig(_overlaid(static, values), tuple(skipped))


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
    sets those `named`. Values that were skipped before the request do not count against it."""
    changed = resolve_dynamic(static, default=default, broker=broker)
    known = {(each.source, each.name) for each in current.skipped} - set(named)
    for value in changed.skipped:
        if (value.source, value.name) not in known:
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


def check_local_retention(_: BrokerConfig, new: BrokerConfig) -> None:
    for unit, total in (
        ("ms", new.topic_defaults.retention_ms),
        ("bytes", new.topic_defaults.retention_bytes),
    ):
        local = int(new.text(f"log.local.retention.{unit}") or -2)
        if total >= 0 and local != -2 and not 0 <= local <= total:
            raise InvalidConfig(
                f"log.local.retention.{unit}={local} must be -2 or at most log.retention.{unit}"
                f" ({total})"
            )


#: Of the model; a node adds those that need its files and sockets.
CHANGE_CHECKS: Final[tuple[ChangeCheck, ...]] = (check_thread_counts, check_local_retention)


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
    _check_no_variables(name, text)
    check_value(name, text)
    check_times({name: text})
    topic_defaults({name: text})
    base = base_name(name)
    check_supported(keys_of([name]), {name: text})
    if base in _LISTENER_LIMITS and int(text) < 1:
        raise InvalidConfig(f"Invalid value {text} for configuration {name}: it must be at least 1")
    if base in _KNOWN_CLASSES:
        for word in split_list(text):
            if word not in _KNOWN_CLASSES[base]:
                raise InvalidConfig(f"Invalid value {word} for configuration {name}: unknown class")


def _check_no_variables(name: str, text: str) -> None:
    if name == PROVIDERS or name.startswith(f"{PROVIDERS}."):
        raise InvalidConfig(
            f"{name} cannot be set dynamically, since only the configuration file has variables:"
            " set it there and restart the node"
        )
    if "${" in text:
        from lograft.model.settings.providers import has_variable

        if has_variable(text):
            raise InvalidConfig(
                f"Invalid value for configuration {name}: variables are resolved in the"
                " configuration file only; give the value itself, or set it in the file"
            )


def _overlaid(static: BrokerConfig, values: Mapping[_Entry, str]) -> BrokerConfig:
    layers: dict[ConfigSource, dict[str, str]] = {}
    for (source, name), text in values.items():
        layers.setdefault(source, {})[name] = text
    return with_dynamic(
        static,
        default=layers.get(ConfigSource.DYNAMIC_DEFAULT_BROKER, {}),
        broker=layers.get(ConfigSource.DYNAMIC_BROKER, {}),
    )


def _contradictions(static: BrokerConfig, values: Mapping[_Entry, str]) -> list[Violation]:
    layout = ("listeners", "listener.security.protocol.map")
    try:
        config = _overlaid(static, values)
    except InvalidConfig as error:
        return [Violation(layout, str(error))]
    return [*violations(config), *_listener_violations(static, config)]


def _listener_violations(static: BrokerConfig, config: BrokerConfig) -> Iterator[Violation]:
    before = {endpoint.name: endpoint.security for endpoint in static.listeners}
    for endpoint in config.listeners:
        if before.get(endpoint.name, endpoint.security) is not endpoint.security:
            yield Violation(
                ("listener.security.protocol.map",),
                f"Security protocol cannot be updated for existing listener {endpoint.name}:"
                " restart the broker, or add a listener",
            )
        if endpoint.name not in before and endpoint.security.uses_sasl:
            yield Violation(
                ("listeners", "listener.security.protocol.map"),
                f"listener {endpoint.name} uses {endpoint.security.name}, but SASL is not built"
                " yet: use PLAINTEXT or SSL",
            )


def _fewest_to_drop(
    static: BrokerConfig, values: Mapping[_Entry, str], found: list[Violation]
) -> tuple[_Entry, ...]:
    involved = {name for violation in found for name in violation.names}
    # In the order of preference: `values` has this broker's first.
    candidates = [entry for entry in values if entry[1] in involved]
    if len(candidates) > _SEARCHED_MAX:
        return tuple(candidates)
    for count in range(1, len(candidates) + 1):
        for dropped in combinations(candidates, count):
            rest = {entry: text for entry, text in values.items() if entry not in dropped}
            if not _contradictions(static, rest):
                return dropped
    raise AssertionError("the settings of the file alone are valid")
