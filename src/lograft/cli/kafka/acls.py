"""kafka-acls: lists, adds and removes ACLs."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lograft.cli.acls import operation_of
from lograft.cli.client_runner import run_admin
from lograft.cli.kafka.tools import Parser, settings_of
from lograft.client.admin import Admin
from lograft.client.errors import ClientError
from lograft.model.errors import InvalidInput
from lograft.security.acls import (
    ALL_OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    AclPermission,
    PatternType,
    name_of_number,
    operation_name,
)
from lograft.security.authorization import CLUSTER_NAME, Operation, ResourceType

#: Options that name resources.
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
#: Operations that Kafka's tool accepts for a resource, besides All.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
PRODUCER_TOPIC: Final = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
PRODUCER_ID: Final = (Operation.WRITE, Operation.DESCRIBE)
CONSUMER_TOPIC: Final = (Operation.READ, Operation.DESCRIBE)


class Pattern(NamedTuple):
    """A resource pattern, or a filter of patterns."""

    resource_type: int
    name: str
    pattern_type: int

    def __str__(self) -> str:
        kind = name_of_number(ResourceType, self.resource_type)
        pattern = name_of_number(PatternType, self.pattern_type)
        return f"ResourcePattern(resourceType={kind}, name={self.name}, patternType={pattern})"


#: The operations that ACLs are for, by resource.
Access = dict[Pattern, set[int]]

CLUSTER: Final = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def run(words: Sequence[str]) -> int:
    parser = _make_parser()
    arguments = parser.parse_args(list(words))
    action = parser.require_one(arguments, "list", "add", "remove")
    _check(parser, arguments, action)
    try:
        settings = settings_of(parser, arguments)
        if action == "list":
            patterns = sorted(_patterns_of(arguments))
            principals = [_principal_of(text) for text in arguments.principal]
            run_admin(settings, lambda admin: _list(admin, patterns, principals))
        elif action == "add":
            added = _acls_of(arguments, _access_of(parser, arguments))
            run_admin(settings, lambda admin: _add(admin, added))
        else:
            removed = _acls_of(arguments, _access_of(parser, arguments))
            run_admin(settings, lambda admin: _remove(admin, removed, force=arguments.force))
    except (ClientError, InvalidInput) as error:
        print(f"Error while executing ACL command: {error}", file=sys.stderr)
        return 1
    return 0


def _make_parser() -> Parser:
    parser = Parser("kafka-acls", "List, add and remove ACLs.")
    parser.add_connection(controllers=True)
    for flag in ("list", "add", "remove", "cluster", "producer", "consumer", "idempotent", "force"):
        parser.add_argument(f"--{flag}", action="store_true")
    for name in (*RESOURCES, "operation", "principal"):
        parser.add_argument(f"--{name.replace('_', '-')}", action="append", default=[])
    for flag in ("allow-principal", "deny-principal", "allow-host", "deny-host"):
        parser.add_argument(f"--{flag}", action="append", default=[])
    parser.add_argument(
        "--resource-pattern-type", default="literal", metavar="LITERAL|PREFIXED|MATCH|ANY"
    )
    return parser


def _check(parser: Parser, arguments: argparse.Namespace, action: str) -> None:
    if (arguments.bootstrap_server is None) == (arguments.bootstrap_controller is None):
        parser.error("One of --bootstrap-server or --bootstrap-controller must be specified")
    names = [kind.name for kind in PatternType]
    if arguments.resource_pattern_type.upper() not in names:
        parser.error(f"--resource-pattern-type must be one of {', '.join(names)}")
    is_pattern = _pattern_type_of(arguments) in (PatternType.LITERAL, PatternType.PREFIXED)
    has_roles = arguments.producer or arguments.consumer
    if action == "list":
        _forbid(
            parser, arguments, "list", "producer", "consumer", "allow_host", "deny_host",
            "allow_principal", "deny_principal",
        )  # fmt: skip
        return
    if arguments.principal:
        parser.error(
            "The --principal option is only available if --list is set: use --allow-principal or"
            " --deny-principal"
        )
    if action == "add" and not is_pattern:
        kind = arguments.resource_pattern_type.upper()
        parser.error(
            f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls."
        )
    if has_roles:
        role = "producer" if arguments.producer else "consumer"
        _forbid(parser, arguments, role, "operation", "deny_principal", "deny_host")
    if arguments.idempotent and not arguments.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    if arguments.producer and not arguments.topic:
        parser.error("With --producer you must specify a --topic")
    if arguments.consumer and (
        not arguments.topic
        or not arguments.group
        or (not arguments.producer and (arguments.cluster or arguments.transactional_id))
    ):
        parser.error(
            "With --consumer you must specify a --topic and a --group and no --cluster or"
            " --transactional-id option should be specified."
        )
    if not has_roles and not _patterns_of(arguments):
        parser.error(
            "You must provide at least one resource: --topic <topic> or --cluster or --group"
            " <group> or --delegation-token <Delegation Token ID>"
        )
    if action == "add" and not (arguments.allow_principal or arguments.deny_principal):
        parser.error(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )


def _forbid(parser: Parser, arguments: argparse.Namespace, used: str, *others: str) -> None:
    for other in others:
        if getattr(arguments, other):
            parser.error(f'Option "[{used}]" can\'t be used with option "[{_flag(other)}]"')


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _pattern_type_of(arguments: argparse.Namespace) -> PatternType:
    return PatternType[arguments.resource_pattern_type.upper()]


def _patterns_of(arguments: argparse.Namespace) -> set[Pattern]:
    pattern_type = _pattern_type_of(arguments)
    patterns = {
        Pattern(kind, name.strip(), pattern_type)
        for option, kind in RESOURCES.items()
        for name in getattr(arguments, option)
    }
    return patterns | {CLUSTER} if arguments.cluster else patterns


def _access_of(parser: Parser, arguments: argparse.Namespace) -> Access:
    patterns = _patterns_of(arguments)
    access: Access = {}

    def grant(kind: ResourceType, operations: Iterable[Operation]) -> None:
        for pattern in patterns:
            if pattern.resource_type == kind:
                access.setdefault(pattern, set()).update(operations)

    if arguments.producer:
        grant(ResourceType.TOPIC, PRODUCER_TOPIC)
        grant(ResourceType.TRANSACTIONAL_ID, PRODUCER_ID)
        if arguments.idempotent:
            access[CLUSTER] = {Operation.IDEMPOTENT_WRITE}
    if arguments.consumer:
        grant(ResourceType.TOPIC, CONSUMER_TOPIC)
        grant(ResourceType.GROUP, (Operation.READ,))
    if arguments.producer or arguments.consumer:
        return access
    operations = {operation_of(name.strip()) for name in arguments.operation} or {ALL_OPERATIONS}
    for pattern in patterns:
        supported = OPERATIONS[ResourceType(pattern.resource_type)]
        if operations - {*supported, ALL_OPERATIONS}:
            names = ", ".join(operation_name(each) for each in (*supported, ALL_OPERATIONS))
            kind = name_of_number(ResourceType, pattern.resource_type)
            parser.error(f"ResourceType {kind} only supports operations {names}")
        access[pattern] = set(operations)
    return access


def _acls_of(arguments: argparse.Namespace, access: Access) -> dict[Pattern, list[Acl]]:
    """Returns the ACLs of each resource; none without principals."""
    who = [
        (_principal_of(principal), host.strip(), permission)
        for principals, hosts, permission in (
            (arguments.allow_principal, arguments.allow_host, AclPermission.ALLOW),
            (arguments.deny_principal, arguments.deny_host, AclPermission.DENY),
        )
        for principal in principals
        for host in hosts or [WILDCARD]
    ]
    return {
        pattern: [
            Acl(*pattern, principal, host, operation, permission)
            for principal, host, permission in who
            for operation in sorted(operations)
        ]
        for pattern, operations in sorted(access.items())
    }


def _principal_of(text: str) -> str:
    kind, found, name = text.strip().partition(":")
    if not (found and kind and name):
        raise InvalidInput(
            f"expected a string in format principalType:principalName but got {text}"
        )
    return f"{kind}:{name}"


async def _list(admin: Admin, patterns: list[Pattern], principals: list[str]) -> None:
    filters = [AclFilter(*pattern) for pattern in patterns] or [AclFilter()]
    found: dict[Acl, None] = {}
    for selected in filters:
        found |= dict.fromkeys(await admin.list_acls(selected))
    if not principals:
        _print_acls(found)
    for principal in principals:
        print(f"ACLs for principal `{principal}`")
        _print_acls(acl for acl in found if acl.principal == principal)


def _print_acls(acls: Iterable[Acl]) -> None:
    by_pattern: dict[Pattern, list[Acl]] = {}
    for acl in acls:
        by_pattern.setdefault(Pattern(*acl[:3]), []).append(acl)
    for pattern, entries in sorted(by_pattern.items()):
        print(f"Current ACLs for resource `{pattern}`:\n{_format_entries(entries)}\n")


async def _add(admin: Admin, added: dict[Pattern, list[Acl]]) -> None:
    for pattern, acls in added.items():
        print(f"Adding ACLs for resource `{pattern}`: \n {_format_entries(acls)}\n")
        await admin.create_acls(acls)


async def _remove(admin: Admin, removed: dict[Pattern, list[Acl]], *, force: bool) -> None:
    for pattern, acls in removed.items():
        if not acls:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`?"
        else:
            question = (
                f"Are you sure you want to remove ACLs: \n {_format_entries(acls)} \n from resource"
                f" filter `{pattern}`?"
            )
        if force or _confirm(f"{question} (y/n)"):
            await admin.delete_acls([AclFilter(*acl) for acl in acls] or [AclFilter(*pattern)])


def _confirm(question: str) -> bool:
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _format_entries(acls: Iterable[Acl]) -> str:
    return "\n".join(
        f"\t(principal={acl.principal}, host={acl.host}, operation={operation_name(acl.operation)},"
        f" permissionType={name_of_number(AclPermission, acl.permission)})"
        for acl in acls
    )
