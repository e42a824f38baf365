"""The workloads of the clients, and the figures that they return."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

LINGER_MS: Final = 5
BATCH_BYTES: Final = 64 << 10
PARTITIONS: Final = 3
#: Messages differ, but building them must cost almost nothing.
VALUES: Final = 1_000
#: Number of messages between two reads of the clock.
STRIDE: Final = 5_000
WARM_UP: Final = 2_000
WAIT_SECONDS: Final = 60
#: fetch.max.wait.ms of consumers that read a topic repeatedly: a long poll at the end of the log
#: would delay the request that follows the seek.
ROUND_WAIT_MS: Final = 5
#: The number of messages that consumers read repeatedly; the broker has them in its page cache.
STORED_BYTES: Final = 64 << 20


class Order(NamedTuple):
    servers: str
    topic: str
    #: Size of a message in bytes.
    size: int
    seconds: float

    @property
    def stored_count(self) -> int:
        """The number of messages in the topic of a consumer."""
        return STORED_BYTES // self.size

    def values(self) -> list[bytes]:
        draw = random.Random(7)
        return [draw.randbytes(self.size) for _ in range(VALUES)]


@dataclass
class Meter:
    """Messages, wall time and CPU time between start and stop."""

    seconds_max: float
    count: int = 0

    def start(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def goes_on(self) -> bool:
        return time.perf_counter() - self._wall < self.seconds_max

    def stop(self) -> dict[str, float]:
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        return {
            "messages_per_s": self.count / wall,
            "cpu_us_per_message": cpu / self.count * 1e6,
            "messages_per_cpu_s": self.count / cpu,
        }


class Rounds:
    """Measures how fast a whole topic is read. At its end, the consumer seeks to the beginning
    without waiting for new records."""

    def __init__(self, order: Order) -> None:
        self._stored = self.left = order.stored_count

    def is_over(self, count: int) -> bool:
        """Returns whether these messages are the last ones of the measurement."""
        assert 0 < count <= self.left, (count, self.left)
        self.left -= count
        if self.left:
            return False
        self.left = self._stored
        return True


def percentiles(latencies: list[float], cpu_seconds: float) -> dict[str, float]:
    ordered = sorted(latencies)
    return {
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1000,
        "cpu_us_per_message": cpu_seconds / len(ordered) * 1e6,
    }


Figures = dict[str, float]
Work = Callable[[Order], Figures]


class Client(NamedTuple):
    produce: Work | None = None
    consume: Work | None = None
    #: Sends one message at a time and waits until it has been consumed.
    echo: Work | None = None


def work_of(client: Client, workload: str) -> Work | None:
    found: Any = getattr(client, workload.partition("-")[0])
    work: Work | None = found
    return work
