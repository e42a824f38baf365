"""Fixtures of the simulated runs."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Disables logging, because nodes log a lot during faults."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
