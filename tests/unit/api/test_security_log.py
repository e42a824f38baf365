import logging

import pytest

from lograft.api.security_log import LINES_MAX, PERIOD_MS, SOURCES_MAX, SecurityLog
from lograft.model.seams import Address
from tests.support.clocks import FakeClock

CLIENT = Address("10.0.0.1", 4711)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.set_level(logging.INFO, "lograft.security")
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_events_are_lines_of_names_and_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = SecurityLog(FakeClock())
    log.write("login", CLIENT, principal="User:alice", mechanism="PLAIN", reason="")
    log.write("login", Address("::1", 9), failed=True, user="a b")
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("lograft.security", "INFO"),
        ("lograft.security", "WARNING"),
    ]
    assert lines(caplog) == [
        "event=login outcome=success principal=User:alice mechanism=PLAIN client=10.0.0.1:4711",
        'event=login outcome=failure user="a b" client=[::1]:9',
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nevent=login outcome=success", r'"a\nevent=login outcome=success"'),
        ('a" outcome="success', r'"a\" outcome=\"success"'),
        ("a\\", r'"a\\"'),
        ("x" * 300, '"' + "x" * 200 + '…"'),
        ("é", '"é"'),
    ],
)
def test_values_cannot_forge_a_line(
    caplog: pytest.LogCaptureFixture, value: str, shown: str
) -> None:
    caplog.set_level(logging.INFO)
    SecurityLog(FakeClock()).write("login", CLIENT, user=value)
    assert lines(caplog) == [f"event=login outcome=success user={shown} client=10.0.0.1:4711"]


def test_lines_are_limited_per_source(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    log = SecurityLog(clock)
    for port in range(LINES_MAX + 5):
        log.write("login", Address("10.0.0.1", port), failed=True)
    assert len(lines(caplog)) == LINES_MAX
    log.write("login", Address("10.0.0.2", 1))
    assert len(lines(caplog)) == 1
    clock.now_ms += PERIOD_MS
    log.write("login", CLIENT)
    log.write("login", CLIENT)
    assert ["suppressed=5" in line for line in lines(caplog)] == [True, False]


def test_the_sources_are_limited() -> None:
    log = SecurityLog(FakeClock())
    for number in range(SOURCES_MAX + 10):
        log.write("login", Address(f"10.0.{number // 256}.{number % 256}", 1))
    assert len(log._sources) == SOURCES_MAX
