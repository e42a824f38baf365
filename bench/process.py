"""What the kernel says about a broker's process."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads since the start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


@dataclass(slots=True)
class CpuMeter:
    """CPU seconds between construction and read()."""

    pid: int
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = cpu_seconds(self.pid)

    def read(self) -> float:
        return cpu_seconds(self.pid) - self.started
