"""Finds the examples in docstrings: the paragraphs that are Python."""

import ast
import textwrap


def as_function(code: str) -> str:
    """Examples may contain `await` and `async with`."""
    return "async def example():\n" + textwrap.indent(code, "    ")


def is_code(paragraph: str) -> bool:
    try:
        tree = ast.parse(as_function(textwrap.dedent(paragraph)))
    except SyntaxError:
        return False
    body = tree.body[0]
    assert isinstance(body, ast.AsyncFunctionDef)
    # A single word or number is prose, too.
    return not all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Name | ast.Constant)
        for statement in body.body
    )
