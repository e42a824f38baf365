"""Contexts: named clusters with their bootstrap servers and client settings.

They are stored in one JSON file in the user's configuration directory (or in LOGRAFT_CONFIG_DIR),
which only its owner can read, since it may contain passwords. A command takes its bootstrap servers
from the first of these that is set: --bootstrap-server, the file of --command-config,
LOGRAFT_BOOTSTRAP_SERVERS, the context (--context, LOGRAFT_CONTEXT or the current one). The default
is localhost:9092.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lograft.model.errors import InvalidInput

FOLDER_VARIABLE: Final = "LOGRAFT_CONFIG_DIR"
CONTEXT_VARIABLE: Final = "LOGRAFT_CONTEXT"
SERVERS_VARIABLE: Final = "LOGRAFT_BOOTSTRAP_SERVERS"
SERVERS: Final = "bootstrap.servers"
DEFAULT_SERVERS: Final = "localhost:9092"


@dataclass(slots=True)
class Contexts:
    current: str | None = None
    #: Client settings by context name.
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)


def contexts_path() -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        import typer

        folder = typer.get_app_dir("lograft")
    return Path(folder) / "contexts.json"


def read_contexts() -> Contexts:
    path = contexts_path()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Contexts(
            content["current"],
            {
                str(name): {str(key): str(value) for key, value in settings.items()}
                for name, settings in content["contexts"].items()
            },
        )
    except FileNotFoundError:
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"{path} is not a valid contexts file: correct it, or remove it and add the contexts"
            " again"
        ) from None


def write_contexts(contexts: Contexts) -> None:
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"current": contexts.current, "contexts": contexts.by_name}, indent=2)
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)


def current_context() -> str | None:
    """Returns the name of the context that this command uses."""
    return os.environ.get(CONTEXT_VARIABLE) or read_contexts().current


def settings_of(name: str) -> dict[str, str]:
    contexts = read_contexts()
    if name not in contexts.by_name:
        raise InvalidInput(
            f"context {name} does not exist: `lograft context list` shows all contexts"
        )
    return contexts.by_name[name]


def client_settings(servers: str | None, config_file: str | None) -> dict[str, Any]:
    """Returns the client settings of the context, overridden by the file and the command line."""
    from lograft.cli.node_runner import read_properties

    context = current_context()
    settings: dict[str, Any] = {SERVERS: DEFAULT_SERVERS}
    settings |= settings_of(context) if context is not None else {}
    if os.environ.get(SERVERS_VARIABLE):
        settings[SERVERS] = os.environ[SERVERS_VARIABLE]
    if config_file is not None:
        settings |= read_properties(config_file)
    if servers is not None:
        settings[SERVERS] = servers
    return settings


def hide_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    secret = ("password", "jaas", "key")
    return {
        name: "(hidden)" if any(part in name for part in secret) else value
        for name, value in settings.items()
    }
