"""The command `lograft bench`."""

from typing import Annotated

import typer

from lograft.cli.options import BootstrapServer, CommandConfig, Json, pairs_of


def bench(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, metavar="N", help="How many to send.")
    ] = 100_000,
    size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="How large each is.")] = 100,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, metavar="N")] = 4,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", metavar="N", help="-1: the brokers' own.")
    ] = -1,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A topic that is there; else one of its own, deleted."),
    ] = None,
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="Who must have it.")] = "all",
    compression: Annotated[
        str, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="How batches are packed.")
    ] = "none",
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the producer; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a cluster from here: records in, records out, and how long one takes.

    One process of Python sends and reads; a cluster may do more with several.
    """
    from lograft.cli.bench import BenchOptions, lines
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
        show(lines(result))
