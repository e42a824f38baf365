"""Small promises that a test keeps better than a page."""

import re

from tests.support.repository import ROOT, tracked_files

API = ROOT / "src" / "lograft" / "api"
NOT_APIS = {"__init__", "router", "context", "errors", "types"}


def test_every_api_file_declares_its_api_and_has_a_test() -> None:
    for file in API.glob("*.py"):
        if file.stem in NOT_APIS or "API: Final = Api(" not in file.read_text():
            continue
        test = ROOT / "tests" / "unit" / "api" / f"test_{file.stem}.py"
        assert test.exists(), f"{file.name} has no test"


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
    """A tracked link to a shared .venv would replace the real folder of whoever checks it out."""
    assert [file.relative_to(ROOT) for file in tracked_files() if file.is_symlink()] == []
