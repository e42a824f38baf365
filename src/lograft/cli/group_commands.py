"""The commands `lograft groups …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import SETTINGS, BootstrapServer, CommandConfig, Execute, Json

if TYPE_CHECKING:
    from lograft.client.admin import Admin, ResetPlan, Target

groups = typer.Typer(help="Describe groups and reset their offsets.", **SETTINGS)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
Topic = Annotated[
    list[str] | None,
    typer.Option(metavar="T[:P,…]", help="A topic, or some of its partitions; may be repeated."),
]


@groups.command("list")
def list_(
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state: Stable, Empty, …"),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only groups of this type: classic, consumer, share or streams.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List groups."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.groups import list_lines
    from lograft.cli.output import show, show_json

    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.list_groups(states=state or (), types=type_ or ()),
    )
    if json:
        show_json(found)
    else:
        show(list_lines(found))


@groups.command()
def describe(
    group: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]…", help="By default, all groups.")
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show members, committed offsets and lag."""
    from lograft.cli import groups as work
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import show, show_json

    found = with_admin(
        bootstrap_server, command_config, lambda admin: work.describe(admin, group or ())
    )
    if json:
        show_json(work.describe_json(found))
    else:
        show(work.describe_lines(found))


@groups.command()
def reset(
    group: Group,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topic: Topic = None,
    all_topics: Annotated[
        bool,
        typer.Option("--all-topics", help="All topics that the group reads or has offsets for."),
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the earliest offset.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the latest offset.")] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="To this offset.")
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="To the offset of this duration ago: 1h30m or PT1H30M."
        ),
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="WHEN", help="To this time, in UTC by default.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="By N offsets; backward if negative.")
    ] = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Reset the committed offsets of a group.

    The consumers of the group may be running. Shows the changes; --execute applies all of them at
    once: the members are removed, rejoin and continue at the new offsets, and commits that they
    send before they rejoin are rejected.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.group_resets import parse_scope

    if all_topics == bool(topic):
        raise typer.BadParameter("specify either --topic or --all-topics")
    target = _parse_target(to_earliest, to_latest, to_offset, by_duration, to_datetime, shift_by)
    scope = parse_scope(topic or ())

    async def work(admin: "Admin") -> "ResetPlan":
        plan = await admin.plan_reset(group, target, scope)
        return await _execute(admin, plan, execute)

    _show(with_admin(bootstrap_server, command_config, work), execute, json)


@groups.command()
def undo(
    group: Group,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    topic: Topic = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Undo the last reset of a group.

    The consumers of the group may be running. Shows the changes; --execute applies all of them at
    once, like reset.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.group_resets import parse_scope

    scope = parse_scope(topic or ())

    async def work(admin: "Admin") -> "ResetPlan":
        return await _execute(admin, await admin.plan_undo(group, scope), execute)

    _show(with_admin(bootstrap_server, command_config, work), execute, json)


@groups.command()
def delete(
    group: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Groups without members.")],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups and their committed offsets."""
    from lograft.cli.client_runner import with_admin

    with_admin(bootstrap_server, command_config, lambda admin: admin.delete_groups(group))
    print("\n".join(f"Deleted group {name}." for name in group))


def _parse_target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    by_duration: str | None,
    to_datetime: str | None,
    shift_by: int | None,
) -> "Target":
    from lograft.cli.group_resets import parse_datetime_ms, parse_duration_ms
    from lograft.client.admin import Target

    values = (to_offset, by_duration, to_datetime, shift_by)
    if to_earliest + to_latest + sum(value is not None for value in values) != 1:
        raise typer.BadParameter(
            "specify exactly one of --to-earliest, --to-latest, --to-offset, --by-duration,"
            " --to-datetime and --shift-by"
        )
    from_ms = None
    if by_duration is not None:
        from lograft.runtime.clock import SystemClock

        from_ms = SystemClock().wall_ms() - parse_duration_ms(by_duration)
    elif to_datetime is not None:
        from_ms = parse_datetime_ms(to_datetime)
    return Target(
        earliest=to_earliest, latest=to_latest, offset=to_offset, shift=shift_by, from_ms=from_ms
    )


async def _execute(admin: "Admin", plan: "ResetPlan", execute: bool) -> "ResetPlan":
    if execute:
        await admin.execute_reset(plan)
    return plan


def _show(plan: "ResetPlan", executed: bool, json: bool) -> None:
    from lograft.cli.group_resets import plan_lines
    from lograft.cli.output import show, show_json

    if json:
        show_json(
            {
                "group": plan.group,
                "action": plan.action,
                "executed": executed,
                "members": plan.members,
                "moves": plan.moves,
            }
        )
    else:
        show(plan_lines(plan, executed=executed))
