"""The commands `lograft configs …`."""

from typing import TYPE_CHECKING, Annotated

import typer

from lograft.cli.options import (
    SETTINGS,
    BootstrapServer,
    CommandConfig,
    Json,
    pairs_of,
)

if TYPE_CHECKING:
    from lograft.client.admin import ConfigResource

configs = typer.Typer(help="Describe and change settings.", **SETTINGS)

Topic = Annotated[str | None, typer.Option(metavar="NAME", help="Settings of this topic.")]
Broker = Annotated[
    str | None,
    typer.Option(metavar="ID|all", help="Settings of this broker, or the default for all brokers."),
]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="Settings of this group.")]


@configs.command()
def describe(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include settings that have their default value.")
    ] = False,
    json: Json = False,
) -> None:
    """Show settings of a topic, broker or group.

    Shows the source of each value; --json adds the documentation of each setting.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.configs import describe_lines, is_set
    from lograft.cli.output import show, show_json

    resource = _parse_resource(topic, broker, group)
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.describe_configs([resource], synonyms=True, documentation=True),
    )[resource]
    shown = [entry for _, entry in sorted(found.items()) if everything or is_set(entry)]
    if json:
        show_json(shown)
    else:
        show(describe_lines(shown, len(found)))


@configs.command()
def alter(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a value; may be repeated."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Restore the default; may be repeated.")
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Add to a list; may be repeated."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Remove from a list; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the changes without applying them.")
    ] = False,
) -> None:
    """Change settings of a topic, broker or group.

    Settings that are not specified keep their values.
    """
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count
    from lograft.client.admin import ConfigChange, Operation

    resource = _parse_resource(topic, broker, group)
    changes = [
        ConfigChange(name, value, operation)
        for operation, texts in (
            (Operation.SET, set_),
            (Operation.APPEND, append),
            (Operation.SUBTRACT, subtract),
        )
        for name, value in pairs_of(texts).items()
    ]
    changes += [ConfigChange(name, None, Operation.DELETE) for name in delete or ()]
    if not changes:
        raise typer.BadParameter("specify --set, --delete, --append or --subtract")
    with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.alter_configs({resource: changes}, validate_only=dry_run),
    )
    changed = count(len(changes), "change")
    print(f"Dry run: {changed} would be applied." if dry_run else f"Applied {changed}.")


def _parse_resource(topic: str | None, broker: str | None, group: str | None) -> "ConfigResource":
    from lograft.client.admin import broker_resource, group_resource, topic_resource

    if sum(name is not None for name in (topic, broker, group)) != 1:
        raise typer.BadParameter("specify exactly one of --topic, --broker and --group")
    if topic is not None:
        return topic_resource(topic)
    if group is not None:
        return group_resource(group)
    assert broker is not None
    if broker != "all" and not broker.isdigit():
        raise typer.BadParameter(f"--broker must be a broker id or all, not {broker}")
    return broker_resource(None if broker == "all" else int(broker))
