"""The commands `lograft reassign …`."""

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
    from lograft.cli.reassign import Load, TargetReplicas
    from lograft.client.admin import Admin
    from lograft.metadata.rebalancing import Move

reassign = typer.Typer(help="Move replicas between brokers.", **SETTINGS)

Brokers = Annotated[
    str,
    typer.Option(metavar="ID,…", help="The target brokers; by default, all registered brokers."),
]
PlanFile = Annotated[
    str | None, typer.Option("--plan", metavar="FILE", help="A plan file in Kafka's JSON format.")
]


@reassign.command("plan")
def plan(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    brokers: Brokers = "",
    topics: Topics = "",
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the plan to a file, for `run` or Kafka's tool."),
    ] = None,
    json: Json = False,
) -> None:
    """Plan an even distribution of replicas.

    The plan copies as few replicas as possible. Changes nothing.
    """
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
    plan: Annotated[
        str, typer.Option("--plan", metavar="FILE", help="A plan file in Kafka's JSON format.")
    ],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Compare the current replicas with a plan.

    Changes nothing.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.reassign import compare_with_target

    target = _read(plan)
    load, moves = with_admin(
        bootstrap_server, command_config, lambda admin: compare_with_target(admin, target)
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
        bool, typer.Option("--wait/--no-wait", help="Wait until all replicas have moved.")
    ] = True,
) -> None:
    """Execute a plan and show its progress.

    Runs the plan that `reassign plan` computes, or one read from a file. Ctrl-C ends the display,
    not the reassignment: use `reassign status` to see it again and `reassign cancel` to cancel it.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count
    from lograft.cli.progress import progress_bar
    from lograft.cli.reassign import make_plan, target_of, wait_reassigned

    planned = _read(plan) if plan is not None else None
    chosen, names = numbers_of(brokers), names_of(topics)

    async def work(admin: "Admin") -> int:
        target = planned
        if target is None:
            target = target_of((await make_plan(admin, brokers=chosen, topics=names))[1])
        await admin.reassign(target)
        if wait:
            with progress_bar("reassigning", len(target)) as progress:
                await wait_reassigned(admin, target, progress)
        return len(target)

    moved = count(with_admin(bootstrap_server, command_config, work), "partition")
    print(f"{moved} {'reassigned' if wait else 'being reassigned'}.")


@reassign.command("status")
def status(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the reassignments in progress."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json
    from lograft.cli.reassign import progress_lines, read_copies

    copies = with_admin(bootstrap_server, command_config, read_copies)
    if json:
        show_json(copies)
    else:
        show(progress_lines(copies))


@reassign.command("cancel")
def cancel(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topics: Topics = "",
) -> None:
    """Cancel reassignments in progress.

    Partitions return to their previous replicas.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count

    async def work(admin: "Admin") -> int:
        names = names_of(topics)
        ongoing = await admin.list_reassignments()
        chosen = [partition for partition in ongoing if not names or partition.topic in names]
        await admin.reassign(dict.fromkeys(chosen))
        return len(chosen)

    cancelled = with_admin(bootstrap_server, command_config, work)
    print(f"{count(cancelled, 'reassignment')} cancelled.")


def _read(path: str) -> "TargetReplicas":
    from lograft.cli.reassign import parse_log_dirs, parse_target
    from lograft.model.errors import InvalidInput

    with open(path, encoding="utf-8") as file:
        text = file.read()
    if log_dirs := parse_log_dirs(text):
        replica, log_dir = next(iter(log_dirs.items()))
        raise InvalidInput(
            f"{path} moves replica {replica} to log dir {log_dir}, but this command moves replicas"
            " between brokers only: use `lograft kafka-reassign-partitions --execute`"
        )
    return parse_target(text)


def _show(load: "Load", moves: "list[Move]", json: bool) -> None:
    from lograft.cli.output import show, show_json
    from lograft.cli.reassign import describe_plan

    if json:
        show_json(moves)
    else:
        show(describe_plan(load, moves))
