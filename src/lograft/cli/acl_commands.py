"""The commands `lograft acls …`."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json

acls = typer.Typer(help="List, add and remove ACLs, and explain decisions.", **SETTINGS)

Topic = Annotated[str | None, typer.Option(metavar="NAME", help="A topic, or * for all.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="A group, or * for all.")]
TransactionalId = Annotated[
    str | None, typer.Option(metavar="ID", help="A transactional id, or * for all.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Prefixed = Annotated[
    bool,
    typer.Option("--prefixed", help="Treat the resource name as a prefix (pattern type PREFIXED)."),
]
Principal = Annotated[
    str, typer.Option(metavar="TYPE:NAME", help="For example User:alice, or User:* for all users.")
]
SomePrincipal = Annotated[
    str | None, typer.Option(metavar="TYPE:NAME", help="Only ACLs of this principal.")
]
Operations = Annotated[
    list[str], typer.Option(metavar="NAME", help="Read, Write, …, or All; may be repeated.")
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="An address of the client, or *.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]


@acls.command("list")
def list_(
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    principal: SomePrincipal = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List ACLs.

    With a resource, list the ACLs that apply to it, including prefixed and wildcard ACLs.
    """
    from lograft.cli.acls import filter_of, list_lines, values_of
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json

    selected = filter_of(topic, group, transactional_id, cluster=cluster)._replace(
        principal=principal
    )
    found = with_admin(bootstrap_server, command_config, lambda admin: admin.list_acls(selected))
    if json:
        show_json([values_of(acl) for acl in found])
    else:
        show(list_lines(found))


@acls.command()
def add(
    principal: Principal,
    operation: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Host = "*",
    deny: Deny = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Add ACLs that allow or deny operations."""
    from lograft.cli.acls import list_lines, operation_of, resource_of
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show
    from lograft.security.acls import Acl, AclPermission, PatternType

    resource = resource_of(topic, group, transactional_id, cluster=cluster)
    created = [
        Acl(
            *resource,
            PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal,
            host,
            operation_of(name),
            AclPermission.DENY if deny else AclPermission.ALLOW,
        )
        for name in operation
    ]
    with_admin(bootstrap_server, command_config, lambda admin: admin.create_acls(created))
    show(list_lines(created))


@acls.command()
def remove(
    principal: Principal,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    operation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Only ACLs for this operation; by default, all operations."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Only ACLs for this host; by default, all hosts."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Remove the ACLs of a principal for a resource, and print them."""
    from lograft.cli.acls import list_lines, operation_of, resource_of
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show
    from lograft.security.acls import ANY, AclFilter, PatternType

    resource_type, name = resource_of(topic, group, transactional_id, cluster=cluster)
    selected = AclFilter(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        ANY if operation is None else operation_of(operation),
    )
    removed = with_admin(
        bootstrap_server, command_config, lambda admin: admin.delete_acls([selected])
    )
    show(list_lines(removed))


@acls.command()
def explain(
    principal: Principal,
    operation: Annotated[str, typer.Option(metavar="NAME", help="Read, Write, …")],
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address of the client.")
    ] = "127.0.0.1",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Show whether an operation is allowed, and by which rule.

    The result does not take super.users and allow.everyone.if.no.acl.found into account, because
    brokers do not expose them.
    """
    from lograft.cli.acls import explanation, needed_operation, resource_of
    from lograft.cli.client_runner import with_admin
    from lograft.security.authorization import Need

    resource = resource_of(topic, group, transactional_id, cluster=cluster)
    need = Need(needed_operation(operation), *resource)
    rule = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.explain_access(principal, need, host=host),
    )
    print(explanation(principal, need, host, rule))
