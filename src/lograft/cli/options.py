"""What the commands share: how they look, and whom they ask."""

from typing import Annotated, Final

import typer

SETTINGS: Final = {
    # rich takes longer to import than everything else together, and help needs no colours.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "no_args_is_help": True,
}
BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Servers to ask."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
