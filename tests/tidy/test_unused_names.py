"""Every function, class and constant is used."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT, tracked_files

CHECKED: Final = ("src", "campaigns", "bench", "tools", "examples")
#: Generated from Kafka's schemas: all messages, including those that this version does not use.
GENERATED: Final = ("src/lograft/wire/messages/", "src/lograft/wire/records/")
#: Names that a library looks up, each with the library.
CALLED_BY_LIBRARIES: Final = {
    "_timer_handle_cancelled": "asyncio",
    "get_debug": "asyncio",
    "set_debug": "asyncio",
    "shutdown_default_executor": "asyncio",
    "onQueryProgress": "PySpark",
    "onQueryStarted": "PySpark",
    "onQueryTerminated": "PySpark",
    "reportLatestOffset": "PySpark",
    "streamReader": "PySpark",
    "pytest_configure": "pytest",
}


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Yields functions, classes and constants, except special methods and what a decorator may
    have registered."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.decorator_list and not node.name.startswith("__"):
                yield node.name
        elif isinstance(node, ast.AnnAssign) and is_constant(node):
            yield ast.unparse(node.target)


def is_constant(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name) and ast.unparse(node.annotation).startswith("Final")


@cache
def word_counts() -> Counter[str]:
    files = [file for file in tracked_files() if file.suffix in (".py", ".toml", ".pyi")]
    return Counter(word for file in files for word in re.findall(r"\w+", file.read_text()))


def is_checked(file: Path) -> bool:
    path = str(file.relative_to(ROOT))
    return file.suffix == ".py" and path.startswith(CHECKED) and not path.startswith(GENERATED)


def test_every_name_is_used() -> None:
    unused = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in tracked_files()
        if is_checked(file)
        for name in defined_names(ast.parse(file.read_text()))
        if word_counts()[name] == 1 and name not in CALLED_BY_LIBRARIES
    ]
    assert not unused, f"remove what nothing uses: {unused}"


def test_the_exceptions_are_needed() -> None:
    used = {name: word_counts()[name] for name in CALLED_BY_LIBRARIES if word_counts()[name] != 2}
    assert not used, f"their definition and this file should be the only places: {used}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def find(): ...", ["find"]),
        ("class Log:\n    async def read(self): ...", ["Log", "read"]),
        ("LIMIT: Final = 5\nsize: int = 3", ["LIMIT"]),
        ("@app.command()\ndef start(): ...", []),
        ("class Log:\n    def __len__(self): ...", ["Log"]),
    ],
)
def test_which_names_are_checked(source: str, names: list[str]) -> None:
    assert list(defined_names(ast.parse(source))) == names
