"""The commands `lograft cluster …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Json

if TYPE_CHECKING:
    from lograft.client.admin import Admin, ClusterDescription, Features

cluster = typer.Typer(help="Describe brokers, features and log directories.", **SETTINGS)


@cluster.command()
def describe(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show all brokers and the feature levels."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.cluster import describe_lines, registered_brokers
    from lograft.cli.output import show, show_json

    async def work(admin: "Admin") -> "tuple[ClusterDescription, Features]":
        return await registered_brokers(admin), await admin.describe_features()

    described, features = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json({"cluster": described, "features": features})
    else:
        show(describe_lines(described, features))


@cluster.command()
def disks(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show log directories with used and free space."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.cluster import disk_lines
    from lograft.cli.output import show, show_json

    found = with_admin(bootstrap_server, command_config, lambda admin: admin.describe_log_dirs())
    if json:
        show_json(found)
    else:
        show(disk_lines(found))


@cluster.command()
def unregister(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The id of an offline broker.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Unregister a broker.

    Move its replicas to other brokers first (lograft reassign).
    """
    from lograft.cli.client_runner import with_admin

    with_admin(bootstrap_server, command_config, lambda admin: admin.unregister_broker(broker))
    print(f"Unregistered broker {broker}.")
