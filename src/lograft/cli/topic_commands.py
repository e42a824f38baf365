"""The commands `lograft topics …`."""

from typing import Annotated, Final

import typer

from lograft.cli.options import (
    SETTINGS,
    BootstrapServer,
    CommandConfig,
    Json,
    Topics,
    names_of,
    pairs_of,
)

topics = typer.Typer(help="Create, describe, alter and delete topics.", **SETTINGS)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]

#: Limits of the protocol's fields.
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1


@topics.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    json: Json = False,
) -> None:
    """List topics."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.topics import list_lines

    found = with_admin(
        bootstrap_server, command_config, lambda admin: admin.list_topics(internal=internal)
    )
    if json:
        show_json(found)
    else:
        show(list_lines(found))


@topics.command()
def create(
    names: Names,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            max=INT32_MAX,
            metavar="N",
            help="Defaults to the broker's num.partitions.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            max=INT16_MAX,
            metavar="N",
            help="Defaults to the broker's default.replication.factor.",
        ),
    ] = -1,
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the request without creating topics.")
    ] = False,
    json: Json = False,
) -> None:
    """Create topics."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count, show, show_json
    from lograft.client.admin import NewTopic

    configs = pairs_of(config)
    new_topics = [NewTopic(name, partitions, replication_factor, configs) for name in names]
    created = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.create_topics(new_topics, validate_only=dry_run),
    )
    if json:
        show_json(created)
        return
    verb = "Would create" if dry_run else "Created"
    show(
        f"{verb} topic {topic.name}: {count(topic.partitions, 'partition')}, replication factor"
        f" {topic.replicas}."
        for topic in created.values()
    )


@topics.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]…", help="By default, all topics.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topic: Topics = "",
    json: Json = False,
) -> None:
    """Show the state of partitions and replicas.

    Shows each partition's replication mode, leader and in-sync replicas, and the lag of each
    replica.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.topics import describe_lines

    requested = [*(names or ()), *names_of(topic)] or None
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.describe_topics(requested, replicas=True),
    )
    if json:
        show_json(list(found.values()))
    else:
        show(describe_lines(found))


@topics.command()
def alter(
    topic: Annotated[str, typer.Option(metavar="NAME", help="The topic.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(metavar="P", help="Alter only this partition's replication; may be repeated."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="raft|isr", help="The replication mode.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=INT16_MAX, metavar="N", help="The new number of replicas."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=INT32_MAX, metavar="N", help="The new number of partitions."),
    ] = None,
) -> None:
    """Change the replication or partition count.

    The topic may be in use: no record is lost and clients see only retriable errors.
    """
    from lograft.cli import topics as work
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show

    if mode is None and replication_factor is None and partitions is None:
        raise typer.BadParameter("specify --mode, --replication-factor or --partitions")
    if mode not in (None, "raft", "isr"):
        raise typer.BadParameter("--mode must be raft or isr")
    show(
        with_admin(
            bootstrap_server,
            command_config,
            lambda admin: work.alter(
                admin,
                topic,
                partitions=partition or (),
                mode=mode,
                replicas=replication_factor,
                partition_count=partitions,
            ),
        )
    )


@topics.command()
def delete(
    names: Names, bootstrap_server: BootstrapServer = None, command_config: CommandConfig = None
) -> None:
    """Delete topics and their records."""
    from lograft.cli.client_runner import with_admin

    with_admin(bootstrap_server, command_config, lambda admin: admin.delete_topics(names))
    print("\n".join(f"Deleted topic {name}." for name in names))


@topics.command()
def holds(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]…", help="By default, all topics.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show groups that hold back retention.

    A retention hold keeps the records that a group still has to read, beyond retention.ms. KEPT
    is the number of records that retention.ms alone would have deleted.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.retention_holds import holds_lines
    from lograft.runtime.clock import SystemClock

    now_ms = SystemClock().wall_ms()
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.list_retention_holds(names or None, now_ms=now_ms),
    )
    if json:
        show_json(found)
    else:
        show(holds_lines(found))


@topics.command()
def groups(
    names: Names,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the groups that read topics.

    A group reads a topic if partitions of the topic are assigned to its members, or if it has
    committed offsets for them. --json also shows each partition with its offset, lag and member.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import jsonable, show, show_json
    from lograft.cli.topics import groups_lines

    found = with_admin(
        bootstrap_server, command_config, lambda admin: admin.list_topic_groups(names)
    )
    if json:
        show_json(
            [
                {
                    **jsonable(topic),
                    "groups": [{**jsonable(group), "lag": group.lag} for group in topic.groups],
                }
                for topic in found.values()
            ]
        )
    else:
        show(groups_lines(found))


@topics.command()
def elect(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC[:P,…]]…",
            help="Topics or partitions; by default, all partitions that need an election.",
        ),
    ] = None,
    leader: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="BROKER", help="Make this broker the leader; it must be in sync."
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect any online replica, even if records are lost."),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Elect partition leaders.

    Elects the preferred (first) replicas, a given broker, or any online replica. A broker
    elected with --leader leads until the next election. With auto.leader.rebalance.enable the
    controller soon elects the preferred replica again; `lograft reassign` changes which replica
    is preferred.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show_json
    from lograft.cli.topics import choose_leader, election_summary
    from lograft.cli.transactions import partitions_of
    from lograft.client.admin import Admin, Election, TopicPartition

    if leader is not None and (unclean or not names):
        raise typer.BadParameter(
            "--leader requires topics or partitions, and cannot be combined with --unclean"
        )

    async def work(admin: Admin) -> dict[TopicPartition, bool]:
        partitions = await partitions_of(admin, names) if names else None
        if leader is not None and partitions is not None:
            return await choose_leader(admin, partitions, leader)
        kind = Election.UNCLEAN if unclean else Election.PREFERRED
        return await admin.elect_leaders(kind, partitions)

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json(found)
    else:
        print(election_summary(found, leader))
