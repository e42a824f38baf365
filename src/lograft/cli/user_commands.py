"""The commands `lograft users …`."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json

users = typer.Typer(help="List SCRAM users, set their passwords and remove them.", **SETTINGS)

User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user.")]
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@users.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List SCRAM users with their mechanisms and iteration counts."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json, table

    found = with_admin(
        bootstrap_server, command_config, lambda admin: admin.describe_user_scram_credentials()
    )
    if json:
        show_json(found)
    elif not found:
        print("No SCRAM users; create one with `lograft users add USER`.")
    else:
        rows = (
            (user, *(str(mechanisms.get(name, "")) for name in MECHANISMS))
            for user, mechanisms in sorted(found.items())
        )
        show(table(["USER", *MECHANISMS], rows))


@users.command()
def add(
    user: User,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="SCRAM mechanism; may be repeated. By default, SCRAM-SHA-512."
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(metavar="NUMBER", help="SCRAM iteration count.")
    ] = 4096,
    password_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read the password from the first line of a file, or of - (standard input).",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Add a user, or change the password.

    Asks for the password unless --password-file is given.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.passwords import read_password
    from lograft.client.admin import ScramUpsertion

    password = read_password(password_file, f"Password of {user}")
    changes = [
        ScramUpsertion(user, password, name, iterations) for name in mechanism or ("SCRAM-SHA-512",)
    ]
    with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.alter_user_scram_credentials(changes),
    )
    print(f"Set the password of user {user} for {', '.join(each.mechanism for each in changes)}.")


@users.command()
def remove(
    user: User,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Mechanism to remove; may be repeated. By default, all mechanisms of the user.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Remove a user. Existing connections stay open until their sessions expire."""
    from lograft.cli.client_runner import with_admin
    from lograft.client.admin import Admin, ScramDeletion
    from lograft.model.errors import InvalidInput

    async def work(admin: Admin) -> list[str]:
        found = await admin.describe_user_scram_credentials([user])
        names = mechanism or list(found.get(user, ()))
        if not names:
            raise InvalidInput(f"user {user} does not exist: `lograft users list` shows all users")
        await admin.alter_user_scram_credentials([ScramDeletion(user, name) for name in names])
        return names

    removed = with_admin(bootstrap_server, command_config, work)
    print(f"Removed the password of user {user} for {', '.join(removed)}.")
