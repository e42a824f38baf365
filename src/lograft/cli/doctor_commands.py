"""The command `lograft doctor`."""

from typing import TYPE_CHECKING

import typer

from lograft.cli.options import BootstrapServer, CommandConfig, Json

if TYPE_CHECKING:
    from lograft.cli.doctor import Report


def doctor(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Look for what is wrong between here and the cluster, and say what to do next.

    Reads the settings, connects, checks every advertised address from here, the quorum and the
    partitions. Exit code 1 when something is wrong.
    """
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.doctor import examine, lines, system_resolve
    from lograft.cli.output import show, show_json
    from lograft.client.admin import Admin

    settings = {
        "client.id": "lograft-doctor",
        "request.timeout.ms": "10000",
        "default.api.timeout.ms": "15000",
        "socket.connection.setup.timeout.ms": "5000",
        **client_settings(bootstrap_server, command_config),
    }

    async def work() -> "Report":
        async with Admin(settings) as admin:
            return await examine(admin, system_resolve)

    report = run(work())
    if json:
        show_json({"well": report.is_well, "findings": report.findings})
    else:
        show(lines(report))
    raise typer.Exit(0 if report.is_well else 1)
