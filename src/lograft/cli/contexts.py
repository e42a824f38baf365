"""Contexts: clusters by name, so that no command has to be told where they are.

One JSON file in the user's folder of settings (LOGRAFT_CONFIG_DIR names another), for its owner
only: it may hold passwords. Of whom a command asks, the first of these says: its own
--bootstrap-server, LOGRAFT_BOOTSTRAP_SERVERS, the context (--context, LOGRAFT_CONTEXT or the one in
use), localhost:9092.
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
    #: Settings of a client by name.
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
        read = json.loads(path.read_text(encoding="utf-8"))
        return Contexts(
            read["current"],
            {
                str(name): {str(key): str(value) for key, value in settings.items()}
                for name, settings in read["contexts"].items()
            },
        )
    except FileNotFoundError:
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"{path} is no file of contexts: mend it, or remove it and add them again"
        ) from None


def write_contexts(contexts: Contexts) -> None:
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"current": contexts.current, "contexts": contexts.by_name}, indent=2)
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)


def chosen_context() -> str | None:
    """The name that holds for this command."""
    return os.environ.get(CONTEXT_VARIABLE) or read_contexts().current


def settings_of(name: str) -> dict[str, str]:
    contexts = read_contexts()
    if name not in contexts.by_name:
        raise InvalidInput(
            f"there is no context {name}; `lograft context list` shows those there are"
        )
    return contexts.by_name[name]


def client_settings(servers: str | None, config_file: str | None) -> dict[str, Any]:
    """What a client is told: the context, then the file, then what the command line says."""
    from lograft.cli.node_runner import read_properties

    context = chosen_context()
    settings: dict[str, Any] = {SERVERS: DEFAULT_SERVERS}
    settings |= settings_of(context) if context is not None else {}
    if os.environ.get(SERVERS_VARIABLE):
        settings[SERVERS] = os.environ[SERVERS_VARIABLE]
    if config_file is not None:
        settings |= read_properties(config_file)
    if servers is not None:
        settings[SERVERS] = servers
    return settings


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Without secrets."""
    secret = ("password", "jaas", "key")
    return {
        name: "(hidden)" if any(word in name for word in secret) else value
        for name, value in settings.items()
    }
