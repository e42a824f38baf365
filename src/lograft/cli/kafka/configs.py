"""kafka-configs: describes and changes settings of topics, brokers and groups, SCRAM users and
quotas."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Final

from lograft.cli.client_runner import run_admin
from lograft.cli.kafka import quotas
from lograft.cli.kafka.quotas import CLIENTS, IPS, USERS
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
#: Options that name an entity with quotas.
ENTITY_FLAGS: Final = {"user": USERS, "client": CLIENTS, "ip": IPS}
#: Types of entities that may be specified together.
ENTITIES: Final = ({USERS}, {CLIENTS}, {USERS, CLIENTS}, {IPS})
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
    for flag in ("describe", "alter", "all", "broker-defaults"):
        parser.add_argument(f"--{flag}", action="store_true")
    # Names and defaults belong to the types in their order.
    parser.add_argument(
        "--entity-type", action="append", default=[], choices=[*KINDS, USERS, CLIENTS, IPS]
    )
    parser.add_argument("--entity-name", action="append", default=[], dest="entity_names")
    parser.add_argument("--entity-default", action="append_const", const="", dest="entity_names")
    for flag in ENTITY_FLAGS:
        parser.add_argument(f"--{flag}")
        parser.add_argument(f"--{flag}-defaults", action="store_const", const="", dest=flag)
    for flag in ("topic", "broker", "group", "client-metrics", "broker-logger"):
        parser.add_argument(f"--{flag}")
    parser.add_argument("--add-config", metavar="NAME=VALUE,…")
    parser.add_argument("--add-config-file", metavar="FILE")
    parser.add_argument("--delete-config", metavar="NAME,…")
    arguments = parser.parse_args(list(words))
    action = parser.require_one(arguments, "describe", "alter")
    entity = _parse_quota_entity(parser, arguments)
    if entity:
        return _run_for_clients(parser, arguments, action, entity)
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


def _parse_quota_entity(
    parser: Parser, arguments: argparse.Namespace
) -> dict[str, str | None] | None:
    """Returns the users, clients or addresses that the options name; None if they name none."""
    types: list[str] = list(arguments.entity_type)
    names: list[str | None] = list(arguments.entity_names)
    for flag, kind in ENTITY_FLAGS.items():
        if getattr(arguments, flag) is not None:
            types.append(kind)
            names.append(getattr(arguments, flag))
    if not set(types) & {USERS, CLIENTS, IPS}:
        return None
    if len(set(types)) < len(types) or set(types) not in ENTITIES:
        parser.error(
            "Only 'users' and 'clients' entity types may be specified together, each of them once"
        )
    if len(names) > len(types):
        parser.error("there are more entity names than entity types")
    names += [None] * (len(types) - len(names))
    entity = dict(zip(types, names, strict=True))
    return {kind: entity[kind] for kind in (USERS, CLIENTS, IPS) if kind in entity}


def _run_for_clients(
    parser: Parser, arguments: argparse.Namespace, action: str, entity: dict[str, str | None]
) -> int:
    try:
        settings = settings_of(parser, arguments)
        if action == "describe":
            run_admin(settings, lambda admin: _describe_clients(admin, entity))
            return 0
        if None in entity.values():
            parser.error("an entity-name or entity-default must be specified with --alter of users")
        changes = _parse_changes(arguments)
        if any(change.name in MECHANISMS for change in changes) and entity.keys() == {USERS}:
            user = entity[USERS]
            if not user:
                raise InvalidInput(
                    "--entity-default and --user-defaults are not allowed with SCRAM credentials"
                )
            if any(change.name in quotas.CLIENT_QUOTAS for change in changes):
                raise InvalidInput(
                    "quotas and SCRAM credentials cannot be altered in the same call"
                )
            scram = [_parse_scram_change(user, change) for change in changes]
            run_admin(settings, lambda admin: admin.alter_user_scram_credentials(scram))
        else:
            quotas.check_names(entity, changes)
            run_admin(settings, lambda admin: quotas.alter(admin, entity, changes))
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing config command with args: {error}", file=sys.stderr)
        return 1
    kind, name = next(iter(entity.items()))
    if name:
        print(f"Completed updating config for {kind.removesuffix('s')} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")
    return 0


async def _describe_clients(admin: Admin, entity: dict[str, str | None]) -> None:
    await quotas.describe(admin, entity)
    if entity.keys() != {USERS} or entity[USERS] == "":
        return
    name = entity[USERS]
    found = await admin.describe_user_scram_credentials(None if name is None else [name])
    for user, mechanisms in sorted(found.items()):
        configs = ", ".join(
            f"{mechanism}=iterations={count}" for mechanism, count in mechanisms.items()
        )
        print(f"SCRAM credential configs for user-principal '{user}' are {configs}")


def _parse_scram_change(user: str, change: ConfigChange) -> ScramUpsertion | ScramDeletion:
    """Error messages do not include the value, which contains the password."""
    if change.name not in MECHANISMS:
        raise InvalidInput(f"{change.name} is neither a quota nor one of {', '.join(MECHANISMS)}")
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
    if not arguments.entity_type:
        parser.error("at least one entity type is required: --entity-type")
    if len(arguments.entity_type) > 1 or len(arguments.entity_names) > 1:
        parser.error("only 'users' and 'clients' entity types may be specified together")
    names = arguments.entity_names
    return KINDS[arguments.entity_type[0]], names[0] if names else None


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
