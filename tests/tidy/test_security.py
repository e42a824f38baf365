"""Code cannot be loaded from settings, secrets are compared in constant time, and the page about
security names a test for each class of attacks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = sorted((ROOT / "src").rglob("*.py"))
PAGE: Final = ROOT / "docs" / "security.md"
#: Functions that execute text, and modules that execute what they read.
EXECUTORS: Final = frozenset({"eval", "exec", "compile", "__import__"})
EXECUTING_MODULES: Final = frozenset({"marshal", "pickle", "shelve", "yaml"})
#: Files that execute something, with the reason why no setting or request reaches it.
KNOWN_EXECUTORS: Final[dict[str, str]] = {
    "src/lograft/api/response_errors.py": "code generated from the fields of responses",
    "src/lograft/api/router.py": "imports the modules of the package api",
    "src/lograft/cli/kafka/tools.py": "imports the tools of this package",
    "src/lograft/model/lazy_names.py": "imports what a module of this package declares",
    "src/lograft/wire/apis.py": "imports the messages of this package",
    "src/lograft/wire/message.py": "code generated from the fields of messages",
    "src/lograft/wire/record_frames.py": "imports the records of this package",
    "src/lograft/wire/source_builder.py": "code generated from the fields of messages",
}
#: Rooms in which secrets are compared.
SECRET_ROOMS: Final = ("api", "security", "metadata", "http")
SECRET_NAME: Final = re.compile(
    r"(password|secret|hmac|proof|signature|stored_key|server_key|token)$"
)
ROW: Final = re.compile(
    r"^\| (?P<attack>[^|]+) \| (?P<tests>(?:`[^`]+`(?:, )?)+) \|$", re.MULTILINE
)
TEST: Final = re.compile(r"`(?P<path>tests/[\w/]+\.py): (?P<name>test_\w+)`")


def place_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def find_executors(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in EXECUTORS:
                yield name
            case (
                ast.Call(func=ast.Attribute(attr="import_module"))
                | ast.Call(func=ast.Name(id="import_module"))
            ):
                yield "import_module"
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in EXECUTING_MODULES)
            case ast.ImportFrom(module=str(module)) if module in EXECUTING_MODULES:
                yield module
            case _:
                pass


def test_settings_cannot_load_code() -> None:
    found = {
        place_of(path): names for path in SOURCES if (names := [*find_executors(path.read_text())])
    }
    assert {place: found[place] for place in found.keys() - KNOWN_EXECUTORS.keys()} == {}
    assert KNOWN_EXECUTORS.keys() <= found.keys(), "remove what executes nothing any more"


def find_comparisons(source: str) -> Iterator[str]:
    """Comparisons with == of values whose name is that of a secret."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        if not any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops):
            continue
        operands = [node.left, *node.comparators]
        if any(isinstance(operand, ast.Constant) for operand in operands):
            continue
        for operand in operands:
            name = {ast.Name: "id", ast.Attribute: "attr"}.get(type(operand))
            if name is not None and SECRET_NAME.search(getattr(operand, name)):
                yield ast.unparse(node)


@pytest.mark.parametrize("room", SECRET_ROOMS)
def test_secrets_are_compared_in_constant_time(room: str) -> None:
    found = {
        place_of(path): comparisons
        for path in sorted((ROOT / "src" / "lograft" / room).rglob("*.py"))
        if (comparisons := [*find_comparisons(path.read_text())])
    }
    assert found == {}


def test_these_tests_find_what_they_look_for() -> None:
    assert [*find_executors("import pickle\neval('1')\nimportlib.import_module(x)")] == [
        "pickle",
        "eval",
        "import_module",
    ]
    assert [*find_comparisons("if given.password == password: pass")]
    assert [*find_comparisons("x = proof != y")] == ["proof != y"]
    assert not [*find_comparisons("x = password == ''")]


def test_every_class_of_attacks_has_a_test() -> None:
    section = PAGE.read_text().partition("## Attack classes")[2].partition("\n## ")[0]
    rows = [*ROW.finditer(section)]
    assert len(rows) >= 9
    for row in rows:
        tests = [*TEST.finditer(row["tests"])]
        assert tests, row["attack"]
        for test in tests:
            source = (ROOT / test["path"]).read_text()
            assert f"def {test['name']}(" in source, test[0]
