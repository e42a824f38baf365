"""Prevents warnings about connections from flooding the log: any host can connect as often as it
likes and cause a warning each time."""

import logging
from typing import Final

from lograft.model.seams import Clock

_PERIOD_MS: Final = 10_000


class RepeatedWarnings:
    """Logs the first few warnings in ten seconds, and the number of suppressed ones with the
    next."""

    __slots__ = ("_began_ms", "_clock", "_lines", "_lines_max", "_logger", "_suppressed")

    def __init__(self, logger: logging.Logger, clock: Clock, *, lines_max: int = 5) -> None:
        self._logger = logger
        self._clock = clock
        self._lines_max = lines_max
        self._began_ms: int | None = None
        self._lines = 0
        self._suppressed = 0

    def warn(self, message: str, *values: object) -> None:
        now_ms = self._clock.mono_ms()
        if self._began_ms is None or now_ms - self._began_ms >= _PERIOD_MS:
            self._began_ms = now_ms
            self._lines = 0
        if self._lines >= self._lines_max:
            self._suppressed += 1
            return
        self._lines += 1
        if self._suppressed:
            message += " (%d similar warnings were suppressed)"
            values = (*values, self._suppressed)
            self._suppressed = 0
        self._logger.warning(message, *values)
