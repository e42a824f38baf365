"""The Clock seam over the machine's clocks."""

import time

NANOSECONDS_PER_MS = 1_000_000


class SystemClock:
    __slots__ = ()

    def mono_ms(self) -> int:
        return time.monotonic_ns() // NANOSECONDS_PER_MS

    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        return time.time_ns() // NANOSECONDS_PER_MS
