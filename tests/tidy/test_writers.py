"""State with a single owner is assigned only in its file; other files call methods."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "lograft"


def assigned_attributes(text: str) -> Iterator[ast.Attribute]:
    """Yields every attribute that is set or deleted, also in a tuple, a `for` or a `with`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node


def owner_of(attribute: ast.Attribute) -> str:
    """`partition` of `partition.x`, `self.partition` of `self.partition.x`."""
    return ast.unparse(attribute.value)


def test_only_the_log_sets_its_offsets() -> None:
    offsets = {"log_start_offset", "durable_offset", "end_offset"}
    found = [
        f"{file.relative_to(SOURCE)}:{attribute.lineno}"
        for room in ("storage", "broker")
        for file in (SOURCE / room).rglob("*.py")
        if file != SOURCE / "storage" / "log.py"
        for attribute in assigned_attributes(file.read_text())
        if attribute.attr in offsets
    ]
    assert not found, f"call a method of Log, which asserts what holds between them: {found}"


def test_only_the_partition_sets_its_attributes() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{attribute.lineno} {ast.unparse(attribute)}"
        for file in SOURCE.rglob("*.py")
        if file != SOURCE / "broker" / "partitions" / "partition.py"
        for attribute in assigned_attributes(file.read_text())
        if owner_of(attribute).split(".")[-1] == "partition"
    ]
    assert not found, f"call a method of Partition that says what happened: {found}"


def test_assignments_are_found_in_every_form() -> None:
    text = "a.x = b.y.z = 1\nc.x += 1\nd.x: int = 2\n(e.x, f.x) = g.x, h.x\ndel i.x\n"
    found = sorted(owner_of(attribute) for attribute in assigned_attributes(text))
    assert found == ["a", "b.y", "c", "d", "e", "f", "i"]
