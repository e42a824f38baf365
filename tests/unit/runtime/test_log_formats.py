"""Formats of the log: no text from outside can forge a record, and JSON is always valid."""

import json
import logging
import sys
from typing import Any

import pytest

from lograft.runtime.log_formats import (
    CHARACTERS_MAX,
    FIELDS,
    TRACEBACK_LINES_MAX,
    JsonFormatter,
    TextFormatter,
)

FORGED = "2026-01-01 00:00:00,000 INFO lograft: all is well"
HOSTILE = f"x\r\n{FORGED}\x1b[2J\u2028\u0085\ud800\x00end"


def record_of(message: str, *arguments: object, **fields: Any) -> logging.LogRecord:
    logger = logging.getLogger("lograft.test")
    extra = {FIELDS: fields} if fields else None
    return logger.makeRecord(
        "lograft.test", logging.WARNING, "", 0, message, arguments, None, extra=extra
    )


def failed_record(error: Exception) -> logging.LogRecord:
    try:
        raise error
    except Exception:
        logger = logging.getLogger("lograft.test")
        return logger.makeRecord(
            "lograft.test", logging.ERROR, "", 0, "it failed", (), sys.exc_info()
        )


def test_a_text_record_is_one_line() -> None:
    line = TextFormatter().format(record_of("client %s", HOSTILE))
    assert line.isprintable()
    assert " WARNING lograft.test: client x\\r\\n2026" in line
    assert "\\x1b[2J\\u2028\\x85\\ud800\\x00end" in line


def test_only_the_first_line_of_a_text_record_is_not_indented() -> None:
    first, *rest = TextFormatter().format(failed_record(ValueError(HOSTILE))).split("\n")
    assert first.endswith("ERROR lograft.test: it failed")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert any(line.startswith("    ValueError: x") for line in rest)
    assert f"    {FORGED}\\x1b" in "\n".join(rest)


def test_a_json_record() -> None:
    record = record_of("client %s", "c-1", api="Produce", total_ms=12.5)
    record.created = 1_790_000_000.25
    assert json.loads(JsonFormatter(7).format(record)) == {
        "time": "2026-09-21T14:13:20.250Z",
        "level": "WARNING",
        "logger": "lograft.test",
        "message": "client c-1",
        "node_id": 7,
        "api": "Produce",
        "total_ms": 12.5,
    }


def test_a_json_record_is_one_line_of_ascii() -> None:
    line = JsonFormatter(7).format(record_of("client %s", HOSTILE))
    assert line.isprintable()
    assert line.isascii()
    assert json.loads(line)["message"] == f"client {HOSTILE}"


def test_a_json_record_has_the_exception() -> None:
    record = json.loads(JsonFormatter(7).format(failed_record(ValueError("no"))))
    assert record["message"] == "it failed"
    assert record["exception"].startswith("Traceback (most recent call last):\n")
    assert record["exception"].endswith("\nValueError: no")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter(7)])
def test_the_size_of_a_record_is_limited(formatter: logging.Formatter) -> None:
    assert len(formatter.format(record_of("x" * 10**6))) < CHARACTERS_MAX + 500
    many_lines = formatter.format(failed_record(ValueError("y\n" * 10**5 + "last")))
    assert many_lines.count("y") < 3 * TRACEBACK_LINES_MAX
    assert "last" in many_lines


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter(7)])
def test_arguments_that_do_not_fit_lose_no_record(formatter: logging.Formatter) -> None:
    assert "%d partitions ('many',)" in formatter.format(record_of("%d partitions", "many"))
