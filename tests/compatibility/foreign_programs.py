"""Installs the clients in other languages: builds the Go one, installs the Node one, finds kcat."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

from tools.kafka_jars import REPOSITORY, ensure_program

CACHE: Final = REPOSITORY / ".cache"
SOURCES: Final = Path(__file__).parent
BUILD_SECONDS_MAX: Final = 600
RUN_SECONDS_MAX: Final = 90


@cache
def kcat() -> str:
    ensure_program("kcat", package="kcat")
    return "kcat"


@cache
def go_scenario() -> Path:
    ensure_program("go", package="golang")
    binary = CACHE / "go-scenario"
    build = ["go", "build", "-o", str(binary), "."]
    run(build, folder=SOURCES / "go", seconds_max=BUILD_SECONDS_MAX)
    return binary


@cache
def js_scripts() -> Path:
    """The working directory: Node looks for packages beside a script."""
    ensure_program("node", package="nodejs")
    ensure_program("npm", package="npm")
    folder = CACHE / "js"
    folder.mkdir(parents=True, exist_ok=True)
    for source in (SOURCES / "js").iterdir():
        if source.is_file():
            shutil.copy(source, folder)
    if not (folder / "node_modules" / "kafkajs").exists():
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        run(["npm", "install", *quiet], folder=folder, seconds_max=BUILD_SECONDS_MAX)
    return folder


def run(
    command: list[str],
    *,
    stdin: bytes = b"",
    folder: Path | None = None,
    seconds_max: int = RUN_SECONDS_MAX,
) -> bytes:
    """Returns the output of the program, which must succeed."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, cwd=folder, timeout=seconds_max
    )
    errors = done.stderr.decode(errors="replace")
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}\n{errors}"
    return done.stdout


def run_json(command: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(command))
    return answer
