"""Rules of the repository that have no file of their own."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT, tracked_files

API = ROOT / "src" / "lograft" / "api"


def is_handler(source: str) -> bool:
    """Whether the router calls the module: it has `handle(context, request)`."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == "handle"
        and [arg.arg for arg in node.args.args] == ["context", "request"]
        for node in ast.parse(source).body
    )


def declares_needs(source: str) -> bool:
    """`API: Final = Api(…, needs=…)`, or `NEEDS: Final = …` for handlers of several APIs."""
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id="API"),
                value=ast.Call(func=ast.Name(id="Api"), keywords=keywords),
            ):
                return any(keyword.arg == "needs" for keyword in keywords)
            case ast.AnnAssign(target=ast.Name(id="NEEDS"), value=ast.expr()):
                return True
            case _:
                continue
    return False


HANDLERS: Final = [file for file in sorted(API.glob("*.py")) if is_handler(file.read_text())]


@pytest.mark.parametrize("file", HANDLERS, ids=lambda file: file.stem)
def test_every_handler_declares_its_needs(file: Path) -> None:
    assert declares_needs(file.read_text()), "the router cannot check the permissions of clients"


def test_every_api_has_a_test() -> None:
    tests = {file.name for file in (ROOT / "tests" / "unit" / "api").glob("test_*.py")}
    apis = [file for file in HANDLERS if "API: Final" in file.read_text()]
    assert len(apis) > 60
    assert [file.name for file in apis if f"test_{file.name}" not in tests] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("API: Final = Api(key=1, versions=range(1), needs=NOTHING)", True),
        ("NEEDS: Final = whole_request(CLUSTER_ACTION)", True),
        ("API: Final = Api(key=1, versions=range(1))", False),
        ("needs = NOTHING", False),
    ],
)
def test_what_declares_needs(source: str, expected: bool) -> None:
    assert declares_needs(source) is expected


def test_no_addresses_of_package_registries_are_recorded() -> None:
    registries = re.compile(
        r"https?://[^\s)\"']*(pypi|pythonhosted|npmjs|maven|crates\.io|proxy\.golang|debian)"
    )
    for file in tracked_files():
        if not file.is_file() or file.stat().st_size > 1_000_000:
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        assert not registries.search(text), f"{file.relative_to(ROOT)} names a registry's address"


def test_rooms_have_no_drawers_for_everything() -> None:
    for name in ("utils.py", "helpers.py", "common.py"):
        assert not list((ROOT / "src").rglob(name)), f"{name}: give it the name of what it does"


def test_no_links_are_tracked() -> None:
    """A tracked link to a shared .venv would replace the real folder in other clones."""
    assert [file.relative_to(ROOT) for file in tracked_files() if file.is_symlink()] == []
