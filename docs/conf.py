"""Sphinx configuration: `make docs` builds the site, `make check` checks its links."""

import sys
import textwrap
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

project = "Lograft"
copyright = "The Lograft authors. Apache-2.0"
html_title = "Lograft"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_static_path: list[str] = []
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Docstrings use single backticks for code, as the Markdown pages do.
default_role = "literal"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True


def mark_code_blocks(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Marks the paragraphs of a docstring that are code as code blocks of reStructuredText.

    In all other lines, asterisks are characters, not emphasis.
    """
    from tools.docstrings import is_code

    marked: list[str] = []
    was_code = False
    for paragraph in "\n".join(lines).strip("\n").split("\n\n"):
        is_block = paragraph.startswith("    ") or is_code(paragraph)
        if is_block and not was_code:
            marked += ["::", ""]
        text = textwrap.indent(paragraph, "    ") if is_block else paragraph.replace("*", "\\*")
        marked += [*text.split("\n"), ""]
        was_code = is_block
    lines[:] = marked


def write_reference_pages(_app: Sphinx) -> None:
    from tools.generate_reference import write_pages

    write_pages(DOCS / "reference" / "_generated")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference_pages)
    app.connect("autodoc-process-docstring", mark_code_blocks)
