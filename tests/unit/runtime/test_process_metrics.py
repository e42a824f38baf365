import asyncio
import time
from pathlib import Path

from lograft.model.metrics import Buckets, gather_all, value_of
from lograft.runtime.clock import SystemClock
from lograft.runtime.process_metrics import (
    CPU,
    LOOP_DELAY,
    OPEN_FILES,
    OPEN_FILES_MAX,
    RESIDENT,
    START_TIME,
    VIRTUAL,
    ProcessMetrics,
)
from tests.support.scenarios import scenario
from tests.support.waiting import wait_until_async


def test_figures_move_with_what_they_measure(tmp_path: Path) -> None:
    process = ProcessMetrics(SystemClock())
    assert abs(value_of(process, START_TIME) * 1000 - SystemClock().wall_ms()) < 60_000
    cpu_s, files = value_of(process, CPU), value_of(process, OPEN_FILES)
    resident, virtual = value_of(process, RESIDENT), value_of(process, VIRTUAL)
    while time.process_time() < cpu_s + 0.02:
        pass
    assert value_of(process, CPU) > cpu_s
    with (tmp_path / "file").open("w"):
        assert value_of(process, OPEN_FILES) == files + 1 < value_of(process, OPEN_FILES_MAX)
    memory = bytearray(b"x") * (64 << 20)
    assert value_of(process, VIRTUAL) >= virtual + len(memory) // 2
    assert value_of(process, RESIDENT) >= resident + len(memory) // 2


@scenario()
async def test_a_blocked_event_loop_is_measured() -> None:
    process = ProcessMetrics(SystemClock())

    def delays() -> Buckets:
        (value,) = gather_all(process.collect_samples()).by_metric[LOOP_DELAY].values()
        assert isinstance(value, Buckets)
        return value

    task = asyncio.get_running_loop().create_task(process.measure_loop_delay())
    await asyncio.sleep(0)
    time.sleep(0.75)  # noqa: ASYNC251 - blocking the loop is the point
    await wait_until_async(lambda: sum(delays().counts))
    assert delays().sum > 0.4
    task.cancel()
