"""Measures how long callers wait in a method."""

from collections.abc import Iterator
from contextlib import contextmanager

from lograft.model.seams import Clock


class Stopwatch:
    """The total time spent inside `with stopwatch.measure()`; several tasks may be inside."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.total_ns = 0

    @contextmanager
    def measure(self) -> Iterator[None]:
        started_ns = self._clock.mono_ns()
        try:
            yield
        finally:
            self.total_ns += self._clock.mono_ns() - started_ns
