"""The log of a node on standard error, as text or as JSON.

What clients send (client ids, group ids, topic names) and what the operating system reports end up
in messages and exceptions. Both formats escape control characters, so that no text can forge a
record of its own, and limit the length of a record.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from lograft.model.printable_text import printable
from lograft.model.settings.broker import BrokerConfig

JSON: Final = "json"
#: Maximum length of a message, and of each line of a traceback.
CHARACTERS_MAX: Final = 16_384
TRACEBACK_LINES_MAX: Final = 200
#: The key of `extra` whose value, a dict, becomes further fields of a JSON record:
#: LOGGER.warning("…", extra={FIELDS: {"api": "Produce"}}).
FIELDS: Final = "fields"
#: Lines of a traceback are indented: only the first line of a record starts with a time.
_INDENT: Final = "    "


def configure_logging(config: BrokerConfig) -> logging.Formatter:
    """Makes the root logger write to standard error in the configured format, which it returns."""
    formatter: logging.Formatter = TextFormatter()
    if config.lograft_log_format == JSON:
        formatter = JsonFormatter(config.node_id)
        # Otherwise Python would write its warnings to standard error in its own format.
        logging.captureWarnings(True)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return formatter


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(_message_of(record), characters_max=CHARACTERS_MAX)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        record.message = ""
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record), *_exception_lines(record)]
        return f"\n{_INDENT}".join(lines)


class JsonFormatter(logging.Formatter):
    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(_message_of(record)),
            "node_id": self._node_id,
        }
        exception = _exception_lines(record)
        if exception:
            fields["exception"] = "\n".join(exception)
        fields |= getattr(record, FIELDS, {})
        # ASCII: no line separator of Unicode and no half of a surrogate pair reaches the output.
        return json.dumps(fields, default=str)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # Arguments that do not fit the message: a bug, which must not lose the record.
        return f"{record.msg} {record.args}"


def _exception_lines(record: logging.LogRecord) -> list[str]:
    text = ""
    if record.exc_info and record.exc_info[0] is not None:
        text = logging.Formatter().formatException(record.exc_info)
    elif record.exc_text:
        text = record.exc_text
    if record.stack_info:
        text = f"{text}\n{record.stack_info}".lstrip("\n")
    if not text:
        return []
    lines = text.split("\n")
    if len(lines) > TRACEBACK_LINES_MAX:
        # The end has the exception itself.
        half = TRACEBACK_LINES_MAX // 2
        lines = [*lines[:half], "…", *lines[-half:]]
    return [printable(line, characters_max=CHARACTERS_MAX) for line in lines]


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS_MAX else text[:CHARACTERS_MAX] + "…"
