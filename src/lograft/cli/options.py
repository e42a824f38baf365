"""Options that commands share, and parsers of their values."""

from typing import Annotated, Any, Final

import typer

#: Typer settings of every command group.
SETTINGS: Final[dict[str, Any]] = {
    # rich takes longer to import than everything else together.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
}
BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,…",
        help="Bootstrap servers; by default those of the context, or localhost:9092.",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config", metavar="FILE", help="A .properties file with client settings."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Execute = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Apply the changes, or only show them.")
]
Topics = Annotated[str, typer.Option(metavar="NAME,…", help="Only these topics.")]


def names_of(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers_of(text: str) -> list[int]:
    try:
        return [int(name) for name in names_of(text)]
    except ValueError:
        raise typer.BadParameter(f"{text} is not a list of numbers such as 1,2,3") from None


def pairs_of(texts: list[str] | None) -> dict[str, str]:
    """Parses the values of a repeated option NAME=VALUE."""
    pairs = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text} is not of the form NAME=VALUE")
        pairs[name.strip()] = value
    return pairs
