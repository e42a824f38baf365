"""Conventions for names in all rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def members(tree: ast.AST) -> Iterator[str]:
    """The members of every enum, as `Enum.MEMBER`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(
            ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases
        ):
            for statement in node.body:
                if isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        yield f"{node.name}.{ast.unparse(target)}"


ROOMS = sorted(path.name for path in (SOURCES / "lograft").iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize("room", ROOMS)
def test_members_of_enums_are_upper_case(room: str) -> None:
    """As in Python's documentation, and as Kafka writes its error codes."""
    folder = SOURCES / "lograft" / room
    files = folder.rglob("*.py") if folder.is_dir() else [folder]
    found = [name for file in files for name in members(ast.parse(file.read_text()))]
    assert [name for name in found if not name.partition(".")[2].isupper()] == []


def test_members_are_found() -> None:
    source = "class Mode(IntEnum):\n    ISR = 0\n    raft = 1\n\n    def of(self) -> int: ...\n"
    assert list(members(ast.parse(source))) == ["Mode.ISR", "Mode.raft"]


def loggers(source: str) -> list[str]:
    """The statements that create a module's logger."""
    return [
        ast.unparse(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and ast.unparse(node.value).startswith("logging.getLogger")
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_loggers_are_named_after_their_modules(room: str) -> None:
    """With this, an operator can set the level of a module or, by its parent, of a whole room:
    lograft.net."""
    folder = SOURCES / "lograft" / room
    files = folder.rglob("*.py") if folder.is_dir() else [folder]
    found = {line for file in files for line in loggers(file.read_text())}
    # The security log has a name that does not depend on the code.
    found.discard("LOGGER: Final = logging.getLogger('lograft.security')")
    assert found <= {"LOGGER: Final = logging.getLogger(__name__)"}


def test_loggers_are_found() -> None:
    assert loggers("log = logging.getLogger('x')\n") == ["log = logging.getLogger('x')"]
