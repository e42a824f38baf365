"""The commands `lograft transactions …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Execute, Json

if TYPE_CHECKING:
    from lograft.client.admin import ActiveProducer, Admin, HangingTransaction, TopicPartition

transactions = typer.Typer(
    help="Describe transactions, abort them, and fence their producers.", **SETTINGS
)


@transactions.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only ids in this state: Ongoing, Empty, …"),
    ] = None,
    open_for: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only transactions open for longer than this: 15m"),
    ] = None,
    json: Json = False,
) -> None:
    """List transactional ids."""
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
    transactional_id: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Transactional ids.")
    ],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the state of transactional ids."""
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
    topic: Annotated[str, typer.Argument(metavar="TOPIC[:P,…]", help="A topic or partitions.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the active producers of partitions."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import partitions_of, producer_lines

    async def work(admin: "Admin") -> "dict[TopicPartition, list[ActiveProducer]]":
        return await admin.describe_producers(await partitions_of(admin, [topic]))

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json(found)
    else:
        show(producer_lines(found))


@transactions.command("abort")
def abort(
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="T[:P,…]", help="Topics or partitions; by default, all topics."),
    ] = None,
    open_for: Annotated[
        str, typer.Option(metavar="TIME", help="Only transactions open for longer than this.")
    ] = "15m",
    execute: Execute = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Abort hanging transactions.

    A hanging transaction is open in a partition, but its coordinator has no record of it, so it
    blocks read_committed consumers until it is aborted. Shows them; --execute aborts them.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.group_resets import parse_duration_ms
    from lograft.cli.output import show, show_json
    from lograft.cli.transactions import hanging_lines, partitions_of
    from lograft.runtime.clock import SystemClock

    open_for_ms = parse_duration_ms(open_for)

    async def work(admin: "Admin") -> "list[HangingTransaction]":
        hanging = await admin.find_hanging_transactions(
            await partitions_of(admin, topic or ()),
            open_for_ms=open_for_ms,
            now_ms=SystemClock().wall_ms(),
        )
        for transaction in hanging if execute else ():
            await admin.abort_transaction(
                transaction.partition,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                coordinator_epoch=transaction.coordinator_epoch,
            )
        return hanging

    found = with_admin(bootstrap_server, command_config, work)
    if json:
        show_json({"executed": execute, "transactions": found})
    else:
        show(hanging_lines(found, executed=execute))


@transactions.command("fence")
def fence(
    transactional_id: Annotated[
        list[str], typer.Argument(metavar="ID…", help="Transactional ids.")
    ],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Fence producers and abort their transactions."""
    from lograft.cli.client_runner import with_admin

    with_admin(
        bootstrap_server, command_config, lambda admin: admin.fence_producers(transactional_id)
    )
    print("\n".join(f"Fenced the producers of {name}." for name in transactional_id))
