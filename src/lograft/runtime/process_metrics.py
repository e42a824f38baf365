"""Figures of the process that runs a node, under the names that Prometheus' own client libraries
use, and the delay of its event loop.

In the simulator nodes have no process of their own, so this belongs to the process, not the node.
"""

import asyncio
import os
import resource
from collections.abc import Iterator
from typing import Final

from lograft.model.metrics import LATENCY_BUCKETS, Counter, Gauge, Histogram, Sample
from lograft.model.seams import Clock

#: Time between two measurements of the event loop's delay.
PAUSE_S: Final = 0.25

CPU: Final = Counter("process_cpu_seconds_total", "CPU time of the process, user and system.")
RESIDENT: Final = Gauge("process_resident_memory_bytes", "Resident memory of the process.")
VIRTUAL: Final = Gauge("process_virtual_memory_bytes", "Virtual memory of the process.")
OPEN_FILES: Final = Gauge("process_open_fds", "Open file descriptors of the process.")
OPEN_FILES_MAX: Final = Gauge("process_max_fds", "Maximum number of open file descriptors.")
START_TIME: Final = Gauge(
    "process_start_time_seconds", "Time at which the process started, in seconds since 1970."
)
LOOP_DELAY: Final = Histogram(
    "lograft_event_loop_delay_seconds",
    "How late the event loop runs a timer, measured four times per second.",
    bounds=LATENCY_BUCKETS,
)


class ProcessMetrics:
    def __init__(self, clock: Clock) -> None:
        self._started_ms = clock.wall_ms()
        self._delays = LOOP_DELAY.make_recorder()

    async def measure_loop_delay(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PAUSE_S
            await asyncio.sleep(PAUSE_S)
            self._delays.observe(max(0.0, loop.time() - due))

    def collect_samples(self) -> Iterator[Sample]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield CPU.sample(usage.ru_utime + usage.ru_stime)
        yield OPEN_FILES_MAX.sample(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield START_TIME.sample(self._started_ms / 1000)
        yield LOOP_DELAY.sample(self._delays)
        try:
            with open("/proc/self/statm", "rb") as file:
                virtual_pages, resident_pages = file.read().split()[:2]
            open_files = len(os.listdir("/proc/self/fd"))
        except OSError:
            return  # not Linux
        page_bytes = resource.getpagesize()
        yield VIRTUAL.sample(int(virtual_pages) * page_bytes)
        yield RESIDENT.sample(int(resident_pages) * page_bytes)
        # Without the descriptor of the listing itself.
        yield OPEN_FILES.sample(open_files - 1)
