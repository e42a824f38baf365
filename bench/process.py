"""Resource usage of a broker's process, as reported by the kernel."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads since the process started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def kernel_seconds(pid: int) -> float:
    """The system time among them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[12]) / TICKS_PER_SECOND


def rss_mb(pids: Sequence[int]) -> float:
    return sum(map(_rss_mb, pids))


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


@dataclass(slots=True)
class CpuMeter:
    """CPU seconds that processes used between construction and read()."""

    pids: Sequence[int]
    started: float = 0.0
    started_kernel: float = 0.0

    def __post_init__(self) -> None:
        self.started = self._total()
        self.started_kernel = self._kernel()

    def read(self) -> float:
        return self._total() - self.started

    def read_kernel(self) -> float:
        return self._kernel() - self.started_kernel

    def _total(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def _kernel(self) -> float:
        return sum(map(kernel_seconds, self.pids))
