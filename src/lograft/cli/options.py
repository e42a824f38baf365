"""What the commands share: how they look, whom they ask, and how they answer."""

from typing import Annotated, Any, Final

import typer

#: Of every group of commands.
SETTINGS: Final[dict[str, Any]] = {
    # rich takes longer to import than everything else together, and help needs no colours.
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
        help="Servers to ask; else those of the context, else localhost:9092.",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config", metavar="FILE", help="A .properties file with settings of the client."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Execute = Annotated[
    bool, typer.Option("--execute/--dry-run", help="Do it, or only show what would be done.")
]
Topics = Annotated[str, typer.Option(metavar="NAME,…", help="Only these topics.")]


def names_of(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers_of(text: str) -> list[int]:
    try:
        return [int(name) for name in names_of(text)]
    except ValueError:
        raise typer.BadParameter(f"{text}: write numbers, as in 1,2,3") from None


def pairs_of(texts: list[str] | None) -> dict[str, str]:
    """NAME=VALUE, repeated."""
    pairs = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise typer.BadParameter(f"{text}: write it as in retention.ms=60000")
        pairs[name.strip()] = value
    return pairs
