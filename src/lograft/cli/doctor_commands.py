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
    """Check the cluster and the connection to it.

    Checks the settings, the bootstrap servers, each broker at its advertised address, the quorum
    and the partitions, and suggests a next step for each problem. The exit code is 1 if a check
    fails.
    """
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.doctor import examine, report_lines, resolve_host
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
            return await examine(admin, resolve_host)

    report = run(work())
    if json:
        show_json({"well": report.is_well, "findings": report.findings})
    else:
        show(report_lines(report))
    raise typer.Exit(0 if report.is_well else 1)
