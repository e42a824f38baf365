"""A flood of warnings becomes a few lines and a count."""

import logging

import pytest

from lograft.net.repeated_warnings import RepeatedWarnings
from tests.support.clocks import FakeClock


def test_first_warnings_are_logged_and_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    warnings = RepeatedWarnings(logging.getLogger("lograft.flood"), clock, lines_max=2)
    for number in range(50):
        warnings.warn("peer %d misbehaves", number)
    clock.now_ms += 10_000
    for number in (50, 51):
        warnings.warn("peer %d misbehaves", number)
    assert caplog.messages == [
        "peer 0 misbehaves",
        "peer 1 misbehaves",
        "peer 50 misbehaves (48 similar warnings were suppressed)",
        "peer 51 misbehaves",
    ]
