"""The commands `lograft context …`: clusters by name."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, CommandConfig, Json, pairs_of

context = typer.Typer(help="Give clusters names, and choose the one to work with.", **SETTINGS)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


@context.command()
def add(
    name: Name,
    bootstrap_server: Annotated[
        str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Its servers.")
    ],
    command_config: CommandConfig = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the client; may be repeated."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Work with it from now on.")] = False,
) -> None:
    """Remember a cluster; the first one is used at once."""
    from lograft.cli.contexts import SERVERS, read_contexts, write_contexts
    from lograft.cli.node_runner import read_properties
    from lograft.client.administering.settings import AdminSettings

    settings = read_properties(command_config) if command_config is not None else {}
    settings |= {**pairs_of(setting), SERVERS: bootstrap_server}
    AdminSettings.read(settings)  # Says what is wrong with them now rather than at their first use.
    contexts = read_contexts()
    contexts.by_name[name] = settings
    if use or contexts.current is None:
        contexts.current = name
    write_contexts(contexts)
    print(f"Context {name} is {bootstrap_server}{_used(name == contexts.current)}.")


@context.command()
def use(name: Name) -> None:
    """Work with this cluster from now on."""
    from lograft.cli.contexts import read_contexts, settings_of, write_contexts

    settings_of(name)
    contexts = read_contexts()
    contexts.current = name
    write_contexts(contexts)
    print(f"Context {name} is in use.")


@context.command("list")
def list_(json: Json = False) -> None:
    """Show all contexts, without their secrets."""
    from lograft.cli.contexts import SERVERS, chosen_context, read_contexts, shown
    from lograft.cli.output import show, show_json, table

    contexts = read_contexts()
    chosen = chosen_context()
    if json:
        named = {name: shown(settings) for name, settings in contexts.by_name.items()}
        show_json({"current": chosen, "contexts": named})
    elif not contexts.by_name:
        print("There is no context; `lograft context add NAME -b HOST:PORT` makes one.")
    else:
        rows = (
            ("*" if name == chosen else "", name, settings.get(SERVERS, ""))
            for name, settings in sorted(contexts.by_name.items())
        )
        show(table(["", "CONTEXT", "SERVERS"], rows))


@context.command()
def remove(name: Name) -> None:
    """Forget a cluster."""
    from lograft.cli.contexts import read_contexts, settings_of, write_contexts

    settings_of(name)
    contexts = read_contexts()
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = None
    write_contexts(contexts)
    print(f"Context {name} is forgotten.")


def _used(is_used: bool) -> str:
    return ", in use" if is_used else ""
