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
    keyring: Annotated[
        bool,
        typer.Option(
            "--keyring", help="Store passwords and keys in the keyring instead of the file."
        ),
    ] = False,
) -> None:
    """Add a context; the first one becomes the current context."""
    from lograft.cli.contexts import (
        SERVERS,
        delete_keyring,
        is_secret,
        read_contexts,
        write_contexts,
        write_keyring,
    )
    from lograft.cli.node_runner import read_properties
    from lograft.client.administering.settings import AdminSettings

    settings = read_properties(command_config) if command_config is not None else {}
    settings |= {**pairs_of(setting), SERVERS: bootstrap_server}
    AdminSettings.read(settings)  # Rejects invalid settings now rather than at their first use.
    contexts = read_contexts()
    secrets = {key: value for key, value in settings.items() if keyring and is_secret(key)}
    outdated = contexts.in_keyring.pop(name, [])
    delete_keyring(name, [key for key in outdated if key not in secrets])
    if secrets:
        write_keyring(name, secrets)
        contexts.in_keyring[name] = sorted(secrets)
    contexts.by_name[name] = {key: value for key, value in settings.items() if key not in secrets}
    if use or contexts.current is None:
        contexts.current = name
    write_contexts(contexts)
    current = " (current)" if name == contexts.current else ""
    print(f"Added context {name}: {bootstrap_server}{current}.")


@context.command()
def use(name: Name) -> None:
    """Make a context the current context."""
    from lograft.cli.contexts import check_exists, read_contexts, write_contexts

    contexts = read_contexts()
    check_exists(contexts, name)
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
    """Remove a context and its secrets from the keyring."""
    from lograft.cli.contexts import (
        check_exists,
        delete_keyring,
        read_contexts,
        write_contexts,
    )

    contexts = read_contexts()
    check_exists(contexts, name)
    delete_keyring(name, contexts.in_keyring.pop(name, []))
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = None
    write_contexts(contexts)
    print(f"Removed context {name}.")
