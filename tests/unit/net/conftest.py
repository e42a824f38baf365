"""Fixtures for both event loops."""

import asyncio

import pytest

from lograft.runtime.event_loop import fastest_loop_factory
from tests.unit.net.event_loops import LoopFactory, run_on_loop
from tests.unit.net.receivers import RunOnLoop


@pytest.fixture(params=["asyncio", "fastest"])
def loop_factory(request: pytest.FixtureRequest) -> LoopFactory:
    """asyncio's own loop, then the loop that is used in production."""
    return asyncio.new_event_loop if request.param == "asyncio" else fastest_loop_factory()


@pytest.fixture
def on_loop(loop_factory: LoopFactory) -> RunOnLoop:
    """For tests that continue after the loop has been closed."""
    return lambda body: run_on_loop(body, loop_factory)
