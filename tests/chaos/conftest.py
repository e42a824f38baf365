"""Fixtures of the chaos tests: a seed that is printed, and nodes that are killed after their
test."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compatibility.servers import Server

#: Nodes whose logs are shown if a test fails while they run.
running: list[Server] = []


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> int:
    """LOGRAFT_CHAOS_SEED=n repeats the faults and the clients' random choices of a run."""
    chosen = int(os.environ.get("LOGRAFT_CHAOS_SEED", random.SystemRandom().randrange(1_000_000)))
    with capsys.disabled():
        print(f"\nLOGRAFT_CHAOS_SEED={chosen}", flush=True)  # noqa: T201
    return chosen


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line even if the test passes."""

    def print_line(line: str) -> None:
        with capsys.disabled():
            print(f"  {line}", flush=True)  # noqa: T201

    return print_line


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Creates nodes in separate folders; those that are still running afterwards are killed."""
    nodes: list[Server] = []

    def make(*, folder: Path | None = None, settings: dict[str, str] | None = None) -> Server:
        node = Server.of("lograft", folder or tmp_path / f"node-{len(nodes)}", settings=settings)
        node.shows_traces = False  # tests check the error output that users see
        nodes.append(node)
        running.append(node)
        return node

    yield make
    for node in nodes:
        node.kill()
        running.remove(node)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        for node in running:
            report.sections.append(("the node", node.log_tail()))
