"""Adapts the README's links for package indexes, which do not resolve relative links.

With a `Source` in `[project.urls]` of pyproject.toml, relative links and pictures become absolute
and refer to the files of the release. Without one they become plain text.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<path>(?!https?://|#)[^)\s]+)\)")


def adapt_links(markdown: str, *, source: str | None, release: str) -> str:
    """Returns the text with absolute links to the files of a release, as hosted by GitHub."""

    def replace(link: re.Match[str]) -> str:
        picture, text, path = link["picture"], link["text"], link["path"]
        if source is None:
            return "" if picture else text
        return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/{release}/{path})"

    return LINK.sub(replace, markdown)


def read_description() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = (ROOT / "src" / "lograft" / "__init__.py").read_text()
    version = re.search(r'^__version__(?:: \w+)? = "(.+)"$', package, re.MULTILINE)
    assert version is not None
    return adapt_links(
        (ROOT / "README.md").read_text(),
        source=project.get("urls", {}).get("Source"),
        release=f"v{version[1]}",
    )


if __name__ == "__main__":
    from setuptools import setup

    setup(long_description=read_description(), long_description_content_type="text/markdown")
