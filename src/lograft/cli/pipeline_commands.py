"""The commands `lograft pipeline …` and their options."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, Json

pipeline = typer.Typer(help="Topics to tables, windows and reports, on Spark.", **SETTINGS)

Name = Annotated[str, typer.Argument(metavar="NAME", help="lake, windows, audit or state.")]
ConfigFile = Annotated[
    str, typer.Option("--config", "-c", metavar="FILE.toml", help="What the pipeline is to do.")
]


@pipeline.command("list")
def list_pipelines() -> None:
    """Show which pipelines there are."""
    from lograft.cli.output import show, table
    from lograft.cli.pipelines import descriptions

    show(table(("PIPELINE", "DOES"), descriptions()))


@pipeline.command("run")
def run(name: Name, config: ConfigFile) -> None:
    """Run a pipeline until it has read all there is, or until it is stopped.

    Every micro-batch is a line with its rows, its rate and how much is still unread. Ctrl-C stops
    it, and so does `lograft pipeline stop`; the next run goes on where this one was.
    """
    from lograft.cli.pipelines import run_and_show

    run_and_show(name, config)


@pipeline.command("status")
def status(name: Name, config: ConfigFile, json: Json = False) -> None:
    """Show what a pipeline is doing, or did last."""
    from lograft.cli.output import show, show_json
    from lograft.cli.pipelines import described, status_of

    found = status_of(name, config)
    if json:
        show_json(found)
    else:
        show(described(found))


@pipeline.command("stop")
def stop(name: Name, config: ConfigFile) -> None:
    """Ask a running pipeline to stop, and wait until it has."""
    from lograft.cli.pipelines import stop_and_wait

    stop_and_wait(name, config)
