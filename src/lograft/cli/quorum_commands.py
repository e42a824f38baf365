"""The commands `lograft quorum …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json

if TYPE_CHECKING:
    from lograft.client.admin import Admin

quorum = typer.Typer(help="Describe the quorum and change its voters.", **SETTINGS)

Node = Annotated[int, typer.Argument(metavar="NODE", help="The controller's node.id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        metavar="ID", help="Its directory id; by default, the one that the quorum reports."
    ),
]


@quorum.command()
def describe(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the leader, voters and observers."""
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
        str, typer.Option(metavar="HOST:PORT", help="The address of its controller listener.")
    ],
    listener: Annotated[
        str, typer.Option(metavar="NAME", help="The name of that listener.")
    ] = "CONTROLLER",
    directory: Directory = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Make an observer a voter."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.quorum import directory_of
    from lograft.model.listeners import parse_address

    endpoint = parse_address("--address", address)

    async def work(admin: "Admin") -> None:
        identity = await directory_of(admin, node, directory, among="observers")
        await admin.add_voter(node, identity, {listener: endpoint})

    with_admin(bootstrap_server, command_config, work)
    print(f"Added controller {node} to the voters.")


@quorum.command("remove")
def remove_voter(
    node: Node,
    directory: Directory = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Make a voter an observer."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.quorum import directory_of

    async def work(admin: "Admin") -> None:
        identity = await directory_of(admin, node, directory, among="voters")
        await admin.remove_voter(node, identity)

    with_admin(bootstrap_server, command_config, work)
    print(f"Removed controller {node} from the voters.")
