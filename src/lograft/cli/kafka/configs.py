"""kafka-configs: describe and change settings of topics, brokers and groups."""

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


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-configs", "Describe and change settings of topics, brokers, groups.")
    parser.add_connection()
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT,…")
    for flag in ("describe", "alter", "all", "entity-default", "broker-defaults"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--entity-type", choices=KINDS)
    parser.add_argument("--entity-name")
    for flag in ("topic", "broker", "group", "client-metrics", "broker-logger"):
        parser.add_argument(f"--{flag}")
    parser.add_argument("--add-config", metavar="NAME=VALUE,…")
    parser.add_argument("--add-config-file", metavar="FILE")
    parser.add_argument("--delete-config", metavar="NAME,…")
    given = parser.parse_args(list(arguments))
    action = parser.require_one(given, "describe", "alter")
    kind, name = _entity(parser, given)
    try:
        if action == "alter":
            if name is None:
                parser.error("an entity-name or entity-default must be specified with --alter")
            resource, changes = ConfigResource(kind, name), _changes(given)
            run_admin(settings_of(parser, given), lambda admin: _alter(admin, resource, changes))
        else:
            run_admin(
                settings_of(parser, given),
                lambda admin: _describe(admin, kind, name, everything=given.all),
            )
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing config command with args: {error}", file=sys.stderr)
        return 1
    return 0


def _entity(parser: Parser, given: argparse.Namespace) -> tuple[ResourceKind, str | None]:
    """The name: "" for the default of all brokers, None for all entities of the kind."""
    if given.broker_defaults:
        return ResourceKind.BROKER, ""
    for flag, kind in (
        ("topic", ResourceKind.TOPIC),
        ("broker", ResourceKind.BROKER),
        ("group", ResourceKind.GROUP),
        ("client_metrics", ResourceKind.CLIENT_METRICS),
        ("broker_logger", ResourceKind.BROKER_LOGGER),
    ):
        if getattr(given, flag) is not None:
            return kind, str(getattr(given, flag))
    if given.entity_type is None:
        parser.error("at least one entity type is required: --entity-type")
    return KINDS[given.entity_type], "" if given.entity_default else given.entity_name


def _changes(given: argparse.Namespace) -> list[ConfigChange]:
    added: dict[str, str] = {}
    if given.add_config_file is not None:
        added |= read_properties(given.add_config_file)
    for name, value in _PAIR.findall(given.add_config or ""):
        added[name.strip()] = value[1:-1] if value.startswith("[") else value
    changes = [ConfigChange(name, value) for name, value in added.items()]
    changes += [
        ConfigChange(name.strip(), None, Operation.DELETE)
        for name in (given.delete_config or "").split(",")
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
        print(f"Completed updating config for {_word(resource)} {resource.name}.")
    else:
        print(f"Completed updating default config for {_word(resource)}s in the cluster.")


async def _describe(
    admin: Admin, kind: ResourceKind, name: str | None, *, everything: bool
) -> None:
    resources = [ConfigResource(kind, name)] if name is not None else await _all(admin, kind)
    for resource in resources:
        entries = (await admin.describe_configs([resource], synonyms=True))[resource]
        if not resource.name:
            print(f"Default configs for {_word(resource)}s in the cluster are:")
        else:
            which = "All" if everything else "Dynamic"
            print(f"{which} configs for {_word(resource)} {resource.name} are:")
        for entry in sorted(entries.values(), key=lambda one: one.name):
            if everything or _is_own(resource, entry):
                print(_line(entry))


def _is_own(resource: ConfigResource, entry: ConfigEntry) -> bool:
    """Whether it was set for this very thing."""
    if resource.kind is ResourceKind.BROKER:
        wanted = ConfigSource.BROKER if resource.name else ConfigSource.ALL_BROKERS
        return entry.source is wanted
    return entry.source in DYNAMIC and entry.source is not ConfigSource.ALL_BROKERS


async def _all(admin: Admin, kind: ResourceKind) -> list[ConfigResource]:
    if kind is ResourceKind.TOPIC:
        names = [one.name for one in await admin.list_topics(internal=True)]
    elif kind is ResourceKind.GROUP:
        names = [one.group for one in await admin.list_groups()]
    elif kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
        names = [str(one.id) for one in (await admin.describe_cluster()).brokers]
        names += [""] if kind is ResourceKind.BROKER else []
    else:
        names = [one.name for one in await admin.list_config_resources([kind])]
    return [ConfigResource(kind, name) for name in names]


def _word(resource: ConfigResource) -> str:
    return resource.kind.name.lower().replace("_", "-")


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(
        f"{SOURCES[one.source]}:{one.name}={_value(one.value)}" for one in entry.synonyms
    )
    return (
        f"  {entry.name}={_value(entry.value)} sensitive={str(entry.is_sensitive).lower()}"
        f" synonyms={{{synonyms}}}"
    )


def _value(value: str | None) -> str:
    return "null" if value is None else value
