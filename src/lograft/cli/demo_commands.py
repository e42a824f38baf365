"""The command `lograft demo` and its options."""

from typing import Annotated

import typer


def demo(
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Run the pipelines on Spark too.")
    ] = True,
) -> None:
    """Show a node, a shop that writes to it, and tables that Spark makes of its topics.

    Runs on a node of its own in a temporary folder and ends by itself. The Spark part needs
    `pip install 'lograft[spark]'` and Java 17; without them, the demo says so and ends before it.
    """
    from lograft.cli.demo.steps import run_demo

    run_demo(with_spark=spark)
