"""The commands `lograft context …`."""

from typing import Annotated

import typer

from lograft.cli.options import SETTINGS, CommandConfig, Json, pairs_of

context = typer.Typer(help="Manage contexts: named clusters and their client settings.", **SETTINGS)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the context.")]


@context.command()
def add(
    name: Name,
    bootstrap_server: Annotated[
        str,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Bootstrap servers."),
    ],
    command_config: CommandConfig = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A client setting; may be repeated."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current context.")] = False,
) -> None:
    """Add a context; the first one becomes the current context."""
    from lograft.cli.contexts import SERVERS, read_contexts, write_contexts
    from lograft.cli.node_runner import read_properties
    from lograft.client.administering.settings import AdminSettings

    settings = read_properties(command_config) if command_config is not None else {}
    settings |= {**pairs_of(setting), SERVERS: bootstrap_server}
    AdminSettings.read(settings)  # Rejects invalid settings now rather than at their first use.
    contexts = read_contexts()
    contexts.by_name[name] = settings
    if use or contexts.current is None:
        contexts.current = name
    write_contexts(contexts)
    current = " (current)" if name == contexts.current else ""
    print(f"Added context {name}: {bootstrap_server}{current}.")


@context.command()
def use(name: Name) -> None:
    """Make a context the current context."""
    from lograft.cli.contexts import read_contexts, settings_of, write_contexts

    settings_of(name)
    contexts = read_contexts()
    contexts.current = name
    write_contexts(contexts)
    print(f"Switched to context {name}.")


@context.command("list")
def list_(json: Json = False) -> None:
    """List the contexts; secrets are hidden."""
    from lograft.cli.contexts import SERVERS, current_context, hide_secrets, read_contexts
    from lograft.cli.output import show, show_json, table

    contexts = read_contexts()
    current = current_context()
    if json:
        by_name = {name: hide_secrets(values) for name, values in contexts.by_name.items()}
        show_json({"current": current, "contexts": by_name})
    elif not contexts.by_name:
        print("No contexts; create one with `lograft context add NAME -b HOST:PORT`.")
    else:
        rows = (
            ("*" if name == current else "", name, settings.get(SERVERS, ""))
            for name, settings in sorted(contexts.by_name.items())
        )
        show(table(["", "CONTEXT", "SERVERS"], rows))


@context.command()
def remove(name: Name) -> None:
    """Remove a context."""
    from lograft.cli.contexts import read_contexts, settings_of, write_contexts

    settings_of(name)
    contexts = read_contexts()
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = None
    write_contexts(contexts)
    print(f"Removed context {name}.")
