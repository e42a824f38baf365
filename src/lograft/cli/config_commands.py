"""The commands `lograft configs …`: settings of topics, brokers and groups."""

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

configs = typer.Typer(help="See and change settings of topics, brokers and groups.", **SETTINGS)

Topic = Annotated[str | None, typer.Option(metavar="NAME", help="Settings of this topic.")]
Broker = Annotated[
    str | None, typer.Option(metavar="ID|all", help="Settings of this broker, or of all.")
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
        bool, typer.Option("--all", help="Also those that have their default.")
    ] = False,
    json: Json = False,
) -> None:
    """Show settings, where each value comes from, and what it is for."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.configs import describe_lines, is_own
    from lograft.cli.output import show, show_json

    resource = _resource(topic, broker, group)
    found = with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.describe_configs([resource], synonyms=True, documentation=True),
    )[resource]
    shown = {name: one for name, one in sorted(found.items()) if everything or is_own(one)}
    if json:
        show_json(list(shown.values()))
    else:
        show(describe_lines(shown.values(), len(found)))


@configs.command()
def alter(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set it; may be repeated."),
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Back to its default; may be repeated.")
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Put it into a list; may be repeated."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Take it out of a list; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only see whether it would be taken.")
    ] = False,
) -> None:
    """Change the settings that are named, and no others."""
    from lograft.cli.client_runner import with_admin
    from lograft.cli.output import count
    from lograft.client.admin import ConfigChange, Operation

    resource = _resource(topic, broker, group)
    changes = [
        ConfigChange(name, value, operation)
        for operation, given in (
            (Operation.SET, set_),
            (Operation.APPEND, append),
            (Operation.SUBTRACT, subtract),
        )
        for name, value in pairs_of(given).items()
    ]
    changes += [ConfigChange(name, None, Operation.DELETE) for name in delete or ()]
    if not changes:
        raise typer.BadParameter("give --set, --delete, --append or --subtract")
    with_admin(
        bootstrap_server,
        command_config,
        lambda admin: admin.alter_configs({resource: changes}, validate_only=dry_run),
    )
    verb = "would be taken" if dry_run else "taken"
    print(f"{count(len(changes), 'change')} {verb}.")


def _resource(topic: str | None, broker: str | None, group: str | None) -> "ConfigResource":
    from lograft.client.admin import broker_resource, group_resource, topic_resource

    if sum(one is not None for one in (topic, broker, group)) != 1:
        raise typer.BadParameter("say whose settings: --topic, --broker or --group")
    if topic is not None:
        return topic_resource(topic)
    if group is not None:
        return group_resource(group)
    assert broker is not None
    if broker != "all" and not broker.isdigit():
        raise typer.BadParameter(f"--broker {broker}: write its number, or all")
    return broker_resource(None if broker == "all" else int(broker))
