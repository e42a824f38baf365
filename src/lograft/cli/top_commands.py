"""The command `lograft top`."""

import signal
import sys
from typing import Annotated

import typer

from lograft.cli.options import BootstrapServer, CommandConfig, Json, names_of

Http = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="URL,…",
        help="HTTP listeners of the nodes; by default, each broker's lograft.http.listeners.",
    ),
]


def top(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    http: Http = "",
    once: Annotated[bool, typer.Option("--once", help="Print the figures once and exit.")] = False,
    json: Json = False,
) -> None:
    """Show rates, latency, lag and the busiest topics.

    Reads from the nodes' HTTP listeners, which by default are reachable only from their own machine
    or through a tunnel. The view is updated until Ctrl-C; without a terminal or with --json, the
    figures are printed once.
    """
    from lograft.cli.client_runner import run
    from lograft.cli.contexts import client_settings
    from lograft.cli.interrupts import Interrupted
    from lograft.cli.node_history import HistoryReader
    from lograft.cli.output import show, show_json
    from lograft.cli.top import TREND_POINTS, figures_of, lines_of
    from lograft.client.admin import Admin

    settings = {
        "client.id": "lograft-top",
        "default.api.timeout.ms": "10000",
        "request.timeout.ms": "5000",
        **client_settings(bootstrap_server, command_config),
    }
    is_live = not (once or json) and sys.stdout.isatty()

    async def work() -> None:
        async with Admin(settings) as admin:
            reader = HistoryReader(admin, names_of(http))
            if is_live:
                from lograft.cli.top_screen import show_live

                if not http:
                    await admin.connect()
                await show_live(reader)
                return
            found = figures_of(await reader.read(points=TREND_POINTS))
            if json:
                show_json(found)
            else:
                show(lines_of(found))
            if not found.nodes:
                raise typer.Exit(1)

    try:
        run(work())
    except Interrupted as interrupted:
        # Ctrl-C is the way to quit the live view.
        if not is_live or interrupted.number != signal.SIGINT:
            raise
