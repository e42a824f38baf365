"""Fixtures of the chaos tests: a seed that is printed, and nodes that end with their test."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

#: Shown below the traceback of a test that failed while they ran.
running: list[Server] = []


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> int:
    """LOGRAFT_CHAOS_SEED=n draws the same faults and the same choices of the clients again."""
    chosen = int(os.environ.get("LOGRAFT_CHAOS_SEED", random.SystemRandom().randrange(1_000_000)))
    with capsys.disabled():
        print(f"\nLOGRAFT_CHAOS_SEED={chosen}", flush=True)  # noqa: T201
    return chosen


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line even when the test passes: the figures are what a run is for."""

    def print_line(line: str) -> None:
        with capsys.disabled():
            print(f"  {line}", flush=True)  # noqa: T201

    return print_line


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Makes nodes in folders of their own; what still runs afterwards is killed."""
    made: list[Server] = []

    def make(*, folder: Path | None = None, settings: dict[str, str] | None = None) -> Server:
        one = Server.of("lograft", folder or tmp_path / f"node-{len(made)}", settings=settings)
        one.shows_traces = False  # how it ends for users is part of what is tested
        made.append(one)
        running.append(one)
        return one

    yield make
    for one in made:
        one.kill()
        running.remove(one)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for one in running:
            report.sections.append(("the node", one.log_tail()))
