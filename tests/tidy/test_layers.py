"""Imports follow the tables of ARCHITECTURE.md, and the pure rooms stay pure."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lograft"
SOURCES = sorted(SOURCE.rglob("*.py"))

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EVERYTHING = {path.name for path in SOURCE.iterdir() if path.is_dir()} | {"node"}


def parse_import_table(heading: str) -> dict[str, set[str]]:
    """The rows under a heading of ARCHITECTURE.md: each room with those that it may import."""
    section = ARCHITECTURE.read_text().split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    rows: dict[str, set[str]] = {}
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        room = cells[0].strip("`").removesuffix("/").removesuffix(".py")
        match cells[-1]:
            case "everything":
                rows[room] = EVERYTHING
            case "all above":
                rows[room] = set(rows)
            case "–":
                rows[room] = set()
            case names:
                rows[room] = set(names.split(", "))
    return rows


MAY_IMPORT = parse_import_table("Rooms")
#: All of them may import broker/errors.py and broker/cluster_metadata.py; broker/broker.py connects
#: them.
BROKER_PACKAGES = parse_import_table("Packages of `broker/`")
#: As in "`model wire` are pure".
PURE = set(re.findall(r"^`([a-z ]+)` are pure:", ARCHITECTURE.read_text(), re.MULTILINE)[0].split())
IMPURE_MODULES = {"asyncio", "os", "socket", "time", "random", "threading", "ssl", "subprocess"}
#: Only these rooms may use the operating system; all others go through model/seams.py.
MAY_TOUCH_THE_SYSTEM = {"runtime", "net", "cli", "simulation", "testing", "node"}
SHIPPED = {"lograft", "pyspark_lograft"}
SHIPPED_FILES = sorted((ROOT / "src").rglob("*.py"))
#: Packages of the repository that are not part of the wheel.
NOT_SHIPPED = {"campaigns", "bench", "tools", "examples", "tests"}
SYSTEM_MODULES = {"os", "time", "random", "threading", "socket", "shutil", "tempfile", "secrets"}


def room_of(file: Path) -> str:
    first = file.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def modules_imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            if node.module == "lograft":
                found.update(f"lograft.{alias.name}" for alias in node.names)
    return found


def rooms_imported(file: Path) -> set[str]:
    parts = [module.split(".") for module in modules_imported(file)]
    return {part[1] for part in parts if part[0] == "lograft" and len(part) > 1}


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_down_only(file: Path) -> None:
    room = room_of(file)
    if room in ("__init__", "__main__"):
        return
    assert room in MAY_IMPORT, f"{room} is a new room: give it a row in ARCHITECTURE.md"
    strangers = rooms_imported(file) - MAY_IMPORT[room] - {room, "__version__"}
    assert not strangers, f"{room}/ may not import {sorted(strangers)}"


@pytest.mark.parametrize("package", BROKER_PACKAGES)
def test_packages_of_the_broker_import_each_other_as_the_table_says(package: str) -> None:
    may_import = BROKER_PACKAGES[package] | {package, "errors", "cluster_metadata"}
    for file in (SOURCE / "broker" / package).glob("*.py"):
        neighbours = {
            module.split(".")[2]
            for module in modules_imported(file)
            if module.startswith("lograft.broker.")
        }
        assert not neighbours - may_import, f"{file.name} may not import {neighbours - may_import}"


@pytest.mark.parametrize("package", BROKER_PACKAGES)
def test_packages_of_the_broker_state_their_purpose_and_invariants(package: str) -> None:
    module = ast.parse((SOURCE / "broker" / package / "__init__.py").read_text())
    purpose, _, invariants = (ast.get_docstring(module) or "").partition("\n\nInvariants: ")
    assert purpose
    assert invariants


def test_every_row_is_a_room() -> None:
    assert set(MAY_IMPORT) == EVERYTHING - {"__pycache__"}


def test_the_cores_are_pure() -> None:
    cores = {"consensus", "replication", "metadata", "coordination", "security"}
    assert {"model", "wire", *cores} <= PURE <= EVERYTHING


def test_every_package_of_the_broker_has_a_row() -> None:
    packages = {path.parent.name for path in (SOURCE / "broker").glob("*/__init__.py")}
    assert packages == set(BROKER_PACKAGES)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_world_is_reached_through_the_seams(file: Path) -> None:
    room = room_of(file)
    roots = {module.split(".")[0] for module in modules_imported(file)}
    if room in PURE:
        assert not roots & IMPURE_MODULES, f"{room}/ is pure: {sorted(roots & IMPURE_MODULES)}"
    if room not in MAY_TOUCH_THE_SYSTEM:
        assert not roots & SYSTEM_MODULES, f"use a seam instead of {sorted(roots & SYSTEM_MODULES)}"


@pytest.mark.parametrize("file", sorted((SOURCE / "spark").rglob("*.py")), ids=lambda f: f.name)
def test_spark_imports_the_public_client(file: Path) -> None:
    """The command line is an application of the client, so it needs only what other applications
    can use."""
    internal = {module for module in modules_imported(file) if module.startswith("lograft.client.")}
    assert not internal


def test_the_wheel_holds_only_what_is_in_src() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["setuptools"]["packages"]["find"] == {"where": ["src"]}
    assert {file.parent.name for file in ROOT.glob("src/*/__init__.py")} == SHIPPED


@pytest.mark.parametrize("file", SHIPPED_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_that_ships_imports_what_does_not(file: Path) -> None:
    roots = {module.split(".")[0] for module in modules_imported(file)}
    assert not roots & NOT_SHIPPED, f"the wheel has no {sorted(roots & NOT_SHIPPED)}"
