"""Metrics are declared once, documented, and collected by a node."""

import ast
from pathlib import Path

from tools.generate_metrics import INTERFACE, OUTPUT, SOURCE, declared_metrics, page

TYPES = {"Counter", "Gauge", "Histogram"}


def test_the_page_of_metrics_is_current() -> None:
    assert OUTPUT.read_text() == page(), "run python -m tools.generate_metrics"


def test_each_metric_has_a_name_of_its_own() -> None:
    names = [metric.name for metrics in declared_metrics().values() for metric in metrics]
    assert len(names) == len(set(names)) > 0


def test_each_metric_is_declared_as_a_constant_of_its_module() -> None:
    """The page and the tests do not find metrics that are declared elsewhere."""
    found: dict[str, int] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        if INTERFACE in text and (calls := count_declarations(text)):
            found[module_of(file)] = calls
    assert found == {module: len(metrics) for module, metrics in declared_metrics().items()}


def test_no_object_describes_itself_in_a_dictionary() -> None:
    found = [
        f"{module_of(file)}:{node.lineno}"
        for file in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "statistics"
    ]
    assert not found, f"declare metrics and write collect_samples: {found}"


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts)


def count_declarations(text: str) -> int:
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TYPES
        for node in ast.walk(ast.parse(text))
    )
