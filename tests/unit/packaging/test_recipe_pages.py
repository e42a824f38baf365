"""The pages of docs/recipes are complete. `make interop` runs their programs."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

FOLDER: Final = ROOT / "docs" / "recipes"
PAGES: Final = [page for page in sorted(FOLDER.glob("*.md")) if page.stem != "index"]


def test_the_index_names_every_page() -> None:
    [names] = re.findall(r"```\{toctree\}.*?\n\n(.*?)```", (FOLDER / "index.md").read_text(), re.S)
    assert sorted(names.split()) == [page.stem for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_title_and_a_program(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("# Lograft with ")
    programs = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    assert any("localhost:9092" in program for _, program in programs)
    for language, program in programs:
        if language == "python":
            compile(program, str(page), "exec")


def test_every_page_is_run() -> None:
    source = (ROOT / "tests" / "compatibility" / "test_recipes.py").read_text()
    assert [page.stem for page in PAGES if f'"{page.stem}"' not in source] == []
