"""Runs the command `lograft` in this process: a new process for each call would be much slower."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from lograft.cli.main import main


@dataclass(frozen=True)
class Shown:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def lograft(*arguments: str, text: str = "") -> Shown:
    """Returns the result of any command, including failures."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["lograft", *arguments])
        patch.setattr(sys, "stdin", io.StringIO(text))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    number = code if isinstance(code, int) else int(code is not None)
    return Shown(number, out.getvalue(), err.getvalue())


def done(*arguments: str, text: str = "") -> Shown:
    """Runs a command that must succeed."""
    shown = lograft(*arguments, text=text)
    assert shown.code == 0, f"lograft {' '.join(arguments)}: {shown.err}"
    return shown
