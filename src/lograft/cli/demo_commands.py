"""The command `lograft demo`."""

from typing import Annotated

import typer


def demo(
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Run the Spark pipelines.")
    ] = True,
) -> None:
    """Run a demo: a node, its clients and Spark.

    Starts a node in a temporary directory, writes the events of an imaginary shop to it, and
    processes them with Spark. The Spark part requires `pip install 'lograft[spark]'` and Java 17,
    and is skipped if they are not installed.
    """
    from lograft.cli.demo.steps import run_demo

    run_demo(with_spark=spark)
