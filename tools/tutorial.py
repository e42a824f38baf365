"""Reads the steps of the tutorial, and writes the tutorial as a Jupyter notebook.

    python -m tools.tutorial

A test runs the steps, another one checks that the notebook is up to date.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

PAGE: Final = Path(__file__).parents[1] / "docs" / "tutorial" / "index.md"
NOTEBOOK: Final = PAGE.with_name("tutorial.ipynb")

#: Commands that run until they are stopped, in a separate terminal.
SERVER_COMMAND: Final = "lograft start"

_STEP: Final = re.compile(
    r"^```sh\n(?P<commands>.*?)^```$"
    r"|^```text\n(?P<output>.*?)^```$"
    r"|^```\{code-block\} python\n:caption: (?P<name>\S+)\n\n(?P<code>.*?)^```$"
    r"|^<!-- (?P<stop>stop) -->$",
    re.DOTALL | re.MULTILINE,
)


_NUMBERS: Final = re.compile(r"[0-9]+(?:,[0-9]+)*")


class Commands(NamedTuple):
    """Commands for the shell."""

    text: str

    @property
    def is_server(self) -> bool:
        return self.text.startswith(SERVER_COMMAND)


class Output(NamedTuple):
    """Lines that the previous commands print, in this order. Numbers, and lists of numbers, are
    examples: the actual ones may differ."""

    text: str

    def is_in(self, printed: str) -> bool:
        lines = (_NUMBERS.sub(r"[0-9,]+", re.escape(line)) for line in self.text.splitlines())
        pattern = "\n(?:.*\n)*?".join(f"{line}$" for line in lines)
        return re.search(f"^{pattern}", printed, re.MULTILINE) is not None


class File(NamedTuple):
    """A file that the reader saves."""

    name: str
    text: str


class Stop(NamedTuple):
    """Ctrl-C in the terminal of the server."""


Step: TypeAlias = Commands | Output | File | Stop


def steps() -> list[Step]:
    return [step for step in _parts(PAGE.read_text()) if not isinstance(step, str)]


def _parts(page: str) -> list[Step | str]:
    """The page in order: text and steps."""
    parts: list[Step | str] = []
    end = 0
    for match in _STEP.finditer(page):
        parts.append(page[end : match.start()])
        end = match.end()
        if match["commands"] is not None:
            parts.append(Commands(match["commands"]))
        elif match["output"] is not None:
            parts.append(Output(match["output"]))
        elif match["name"] is not None:
            parts.append(File(match["name"], match["code"]))
        else:
            parts.append(Stop())
    parts.append(page[end:])
    return parts


def notebook_text() -> str:
    cells = [_cell(part) for part in _parts(PAGE.read_text()) if part not in ("", "\n", "\n\n")]
    notebook = {
        "cells": [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cell(part: Step | str) -> dict[str, Any]:
    match part:
        case str():
            return {"cell_type": "markdown", "metadata": {}, "source": part.strip()}
        case Output(text):
            shown = f"The output contains:\n\n```text\n{text}```"
            return {"cell_type": "markdown", "metadata": {}, "source": shown}
        case File(name, text):
            return _code(f"%%writefile {name}\n{text}")
        case Commands(text) if part.is_server:
            # The notebook has no second terminal.
            return _code(
                "import subprocess\n\n"
                f"server = subprocess.Popen({text.split()!r}, stdout=subprocess.PIPE, text=True)\n"
                'while "Ctrl-C" not in server.stdout.readline():\n'
                "    pass"
            )
        case Commands(text):
            return _code(f"%%bash\n{text}")
        case Stop():
            return _code("import signal\n\nserver.send_signal(signal.SIGINT)\nserver.communicate()")


def _code(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": source.strip("\n"),
    }


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook_text())
    sys.stdout.write(f"wrote {NOTEBOOK}\n")
