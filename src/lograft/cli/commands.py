"""All commands, and the options of those that run a node or read its files.

Only the modules of the commands are imported before a command runs.
"""

import os
from enum import Enum
from typing import Annotated

import typer

from lograft import __version__
from lograft.cli.acl_commands import acls
from lograft.cli.bench_commands import bench
from lograft.cli.cluster_commands import cluster
from lograft.cli.config_commands import configs
from lograft.cli.context_commands import context
from lograft.cli.data_commands import consume, get, produce
from lograft.cli.demo_commands import demo
from lograft.cli.doctor_commands import doctor
from lograft.cli.group_commands import groups
from lograft.cli.options import SETTINGS
from lograft.cli.pipeline_commands import pipeline
from lograft.cli.quorum_commands import quorum
from lograft.cli.quota_commands import quotas
from lograft.cli.reassign_commands import reassign
from lograft.cli.top_commands import top
from lograft.cli.topic_commands import topics
from lograft.cli.transaction_commands import transactions
from lograft.cli.user_commands import users

app = typer.Typer(
    name="lograft",
    help="A distributed log and message queue that speaks Apache Kafka's protocol.",
    epilog="Kafka's own tools, with Kafka's flags: lograft kafka-topics, kafka-configs, kafka-acls,"
    " kafka-consumer-groups, kafka-console-producer, kafka-console-consumer,"
    " kafka-reassign-partitions, kafka-metadata-quorum, kafka-storage, kafka-server-start,"
    " kafka-dump-log, kafka-metadata-shell.",
    **(SETTINGS | {"add_completion": True}),
)
storage = typer.Typer(help="Format and inspect log directories.", **SETTINGS)
app.add_typer(storage, name="storage")
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")
app.add_typer(configs, name="configs")
app.add_typer(quotas, name="quotas")
app.add_typer(reassign, name="reassign")
app.add_typer(cluster, name="cluster")
app.add_typer(quorum, name="quorum")
app.add_typer(transactions, name="transactions")
app.add_typer(users, name="users")
app.add_typer(acls, name="acls")
app.add_typer(context, name="context")
app.add_typer(pipeline, name="pipeline")

ConfigFile = Annotated[
    str, typer.Option("--config", "-c", metavar="FILE", help="The node's .properties file.")
]


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"lograft {__version__}")
        raise typer.Exit


@app.callback()
def lograft(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
    context: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use this cluster; see `lograft context`."),
    ] = None,
) -> None:
    if context is not None:
        os.environ["LOGRAFT_CONTEXT"] = context


@app.command()
def start(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Data directory, created and formatted on first use.  [default: lograft-data,"
            " lograft-cluster with --nodes, or lograft-secure with --secure]",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Client port of the first node; the other nodes, the controllers and HTTP use the"
            " following ports. 0 lets the system choose free ports.",
        ),
    ] = 9092,
    nodes: Annotated[int, typer.Option(min=1, max=20, help="Number of nodes.")] = 1,
    log_format: Annotated[
        LogFormat,
        typer.Option(help="Format of the nodes' logs: one JSON object per line, or text."),
    ] = LogFormat.TEXT,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Accept connections from other machines, with TLS, passwords and ACLs: create a"
            " certificate authority, a certificate and the user admin on first use.",
        ),
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="With --secure: the name or address at which clients reach this machine;"
            " remembered for later runs.  [default: this machine's name]",
        ),
    ] = None,
) -> None:
    """Run a node, or a cluster on this machine.

    No configuration is required. Each node is both broker and controller, and accepts connections
    from this machine only, unless --secure is specified. Ctrl-C stops all nodes. Each node of a
    cluster is a process: kill one and watch the others take over.
    """
    if host is not None and not secure:
        raise typer.BadParameter("--host needs --secure")
    if secure:
        if nodes != 1:
            raise typer.BadParameter("--secure runs a single node, without --nodes")
        from lograft.cli.secure_node import start_secure

        start_secure(data or "lograft-secure", port, host, log_format.value)
    elif nodes == 1:
        from lograft.cli.node_runner import start_embedded

        start_embedded(data or "lograft-data", port, log_format.value)
    else:
        from lograft.cli.local_cluster import start_cluster

        start_cluster(data or "lograft-cluster", port, nodes, log_format.value)


