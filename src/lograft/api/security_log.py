"""The security log: logins and other events that an auditor looks for, one structured line each.

    event=login outcome=failure reason="wrong password" user=alice mechanism=PLAIN client=10.0.0.1

Lines are limited per source, since any host can cause events as often as it likes. Values come from
outside and are escaped.
"""

import logging
import re
from collections import OrderedDict
from typing import Final

from lograft.model.printable_text import printable
from lograft.model.seams import Address, Clock

LOGGER: Final = logging.getLogger("lograft.security")
#: Lines of one source in a period.
LINES_MAX: Final = 10
PERIOD_MS: Final = 10_000
#: Sources whose lines are counted; the least recently active ones are forgotten.
SOURCES_MAX: Final = 1_000
VALUE_LENGTH_MAX: Final = 200
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_.:/@+\[\]-]+")


class _Source:
    __slots__ = ("began_ms", "lines", "suppressed")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.lines = 0
        self.suppressed = 0


class SecurityLog:
    """The security log of one node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def write(self, event: str, client: Address, *, failed: bool = False, **values: str) -> None:
        """Writes the event unless the client's host has caused too many. Empty values are
        omitted."""
        source = self._source(client.host)
        if source.lines >= LINES_MAX:
            source.suppressed += 1
            return
        source.lines += 1
        shown = {
            "event": event,
            "outcome": "failure" if failed else "success",
            **values,
            # The port of a client whose request was forwarded is unknown.
            "client": str(client) if client.port else client.host,
        }
        if source.suppressed:
            shown["suppressed"] = str(source.suppressed)
            source.suppressed = 0
        line = " ".join(f"{name}={_quote(value)}" for name, value in shown.items() if value)
        LOGGER.log(logging.WARNING if failed else logging.INFO, "%s", line)

    def _source(self, host: str) -> _Source:
        now_ms = self._clock.mono_ms()
        source = self._sources.get(host)
        if source is None:
            source = self._sources[host] = _Source(now_ms)
            if len(self._sources) > SOURCES_MAX:
                self._sources.popitem(last=False)
        elif now_ms - source.began_ms >= PERIOD_MS:
            source.began_ms, source.lines = now_ms, 0
        self._sources.move_to_end(host)
        return source


def _quote(value: str) -> str:
    if _PLAIN_VALUE.fullmatch(value) and len(value) <= VALUE_LENGTH_MAX:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
