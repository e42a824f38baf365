"""The Clock seam for tests without a simulated loop."""


class FakeClock:
    """Time advances only when a test changes `now_ms`."""

    def __init__(self, now_ms: int = 1_000, *, wall_offset_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._wall_offset_ms = wall_offset_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms + self._wall_offset_ms


class OnlyClock:
    """What the router uses of `SharedServices`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.config = FakeConfig()


class FakeConfig:
    def __init__(self) -> None:
        self.lograft_slow_request_ms = -1