@app.command()
def server(
    file: Annotated[str, typer.Argument(metavar="FILE.properties", help="The node's settings.")],
) -> None:
    """Run a node with the settings of a Kafka .properties file."""
    from lograft.cli.node_runner import serve_file

    serve_file(file)


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random UUID to use as a cluster id."""
    from lograft.cli.storage import print_random_uuid

    print_random_uuid()


@storage.command("info")
def storage_info(config: ConfigFile) -> None:
    """Show the node's log directories and any problems with them."""
    from lograft.cli.storage import print_info

    raise typer.Exit(print_info(config))


@storage.command("format")
def storage_format(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", "-t", metavar="ID", help="The cluster id.")
    ],
    config: ConfigFile,
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", "-s", help="Initialize a quorum with this controller as its only voter."
        ),
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers",
            "-I",
            metavar="ID@HOST:PORT:DIRECTORY,…",
            help="Initialize a quorum with these voters; use the same list on each controller.",
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool,
        typer.Option("--no-initial-controllers", "-N", help="Join an existing quorum."),
    ] = False,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Skip directories that are already formatted."
        ),
    ] = False,
    release_version: Annotated[
        str | None,
        typer.Option(
            "--release-version",
            "-r",
            metavar="VERSION",
            help="Initial feature levels: those of this Kafka release, such as 4.0 or 4.3-IV0.",
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature",
            "-f",
            metavar="NAME=LEVEL",
            help="Initial level of a feature; may be repeated.",
        ),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            "-S",
            metavar="CREDENTIAL",
            help="Initial SCRAM credential: SCRAM-SHA-256=[name=alice,password=secret]",
        ),
    ] = None,
) -> None:
    """Format the node's log directories for its cluster."""
    from lograft.cli.storage import FormatOptions, run_format

    run_format(
        FormatOptions(
            cluster_id=cluster_id,
            config_file=config,
            standalone=standalone,
            initial_controllers=initial_controllers,
            no_initial_controllers=no_initial_controllers,
            ignore_formatted=ignore_formatted,
            release_version=release_version,
            features=tuple(feature or ()),
            scram=tuple(add_scram or ()),
        )
    )


@app.command("dump-log")
def dump_log(
    files: Annotated[
        str,
        typer.Option(
            metavar="F[,F]",
            help="Files to dump: .log .index .timeindex .snapshot .checkpoint .txnindex",
        ),
    ],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print the records, not only the batches.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Decode metadata records.")
    ] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records of __consumer_offsets.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        typer.Option("--transaction-log-decoder", help="Decode records of __transaction_state."),
    ] = False,
    share_group_state_decoder: Annotated[
        bool,
        typer.Option("--share-group-state-decoder", help="Decode records of __share_group_state."),
    ] = False,
    skip_record_metadata: Annotated[
        bool,
        typer.Option("--skip-record-metadata", help="Print only keys and values of records."),
    ] = False,
    max_bytes: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Maximum number of bytes to read from a .log file."),
    ] = 2**31 - 1,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Check indexes instead of printing them.")
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print a line for each record of a batch.")
    ] = False,
) -> None:
    """Print the contents of log segments, indexes and snapshots."""
    from lograft.cli.dump_log import DumpOptions, dump_files

    decoders = {
        "metadata": cluster_metadata_decoder,
        "offsets": offsets_decoder,
        "transactions": transaction_log_decoder,
        "shares": share_group_state_decoder,
    }
    chosen = [name for name, is_chosen in decoders.items() if is_chosen]
    if len(chosen) > 1:
        raise typer.BadParameter("specify at most one decoder")
    options = DumpOptions(
        print_records=print_data_log or deep_iteration or bool(chosen),
        print_values=print_data_log or bool(chosen),
        decoder=chosen[0] if chosen else None,
        skip_record_metadata=skip_record_metadata,
        bytes_max=max_bytes,
        index_sanity_check=index_sanity_check,
    )
    raise typer.Exit(dump_files(files.split(","), options))


@app.command("metadata-shell")
def metadata_shell(
    snapshot: Annotated[
        str,
        typer.Option(
            "--snapshot", "-s", metavar="F", help="A .checkpoint or .log file of the metadata log."
        ),
    ],
    command: Annotated[
        list[str] | None, typer.Argument(help="Run this command and exit, for example: tree /")
    ] = None,
) -> None:
    """Browse the cluster metadata like a file system."""
    from lograft.cli.metadata_shell import run_shell

    raise typer.Exit(run_shell(snapshot, command or []))


app.command()(produce)
app.command()(consume)
app.command()(get)
app.command()(bench)
app.command()(doctor)
app.command()(top)
app.command()(demo)
