"""The commands `lograft transactions …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Execute, Json

if TYPE_CHECKING:
    from lograft.client.admin import ActiveProducer, Admin, HangingTransaction, TopicPartition

transactions = typer.Typer(help="See transactions and end those that hang.", **SETTINGS)


@transactions.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="Only in this state: Ongoing, Empty …")
    ] = None,
    open_for: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only open for longer than that: 15m")
    ] = None,
    json: Json = False,
) -> None:
    """Show all transactional ids."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.group_resets import parse_duration_ms
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import list_lines

    open_for_ms = None if open_for is None else parse_duration_ms(open_for)
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.list_transactions(states=state or (), open_for_ms=open_for_ms),
    )
    if json:
        show_json(found)
    else:
        show(list_lines(found, is_filtered=bool(state) or open_for is not None))


@transactions.command()
def describe(
    transactional_id: Annotated[list[str], typer.Argument(metavar="ID…", help="Which.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show what transactional ids are doing."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import describe_lines
    from lograft.runtime.clock import SystemClock

    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.describe_transactions(transactional_id),
    )
    if json:
        show_json(list(found.values()))
    else:
        show(describe_lines(found.values(), now_ms=SystemClock().wall_ms()))


@transactions.command()
def producers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC[:P,…]", help="In these partitions.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the producers that partitions remember, and where their transactions begin."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import places_of, producer_lines

    async def work(admin: "Admin") -> "dict[TopicPartition, list[ActiveProducer]]":
        return await admin.describe_producers(await places_of(admin, [topic]))

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json(found)
    else:
        show(producer_lines(found))


@transactions.command("abort")
def abort(
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="T[:P,…]", help="Look here; in all topics if left out."),
    ] = None,
    open_for: Annotated[
        str, typer.Option(metavar="TIME", help="What is open for longer than that hangs.")
    ] = "15m",
    execute: Execute = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """End transactions that no coordinator knows any more: they hold back readers for ever.

    Shows what would be ended; --execute does it.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.group_resets import parse_duration_ms
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import hanging_lines, places_of
    from lograft.runtime.clock import SystemClock

    open_for_ms = parse_duration_ms(open_for)

    async def work(admin: "Admin") -> "list[HangingTransaction]":
        hanging = await admin.find_hanging_transactions(
            await places_of(admin, topic or ()),
            open_for_ms=open_for_ms,
            now_ms=SystemClock().wall_ms(),
        )
        for one in hanging if execute else ():
            await admin.abort_transaction(
                one.place,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator_epoch=one.coordinator_epoch,
            )
        return hanging

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json({"executed": execute, "transactions": found})
    else:
        show(hanging_lines(found, executed=execute))


@transactions.command("fence")
def fence(
    transactional_id: Annotated[list[str], typer.Argument(metavar="ID…", help="Which.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Shut out whoever writes with these ids; what they have open is aborted."""
    from lograft.cli.client_runner import with_admin

    with_admin(
        bootstrap_server, command_config, lambda admin: admin.fence_producers(transactional_id)
    )
    print("\n".join(f"Producers of {one} are fenced." for one in transactional_id))
