"""The commands `lograft reassign …` and their options."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import (
    SETTINGS,
    BootstrapServer,
    CommandConfig,
    Json,
    Topics,
    names_of,
    numbers_of,
)

if TYPE_CHECKING:
    from lograft.cli.reassign import Load, Wanted
    from lograft.client.admin import Admin
    from lograft.metadata.rebalancing import Move

reassign = typer.Typer(help="Spread partitions over brokers.", **SETTINGS)

Brokers = Annotated[
    str,
    typer.Option(
        metavar="ID,…", help="Who shall hold everything; all registered brokers if left out."
    ),
]
PlanFile = Annotated[
    str | None, typer.Option("--plan", metavar="FILE", help="A plan from a file, in Kafka's JSON.")
]


@reassign.command("plan")
def plan(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    brokers: Brokers = "",
    topics: Topics = "",
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the plan for run, or Kafka's tool.")
    ] = None,
    json: Json = False,
) -> None:
    """Show how the load could be shared evenly with the fewest copies; changes nothing."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.reassign import make_plan, plan_as_json

    chosen, names = numbers_of(brokers), names_of(topics)
    load, moves = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: make_plan(admin, brokers=chosen, topics=names),
    )
    if save is not None:
        with open(save, "w", encoding="utf-8") as file:
            file.write(plan_as_json(moves))
    _show(load, moves, json)


@reassign.command("diff")
def diff(
    plan: Annotated[str, typer.Option("--plan", metavar="FILE", help="A plan, in Kafka's JSON.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show what lies between what there is and what a file wants; changes nothing."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.reassign import moves_to

    wanted = _read(plan)
    load, moves = with_admin(
        bootstrap_server, command_config, lambda admin: moves_to(admin, wanted)
    )
    _show(load, moves, json)


@reassign.command("run")
def run(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    brokers: Brokers = "",
    topics: Topics = "",
    plan: PlanFile = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Stay until everything is where it shall be.")
    ] = True,
) -> None:
    """Do what plan shows, or what a file says, and show how far it is.

    Ctrl-C ends the looking, not the reassignment: status shows it, cancel takes it back.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count
    from lograft.cli.progress import progress_bar
    from lograft.cli.reassign import follow, make_plan, wanted_by

    given = _read(plan) if plan is not None else None
    chosen, names = numbers_of(brokers), names_of(topics)

    async def work(admin: "Admin") -> int:
        wanted = given
        if wanted is None:
            wanted = wanted_by((await make_plan(admin, brokers=chosen, topics=names))[1])
        await admin.reassign(wanted)
        if wait:
            with progress_bar("reassigning", len(wanted)) as progress:
                await follow(admin, wanted, progress)
        return len(wanted)

    moved = count(with_admin(bootstrap_server, command_config, work), "partition")
    print(f"{moved} {'reassigned' if wait else 'being reassigned'}.")


@reassign.command("status")
def status(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show what is being copied, and how far it is."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.reassign import progress_lines, read_copying

    copying = with_admin(bootstrap_server, command_config, read_copying)
    if json:
        show_json(copying)
    else:
        show(progress_lines(copying))


@reassign.command("cancel")
def cancel(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topics: Topics = "",
) -> None:
    """Go back to the replicas that were there before."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count

    async def work(admin: "Admin") -> int:
        names = names_of(topics)
        ongoing = await admin.list_reassignments()
        chosen = [place for place in ongoing if not names or place.topic in names]
        await admin.reassign(dict.fromkeys(chosen))
        return len(chosen)

    cancelled = with_admin(bootstrap_server, command_config, work)
    print(f"{count(cancelled, 'reassignment')} cancelled.")


def _read(path: str) -> "Wanted":
    from lograft.cli.reassign import log_dirs_from_json, wanted_from_json
    from lograft.model.errors import InvalidInput

    with open(path, encoding="utf-8") as file:
        text = file.read()
    if log_dirs := log_dirs_from_json(text):
        replica, log_dir = next(iter(log_dirs.items()))
        raise InvalidInput(
            f"{path} moves replica {replica} to log dir {log_dir}, but this command moves replicas"
            " between brokers only: use `lograft kafka-reassign-partitions --execute`"
        )
    return wanted_from_json(text)


def _show(load: "Load", moves: "list[Move]", json: bool) -> None:
    from lograft.cli.output import show, show_json
    from lograft.cli.reassign import describe_plan

    if json:
        show_json(moves)
    else:
        show(describe_plan(load, moves))
