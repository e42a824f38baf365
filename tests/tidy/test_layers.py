"""Who imports whom, and that the pure rooms stay pure. The tables are ARCHITECTURE.md's."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "lograft"
SOURCES = sorted(SOURCE.rglob("*.py"))

CORES = {"model", "wire", "consensus", "replication", "metadata", "coordination", "security"}
EVERYTHING = {path.name for path in SOURCE.iterdir() if path.is_dir()} | {"node"}
MAY_IMPORT = {
    "model": set(),
    "wire": {"model"},
    "consensus": {"model"},
    "replication": {"model", "consensus"},
    "metadata": {"model", "wire"},
    "coordination": {"model", "wire", "metadata"},
    "security": {"model", "wire"},
    "storage": {"model", "wire"},
    "runtime": {"model"},
    "net": {"model", "wire"},
    "broker": CORES | {"storage"},
    "api": CORES | {"storage", "broker"},
    "client": {"model", "wire", "security", "net", "runtime"},
    "spark": {"client", "model", "runtime"},
    "cli": EVERYTHING,
    "simulation": EVERYTHING,
    "testing": EVERYTHING,
    "node": EVERYTHING,
}
#: The packages of broker/, each with those of its neighbours that it may import. All may import
#: broker/errors.py; broker/broker.py joins them.
BROKER_PACKAGES = {
    "links": set(),
    "quorum": {"links"},
    "control": {"broker", "links", "quorum"},
    "partitions": set(),
    "logs": {"links", "partitions"},
    "replicas": {"links", "logs", "partitions", "quorum"},
    "coordinators": {"broker", "control", "links", "partitions"},
}
PURE = CORES
IMPURE_MODULES = {"asyncio", "os", "socket", "time", "random", "threading", "ssl", "subprocess"}
#: Only these rooms may touch the operating system; all else goes through model/seams.py.
MAY_TOUCH_THE_SYSTEM = {"runtime", "net", "cli", "simulation", "testing", "node"}
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
    assert room in MAY_IMPORT, f"{room} is a new room: give it a row in MAY_IMPORT"
    strangers = rooms_imported(file) - MAY_IMPORT[room] - {room, "__version__"}
    assert not strangers, f"{room}/ may not import {sorted(strangers)}"


@pytest.mark.parametrize("package", BROKER_PACKAGES)
def test_packages_of_the_broker_import_each_other_as_the_table_says(package: str) -> None:
    may_import = BROKER_PACKAGES[package] | {package, "errors"}
    for file in (SOURCE / "broker" / package).glob("*.py"):
        neighbours = {
            module.split(".")[2]
            for module in modules_imported(file)
            if module.startswith("lograft.broker.")
        }
        assert not neighbours - may_import, f"{file.name} may not import {neighbours - may_import}"


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
