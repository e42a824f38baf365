"""The commands `lograft quotas …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json, pairs_of

if TYPE_CHECKING:
    from lograft.client.admin import QuotaEntity

quotas = typer.Typer(help="List, set and remove quotas of clients.", **SETTINGS)

User = Annotated[str | None, typer.Option(metavar="NAME", help="Quotas of this user.")]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--client-id", metavar="NAME", help="Quotas of this client id; can be combined with --user."
    ),
]
Ip = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Quotas of this IP address.")]
DefaultUser = Annotated[
    bool,
    typer.Option("--default-user", help="Default quotas, for users without quotas of their own."),
]
DefaultClientId = Annotated[
    bool,
    typer.Option(
        "--default-client-id", help="Default quotas, for client ids without quotas of their own."
    ),
]
DefaultIp = Annotated[
    bool,
    typer.Option(
        "--default-ip", help="Default quotas, for IP addresses without quotas of their own."
    ),
]


@quotas.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List all quotas."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json, table

    found = with_admin(
        bootstrap_server, command_config, lambda admin: admin.describe_client_quotas()
    )
    rows = sorted(
        (str(entity), name, value)
        for entity, values in found.items()
        for name, value in values.items()
    )
    if json:
        show_json(
            [{"entity": entity, "quota": name, "value": value} for entity, name, value in rows]
        )
    elif not rows:
        print("No quotas; set one with `lograft quotas set --user NAME producer_byte_rate=BYTES`.")
    else:
        show(
            table(
                ["ENTITY", "QUOTA", "VALUE"],
                ((entity, name, f"{value:.15g}") for entity, name, value in rows),
            )
        )


@quotas.command("set")
def set_(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…",
            help="producer_byte_rate, consumer_byte_rate, request_percentage,"
            " controller_mutation_rate; for IP addresses, connection_creation_rate.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the quotas without setting them.")
    ] = False,
) -> None:
    """Set quotas of a user, a client id, both, or an IP address.

    Quotas that are not specified keep their values.
    """
    from lograft.cli.client_runner import with_admin

    entity = _entity(
        _name(user, default_user), _name(client_id, default_client_id), _name(ip, default_ip)
    )
    changes: dict[str, float | None] = {}
    for name, text in pairs_of(values).items():
        try:
            changes[name] = float(text)
        except ValueError:
            raise typer.BadParameter(f"the value of {name} must be a number, not {text}") from None
    with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.alter_client_quotas({entity: changes}, validate_only=dry_run),
    )
    names = ", ".join(changes)
    print(f"Dry run: {names} of {entity} would be set." if dry_run else f"Set {names} of {entity}.")


@quotas.command()
def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…", help="Quotas to remove; by default, all quotas of the entity."
        ),
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    default_user: DefaultUser = False,
    default_client_id: DefaultClientId = False,
    default_ip: DefaultIp = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Remove quotas of a user, a client id, both, or an IP address."""
    from lograft.cli.client_runner import with_admin
    from lograft.client.admin import Admin
    from lograft.model.errors import InvalidInput

    entity = _entity(
        _name(user, default_user), _name(client_id, default_client_id), _name(ip, default_ip)
    )

    async def work(admin: Admin) -> list[str]:
        known = (await admin.describe_client_quotas(entity)).get(entity, {})
        removed = names or list(known)
        missing = [name for name in removed if name not in known]
        if missing or not removed:
            what = ", ".join(missing) or "quota"
            raise InvalidInput(f"{entity} has no {what}: `lograft quotas list` shows all quotas")
        await admin.alter_client_quotas({entity: dict.fromkeys(removed)})
        return removed

    print(f"Removed {', '.join(with_admin(bootstrap_server, command_config, work))} of {entity}.")


def _name(name: str | None, is_default: bool) -> str | None:
    """Returns an empty name for the default."""
    if name == "" or (name is not None and is_default):
        raise typer.BadParameter("specify a name or the default of an entity, not both")
    return "" if is_default else name


def _entity(user: str | None, client_id: str | None, ip: str | None) -> "QuotaEntity":
    from lograft.client.admin import QuotaEntity

    has_client = user is not None or client_id is not None
    if has_client == (ip is not None):
        raise typer.BadParameter(
            "specify a user (--user, --default-user), a client id (--client-id,"
            " --default-client-id) or both, or an IP address (--ip, --default-ip)"
        )
    return QuotaEntity(user, client_id, ip)
