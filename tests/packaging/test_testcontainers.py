"""The recipes for Testcontainers: linted, and their tests run against Podman's Docker API."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.clean_root import CACHE, root_only
from tests.packaging.engine import copy_of, docker_api, ensure_image
from tools.kafka_jars import REPOSITORY, ensure_program

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200), root_only()]

RECIPES: Final = REPOSITORY / "packaging" / "testcontainers"
SECONDS_MAX: Final = 900
Environment = dict[str, str]


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    ensure_image()
    with docker_api(tmp_path_factory.mktemp("docker")) as environment:
        yield environment


def run(folder: Path, environment: Environment, *command: str | Path) -> str:
    done = subprocess.run(
        ["nice", "-n", "10", *map(str, command)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python(docker: Environment) -> None:
    folder = copy_of(RECIPES / "python", CACHE / "testcontainers")
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        run(folder, docker, sys.executable, "-m", "venv", "venv")
        run(folder, docker, python, "-m", "pip", "install", "-q", "-r", "requirements.txt")
    run(RECIPES, docker, sys.executable, "-m", "ruff", "check", "--quiet", "python")
    run(RECIPES, docker, sys.executable, "-m", "ruff", "format", "--check", "--quiet", "python")
    plain = {name: docker[name] for name in docker if not name.startswith("PYTHON")}
    settings = ("-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", os.devnull)
    assert "1 passed" in run(folder, plain, python, "-m", "pytest", *settings)


def test_java(docker: Environment) -> None:
    ensure_program("mvn", package="maven")
    folder = copy_of(RECIPES / "java", CACHE / "testcontainers")
    shutil.rmtree(folder / "target", ignore_errors=True)
    assert "Tests run: 1, Failures: 0" in run(folder, docker, "mvn", "--batch-mode", "test")


def test_go(docker: Environment) -> None:
    ensure_program("go", package="golang")
    assert run(RECIPES / "go", docker, "gofmt", "-l", ".") == ""
    run(RECIPES / "go", docker, "go", "vet", "./...")
    assert "ok" in run(RECIPES / "go", docker, "go", "test", "-count=1", "./...")


def test_node(docker: Environment) -> None:
    ensure_program("npm", package="npm")
    folder = copy_of(RECIPES / "node", CACHE / "testcontainers")
    quiet = ("--no-package-lock", "--no-audit", "--no-fund", "--silent")
    run(folder, docker, "npm", "install", *quiet)
    run(folder, docker, "npm", "run", "--silent", "check")
    assert "# pass 1" in run(folder, docker, "npm", "test", "--silent")
