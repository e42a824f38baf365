"""The commands `lograft topics …` and their options."""

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

topics = typer.Typer(help="Make, see and change topics, while they are in use.", **SETTINGS)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Their names.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A setting; may be repeated."),
]

#: What the protocol can say.
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1


@topics.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those that the brokers keep for themselves.")
    ] = False,
    json: Json = False,
) -> None:
    """Show all topics."""
    from lograft.cli.connecting import with_admin
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
            "--partitions", "-p", max=INT32_MAX, metavar="N", help="-1: as the brokers say."
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", max=INT16_MAX, metavar="N", help="-1: as the brokers say."
        ),
    ] = -1,
    config: Config = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only see whether it could be made.")
    ] = False,
    json: Json = False,
) -> None:
    """Make topics."""
    from lograft.cli.connecting import with_admin
    from lograft.cli.output import count, show, show_json
    from lograft.client.admin import NewTopic

    configs = pairs_of(config)
    wanted = [NewTopic(name, partitions, replication_factor, configs) for name in names]
    created = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.create_topics(wanted, validate_only=dry_run),
    )
    if json:
        show_json(created)
        return
    verb = "could be made" if dry_run else "is there"
    show(
        f"Topic {one.name} {verb}: {count(one.partitions, 'partition')},"
        f" {count(one.replicas, 'replica')} of each."
        for one in created.values()
    )


@topics.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]…", help="All if left out.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topic: Topics = "",
    json: Json = False,
) -> None:
    """Show the mode of each partition, what it waits for, and how far each replica is."""
    from lograft.cli.connecting import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.topics import describe_lines

    wanted = [*(names or ()), *names_of(topic)] or None
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.describe_topics(wanted, replicas=True),
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
        typer.Option(metavar="P", help="Only this partition's replication; may be repeated."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="raft|isr", help="How it shall be replicated.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, max=INT16_MAX, metavar="N", help="How many replicas it shall have."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=INT32_MAX, metavar="N", help="How many partitions it shall have."),
    ] = None,
) -> None:
    """Change how a topic is replicated, or how many partitions it has, while it is in use."""
    from lograft.cli import topics as work
    from lograft.cli.connecting import with_admin
    from lograft.cli.output import show

    if mode is None and replication_factor is None and partitions is None:
        raise typer.BadParameter("give --mode, --replication-factor, --partitions or several")
    if mode not in (None, "raft", "isr"):
        raise typer.BadParameter("--mode is raft or isr")
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
    """Delete topics with all that is in them."""
    from lograft.cli.connecting import with_admin

    with_admin(bootstrap_server, command_config, lambda admin: admin.delete_topics(names))
    print("\n".join(f"Topic {name} is deleted." for name in names))


@topics.command()
def holds(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]…", help="All if left out.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show which groups hold records beyond their retention, from where, and until when.

    KEPT: how many records are there that retention.ms alone would have let go.
    """
    from lograft.cli.connecting import with_admin
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
def elect(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:P,…]]…", help="Of these; all that need it if left out."),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Any replica that lives, even if records are lost."),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Give the lead back to the first replicas, or to any that lives."""
    from lograft.cli.connecting import with_admin
    from lograft.cli.output import count, show_json
    from lograft.cli.transactions import places_of
    from lograft.client.admin import Admin, Election, TopicPartition

    async def work(admin: Admin) -> dict[TopicPartition, bool]:
        places = await places_of(admin, names) if names else None
        kind = Election.unclean if unclean else Election.preferred
        return await admin.elect_leaders(kind, places)

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json(found)
    else:
        elected = sum(found.values())
        print(f"{count(elected, 'leader')} elected, {len(found) - elected} led already.")
