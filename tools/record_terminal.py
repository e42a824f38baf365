"""Writes docs/terminal.svg: a terminal in which the commands below run on a new cluster.

python -m tools.record_terminal
"""

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

OUTPUT: Final = Path(__file__).parents[1] / "docs" / "terminal.svg"
COLUMNS: Final = 96
SERVER: Final = "lograft start --nodes 3"
COMMANDS: Final = (
    "lograft topics create orders --partitions 1 --replication-factor 3",
    "lograft produce orders --key alice tea milk bread",
    "lograft consume orders",
    "lograft topics alter --topic orders --mode raft",
    "lograft topics describe orders",
)


def record() -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            "COLUMNS": str(COLUMNS),
            "LOGRAFT_CONFIG_DIR": directory,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        server = subprocess.Popen(
            SERVER.split(), cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            _show_command(console, SERVER)
            assert server.stdout is not None
            for line in server.stdout:
                console.print(Text(line.rstrip()))
                if "Ctrl-C" in line:
                    break
            for command in COMMANDS:
                console.print()
                _show_command(console, command)
                done = subprocess.run(
                    command.split(), env=environment, capture_output=True, text=True, check=True
                )
                console.print(Text(done.stdout.rstrip()))
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()
    console.print()  # the picture cuts off the descenders of the last line
    picture = console.export_svg(title="lograft", unique_id="lograft")
    # Use the fonts of the reader's system; rich's template loads a font from a server.
    return re.sub(r" *@font-face \{.*?\n *\}\n", "", picture, flags=re.DOTALL)


def _show_command(console: Console, command: str) -> None:
    console.print(Text.assemble(("$ ", "green"), (command, "bold")))


if __name__ == "__main__":
    OUTPUT.write_text(record())
    sys.stdout.write(f"wrote {OUTPUT}\n")
