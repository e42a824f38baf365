"""The command `lograft bench`."""

from typing import Annotated

import typer

from lograft.cli.options import BootstrapServer, CommandConfig, Json, pairs_of


def bench(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, metavar="N", help="Number of records to send.")
    ] = 100_000,
    size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Size of each value.")] = 100,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=1, metavar="N", help="Partitions of the temporary topic."
        ),
    ] = 4,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            metavar="N",
            help="Replication factor of the temporary topic; -1: the broker's default.",
        ),
    ] = -1,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An existing topic; by default, a temporary topic that is deleted at the end.",
        ),
    ] = None,
    acks: Annotated[
        str, typer.Option(metavar="all|1|0", help="Acknowledgements to wait for.")
    ] = "all",
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Compression type.")
    ] = "none",
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A producer setting; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure the throughput and latency of a cluster.

    A single Python process produces and consumes; several processes may reach a higher throughput.
    """
    from lograft.cli.bench import BenchOptions, result_lines
    from lograft.cli.bench import bench as measure
    from lograft.cli.client_runner import run_admin
    from lograft.cli.contexts import client_settings
    from lograft.cli.output import show, show_json

    settings = {"client.id": "lograft-bench", **client_settings(bootstrap_server, command_config)}
    options = BenchOptions(
        records=records,
        size=size,
        partitions=partitions,
        replicas=replication_factor,
        topic=topic,
    )
    producing = {**settings, "acks": acks, "compression.type": compression, **pairs_of(setting)}
    result = run_admin(
        settings, lambda admin: measure(admin, options, producing=producing, consuming=settings)
    )
    if json:
        show_json(result)
    else:
        show(result_lines(result))
