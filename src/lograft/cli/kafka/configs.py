"""kafka-configs: describes and changes settings of topics, brokers and groups, and SCRAM users."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Final

from lograft.cli.client_runner import run_admin
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.cli.node_runner import read_properties
from lograft.client.admin import (
    Admin,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    Operation,
    ResourceKind,
    ScramDeletion,
    ScramUpsertion,
)
from lograft.client.errors import ClientError
from lograft.model.errors import InvalidInput

KINDS: Final = {
    "topics": ResourceKind.TOPIC,
    "brokers": ResourceKind.BROKER,
    "groups": ResourceKind.GROUP,
    "client-metrics": ResourceKind.CLIENT_METRICS,
    "broker-loggers": ResourceKind.BROKER_LOGGER,
}
USERS: Final = "users"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_ITERATIONS: Final = "4096"
SOURCES: Final = {
    ConfigSource.TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.ALL_BROKERS: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
    ConfigSource.BROKER_LOGGER: "DYNAMIC_BROKER_LOGGER_CONFIG",
    ConfigSource.CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    ConfigSource.GROUP: "DYNAMIC_GROUP_CONFIG",
    ConfigSource.UNKNOWN: "UNKNOWN",
}
DYNAMIC: Final = frozenset(SOURCES) - {
    ConfigSource.STATIC_BROKER,
    ConfigSource.DEFAULT,
    ConfigSource.UNKNOWN,
}
#: Commas inside brackets belong to the value.
_PAIR: Final = re.compile(r"([^=,\[\]]+)=(\[[^\]]*\]|[^,]*)(?:,|$)")


def run(words: Sequence[str]) -> int:
    parser = Parser("kafka-configs", "Describe and change settings of topics, brokers and groups.")
    parser.add_connection()
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT,…")
    for flag in ("describe", "alter", "all", "entity-default", "broker-defaults"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--entity-type", choices=[*KINDS, USERS])
    parser.add_argument("--entity-name")
    parser.add_argument("--user")
    for flag in ("topic", "broker", "group", "client-metrics", "broker-logger"):
        parser.add_argument(f"--{flag}")
    parser.add_argument("--add-config", metavar="NAME=VALUE,…")
    parser.add_argument("--add-config-file", metavar="FILE")
    parser.add_argument("--delete-config", metavar="NAME,…")
    arguments = parser.parse_args(list(words))
    action = parser.require_one(arguments, "describe", "alter")
    if arguments.entity_type == USERS or arguments.user is not None:
        return _run_for_users(parser, arguments, action)
    kind, name = _parse_entity(parser, arguments)
    try:
        if action == "alter":
            if name is None:
                parser.error("an entity-name or entity-default must be specified with --alter")
            resource, changes = ConfigResource(kind, name), _parse_changes(arguments)
            run_admin(
                settings_of(parser, arguments), lambda admin: _alter(admin, resource, changes)
            )
        else:
            run_admin(
                settings_of(parser, arguments),
                lambda admin: _describe(admin, kind, name, everything=arguments.all),
            )
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing config command with args: {error}", file=sys.stderr)
        return 1
    return 0


def _run_for_users(parser: Parser, arguments: argparse.Namespace, action: str) -> int:
    name = arguments.user or arguments.entity_name
    try:
        if action == "alter":
            if name is None:
                parser.error("an entity-name must be specified with --alter of users")
            changes = [_parse_scram_change(name, change) for change in _parse_changes(arguments)]
            settings = settings_of(parser, arguments)
            run_admin(settings, lambda admin: admin.alter_user_scram_credentials(changes))
            print(f"Completed updating config for user {name}.")
        else:
            names = None if name is None else [name]
            found = run_admin(
                settings_of(parser, arguments),
                lambda admin: admin.describe_user_scram_credentials(names),
            )
            for user, mechanisms in sorted(found.items()):
                configs = ", ".join(
                    f"{mechanism}=iterations={count}" for mechanism, count in mechanisms.items()
                )
                print(f"SCRAM credential configs for user-principal '{user}' are {configs}")
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing config command with args: {error}", file=sys.stderr)
        return 1
    return 0


def _parse_scram_change(user: str, change: ConfigChange) -> ScramUpsertion | ScramDeletion:
    """Error messages do not include the value, which contains the password."""
    if change.name not in MECHANISMS:
        raise InvalidInput(
            f"{change.name} is not one of {', '.join(MECHANISMS)}, the settings of users"
        )
    if change.operation is Operation.DELETE:
        return ScramDeletion(user, change.name)
    values = dict(part.partition("=")[::2] for part in (change.value or "").split(","))
    password, iterations = values.pop("password", ""), values.pop("iterations", DEFAULT_ITERATIONS)
    if values or not password or not iterations.isdecimal():
        raise InvalidInput(f"write {change.name}=[iterations=NUMBER,password=…]")
    return ScramUpsertion(user, password, change.name, int(iterations))


def _parse_entity(parser: Parser, arguments: argparse.Namespace) -> tuple[ResourceKind, str | None]:
    """Returns the kind and name of the entity. The name is "" for the default of all brokers, and
    None for all entities of the kind."""
    if arguments.broker_defaults:
        return ResourceKind.BROKER, ""
    for flag, kind in (
        ("topic", ResourceKind.TOPIC),
        ("broker", ResourceKind.BROKER),
        ("group", ResourceKind.GROUP),
        ("client_metrics", ResourceKind.CLIENT_METRICS),
        ("broker_logger", ResourceKind.BROKER_LOGGER),
    ):
        if getattr(arguments, flag) is not None:
            return kind, str(getattr(arguments, flag))
    if arguments.entity_type is None:
        parser.error("at least one entity type is required: --entity-type")
    return KINDS[arguments.entity_type], "" if arguments.entity_default else arguments.entity_name


def _parse_changes(arguments: argparse.Namespace) -> list[ConfigChange]:
    added: dict[str, str] = {}
    if arguments.add_config_file is not None:
        added |= read_properties(arguments.add_config_file)
    for name, value in _PAIR.findall(arguments.add_config or ""):
        added[name.strip()] = value[1:-1] if value.startswith("[") else value
    changes = [ConfigChange(name, value) for name, value in added.items()]
    changes += [
        ConfigChange(name.strip(), None, Operation.DELETE)
        for name in (arguments.delete_config or "").split(",")
        if name.strip()
    ]
    if not changes:
        raise InvalidInput(
            "at least one of --add-config, --add-config-file, or --delete-config is required"
        )
    return changes


async def _alter(admin: Admin, resource: ConfigResource, changes: list[ConfigChange]) -> None:
    await admin.alter_configs({resource: changes})
    if resource.name:
        print(f"Completed updating config for {_kind_name(resource)} {resource.name}.")
    else:
        print(f"Completed updating default config for {_kind_name(resource)}s in the cluster.")


async def _describe(
    admin: Admin, kind: ResourceKind, name: str | None, *, everything: bool
) -> None:
    resources = (
        [ConfigResource(kind, name)] if name is not None else await _list_resources(admin, kind)
    )
    for resource in resources:
        entries = (await admin.describe_configs([resource], synonyms=True))[resource]
        if not resource.name:
            print(f"Default configs for {_kind_name(resource)}s in the cluster are:")
        else:
            scope = "All" if everything else "Dynamic"
            print(f"{scope} configs for {_kind_name(resource)} {resource.name} are:")
        for entry in sorted(entries.values(), key=lambda entry: entry.name):
            if everything or _is_set_for(resource, entry):
                print(_format_line(entry))


def _is_set_for(resource: ConfigResource, entry: ConfigEntry) -> bool:
    """Returns whether the value was set for this resource rather than inherited."""
    if resource.kind is ResourceKind.BROKER:
        source = ConfigSource.BROKER if resource.name else ConfigSource.ALL_BROKERS
        return entry.source is source
    return entry.source in DYNAMIC and entry.source is not ConfigSource.ALL_BROKERS


async def _list_resources(admin: Admin, kind: ResourceKind) -> list[ConfigResource]:
    if kind is ResourceKind.TOPIC:
        names = [topic.name for topic in await admin.list_topics(internal=True)]
    elif kind is ResourceKind.GROUP:
        names = [group.group for group in await admin.list_groups()]
    elif kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
        names = [str(broker.id) for broker in (await admin.describe_cluster()).brokers]
        names += [""] if kind is ResourceKind.BROKER else []
    else:
        names = [resource.name for resource in await admin.list_config_resources([kind])]
    return [ConfigResource(kind, name) for name in names]


def _kind_name(resource: ConfigResource) -> str:
    return resource.kind.name.lower().replace("_", "-")


def _format_line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{SOURCES[synonym.source]}:{synonym.name}={_format_value(synonym.value)}"
        for synonym in entry.synonyms
    )
    return (
        f"  {entry.name}={_format_value(entry.value)} sensitive={str(entry.is_sensitive).lower()}"
        f" synonyms={{{synonyms}}}"
    )


def _format_value(value: str | None) -> str:
    return "null" if value is None else value
