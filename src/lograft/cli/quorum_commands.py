"""The commands `lograft quorum …`: the controllers and their votes."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json

if TYPE_CHECKING:
    from lograft.client.admin import Admin

quorum = typer.Typer(help="See the quorum of controllers and change who votes.", **SETTINGS)

Node = Annotated[int, typer.Argument(metavar="NODE", help="The controller's node.id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Its directory id; if left out, the one that the quorum sees it with."
    ),
]


@quorum.command()
def describe(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show who votes, who leads, who follows, and how far everybody is."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.quorum import describe_lines

    found = with_admin(bootstrap_server, command_config, lambda admin: admin.describe_quorum())
    if json:
        show_json(found)
    else:
        show(describe_lines(found))


@quorum.command("add")
def add_voter(
    node: Node,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where its controller listener is.")
    ],
    listener: Annotated[
        str, typer.Option(metavar="NAME", help="The name of that listener.")
    ] = "CONTROLLER",
    directory: Directory = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Let a controller that follows the quorum vote in it."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.quorum import directory_of
    from lograft.model.listeners import parse_address

    where = parse_address("--address", address)

    async def work(admin: "Admin") -> None:
        identity = await directory_of(admin, node, directory, among="observers")
        await admin.add_voter(node, identity, {listener: where})

    with_admin(bootstrap_server, command_config, work)
    print(f"Controller {node} votes from now on.")


@quorum.command("remove")
def remove_voter(
    node: Node,
    directory: Directory = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Take a controller's vote; it goes on following the quorum."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.quorum import directory_of

    async def work(admin: "Admin") -> None:
        identity = await directory_of(admin, node, directory, among="voters")
        await admin.remove_voter(node, identity)

    with_admin(bootstrap_server, command_config, work)
    print(f"Controller {node} votes no more.")
