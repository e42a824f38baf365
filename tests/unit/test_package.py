"""The names in the package `lograft`, and the modules that importing it loads."""

import re
import runpy
import subprocess
import sys
import tomllib
from ast import literal_eval
from pathlib import Path

import pytest

import lograft
import lograft.client

ROOT = Path(__file__).parents[2]


def test_the_clients_can_be_imported_from_the_package() -> None:
    for name in ("Admin", "Consumer", "Producer"):
        assert getattr(lograft, name) is getattr(lograft.client, name)
    assert set(dir(lograft)) == set(lograft.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        _ = lograft.Broker


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); {statement}; print(set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    modules: set[str] = literal_eval(done.stdout)
    return modules


def test_importing_the_package_loads_no_client() -> None:
    assert {name for name in loaded_by("import lograft") if name.startswith("lograft")} == {
        "lograft",
        "lograft.model",
        "lograft.model.lazy_names",
    }


def test_the_clients_load_neither_server_nor_terminal_libraries() -> None:
    """docs/decisions/0016-one-distribution.md promises a client that runs without them."""
    modules = loaded_by("from lograft import Admin, Consumer, Producer")
    libraries = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert {name for name in libraries if not name.startswith("_")} == {
        "cramjam",
        "crc32c",
        "lograft",
    }
    rooms = {name.split(".")[1] for name in modules if name.startswith("lograft.")}
    assert rooms == {"client", "model", "net", "runtime", "security", "wire"}


def test_the_description_for_indexes_has_no_relative_links() -> None:
    adapt_links = runpy.run_path(str(ROOT / "setup.py"))["adapt_links"]
    text = "![a plot](bench/a.svg)\n[guide](docs/a.md#b), [site](https://a.example), [part](#b)"
    assert adapt_links(text, source=None, release="v1") == (
        "\nguide, [site](https://a.example), [part](#b)"
    )
    assert adapt_links(text, source="https://host.example/lograft", release="v1") == (
        "![a plot](https://host.example/lograft/raw/v1/bench/a.svg)\n"
        "[guide](https://host.example/lograft/blob/v1/docs/a.md#b),"
        " [site](https://a.example), [part](#b)"
    )


def test_the_description_is_the_readme() -> None:
    setup = runpy.run_path(str(ROOT / "setup.py"))
    links = re.findall(r"\]\(([^)]+)\)", setup["read_description"]())
    assert [link for link in links if not link.startswith("https://")] == []
    assert setup["read_description"]().startswith("# Lograft\n")


def test_pyproject_takes_the_version_from_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "lograft.__version__"}
