"""Contexts: named clusters with their bootstrap servers and client settings.

They are stored in one JSON file in the user's configuration directory (or in LOGRAFT_CONFIG_DIR),
which only its owner can read, since it may contain passwords. With `lograft context add --keyring`
the passwords are in the keyring of the desktop or the operating system instead, and the file only
names their settings. A command takes its bootstrap servers
from the first of these that is set: --bootstrap-server, the file of --command-config,
LOGRAFT_BOOTSTRAP_SERVERS, the context (--context, LOGRAFT_CONTEXT or the current one). The default
is localhost:9092.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lograft.model.errors import InvalidInput

FOLDER_VARIABLE: Final = "LOGRAFT_CONFIG_DIR"
CONTEXT_VARIABLE: Final = "LOGRAFT_CONTEXT"
SERVERS_VARIABLE: Final = "LOGRAFT_BOOTSTRAP_SERVERS"
SERVERS: Final = "bootstrap.servers"
KEYRING_SERVICE: Final = "lograft"
DEFAULT_SERVERS: Final = "localhost:9092"


@dataclass(slots=True)
class Contexts:
    current: str | None = None
    #: Client settings by context name.
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)
    #: Settings whose values are in the keyring, by context name.
    in_keyring: dict[str, list[str]] = field(default_factory=dict)


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
            {
                str(name): [str(key) for key in keys]
                for name, keys in content.get("in_keyring", {}).items()
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
    content = {
        "current": contexts.current,
        "contexts": contexts.by_name,
        "in_keyring": contexts.in_keyring,
    }
    text = json.dumps(content, indent=2)
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(text + "\n", encoding="utf-8")
    new.replace(path)


def current_context() -> str | None:
    """Returns the name of the context that this command uses."""
    return os.environ.get(CONTEXT_VARIABLE) or read_contexts().current


def check_exists(contexts: Contexts, name: str) -> None:
    """Raises InvalidInput."""
    if name not in contexts.by_name:
        raise InvalidInput(
            f"context {name} does not exist: `lograft context list` shows all contexts"
        )


def settings_of(name: str) -> dict[str, str]:
    contexts = read_contexts()
    check_exists(contexts, name)
    return contexts.by_name[name] | read_keyring(name, contexts.in_keyring.get(name, ()))


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


def is_secret(setting: str) -> bool:
    return any(part in setting for part in ("password", "jaas", "key", "secret"))


def hide_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: "(hidden)" if is_secret(name) else value for name, value in settings.items()}


# ── keyring ──────────────────────────────────────────────────────────────────────────────────────


def write_keyring(context: str, values: Mapping[str, str]) -> None:
    keyring = _keyring()
    for setting, value in values.items():
        with _keyring_errors():
            keyring.set_password(KEYRING_SERVICE, f"{context}/{setting}", value)


def read_keyring(context: str, settings: Iterable[str]) -> dict[str, str]:
    values = {}
    for setting in settings:
        with _keyring_errors():
            value = _keyring().get_password(KEYRING_SERVICE, f"{context}/{setting}")
        if value is None:
            raise InvalidInput(
                f"the keyring has no {setting} of context {context}: add the context again"
            )
        values[setting] = str(value)
    return values


def delete_keyring(context: str, settings: Iterable[str]) -> None:
    """Deletes what exists: the user may have deleted some entries."""
    for setting in settings:
        with _keyring_errors():
            name = f"{context}/{setting}"
            if _keyring().get_password(KEYRING_SERVICE, name) is not None:
                _keyring().delete_password(KEYRING_SERVICE, name)


def _keyring() -> Any:
    try:
        import keyring
    except ImportError:
        raise InvalidInput(
            "the Python package keyring is not installed: install it, or add the context without"
            " --keyring"
        ) from None
    return keyring


@contextmanager
def _keyring_errors() -> Iterator[None]:
    """Reports the failure of a keyring by its kind only: the text might contain the value."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the keyring cannot be used ({type(error).__name__}): unlock it, or add the context"
            " without --keyring"
        ) from None
