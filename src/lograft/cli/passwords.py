"""Reads passwords from a file, from standard input or from the terminal, never from arguments,
which all users of a machine can see."""

import sys
from typing import Final

from lograft.model.errors import InvalidInput

STANDARD_INPUT: Final = "-"
_LENGTH_MAX: Final = 4096


def read_password(path: str | None, prompt: str) -> str:
    """Returns the first line of the file, or what the user enters twice if there is no file."""
    if path is None:
        return _ask(prompt)
    try:
        if path == STANDARD_INPUT:
            line = sys.stdin.readline(_LENGTH_MAX + 1)
        else:
            with open(path, encoding="utf-8") as file:
                line = file.readline(_LENGTH_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"cannot read the password from {path}: {reason}") from None
    password = line.rstrip("\r\n")
    if not password or len(password) > _LENGTH_MAX:
        raise InvalidInput(
            f"the first line of {path} must be a password of 1 to {_LENGTH_MAX} characters"
        )
    return password


def _ask(prompt: str) -> str:
    import typer

    if not sys.stdin.isatty():
        raise InvalidInput(
            "there is no terminal to ask for the password: use --password-file FILE, or"
            " --password-file - for standard input"
        )
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=True))
