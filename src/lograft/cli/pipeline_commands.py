"""The commands `lograft pipeline …`."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, Json

pipeline = typer.Typer(help="Run Spark pipelines that read topics.", **SETTINGS)

Name = Annotated[str, typer.Argument(metavar="NAME", help="lake, windows, audit or state.")]
ConfigFile = Annotated[
    str, typer.Option("--config", "-c", metavar="FILE.toml", help="The pipeline's configuration.")
]


@pipeline.command("list")
def list_pipelines() -> None:
    """List the pipelines."""
    from lograft.cli.output import show, table
    from lograft.cli.pipelines import descriptions

    show(table(("PIPELINE", "DESCRIPTION"), descriptions()))


@pipeline.command("run")
def run(name: Name, config: ConfigFile) -> None:
    """Run a pipeline.

    Runs until all records have been read, or until it is stopped, depending on its configuration.
    Prints a line for each micro-batch, with its rows, its rate and the remaining lag. Ctrl-C or
    `lograft pipeline stop` stops the pipeline; the next run continues where it stopped.
    """
    from lograft.cli.pipelines import run_and_show

    run_and_show(name, config)


@pipeline.command("status")
def status(name: Name, config: ConfigFile, json: Json = False) -> None:
    """Show the state of a pipeline's last run."""
    from lograft.cli.output import show, show_json
    from lograft.cli.pipelines import status_lines, status_of

    found = status_of(name, config)
    if json:
        show_json(found)
    else:
        show(status_lines(found))


@pipeline.command("stop")
def stop(name: Name, config: ConfigFile) -> None:
    """Stop a pipeline and wait until it has stopped."""
    from lograft.cli.pipelines import stop_and_wait

    stop_and_wait(name, config)
