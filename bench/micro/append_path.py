"""Measures the CPU time of one append and one read, in `Log` and in `Partition`.

    python -m bench.micro.append_path [--against SRC] [--pairs 12]

Each run is a separate process. It appends small batches to a log in memory (/dev/shm if it exists)
and reports the fastest of many rounds, since on a shared machine the minimum is the CPU time of the
code itself. With `--against` (the `src` folder of another checkout) the two source trees run in
turn: the output is the fastest run of each, and the median of the differences of the pairs. `calls`
is the number of Python functions that one call executes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.partition import Partition
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import BrokerEpoch, Epoch, NodeId, Offset, TopicPartition
from lograft.replication.replica import IsrReplica
from lograft.replication.roles import PartitionReplica
from lograft.replication.types import (
    NO_EFFECTS,
    Assignment,
    Effects,
    IsrProposal,
    ReplicationSettings,
)
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.workers import ThreadWorkers
from lograft.storage.log import NO_BOUND, Log
from lograft.storage.types import RecoveryPlan
from lograft.wire.batches import Record, build_batch

ROUNDS: Final = 60
APPENDS: Final = 1_000
NOW_MS: Final = 1_700_000_000_000
ME: Final = NodeId(1)

Append = Callable[[memoryview], object]


class Alone:
    """`PartitionHost` and `Brokers` of the only broker of a cluster."""

    is_registered = True

    def now_ms(self) -> int:
        return 0

    def registered_epoch(self, node_id: NodeId) -> BrokerEpoch | None:
        return BrokerEpoch(1)

    def can_join_isr(self, node_id: NodeId) -> bool:
        return True

    def build_replica(
        self, partition: Partition, log: Log, high_watermark: Offset
    ) -> PartitionReplica:
        return IsrReplica(
            partition.me,
            broker_epoch=BrokerEpoch(1),
            log=log,
            high_watermark=high_watermark,
            brokers=self,
            settings=ReplicationSettings(),
        )

    def build_mode_replica(
        self, partition: Partition, replica: PartitionReplica
    ) -> PartitionReplica:
        return replica

    def configure(self, partition: Partition, replica: PartitionReplica) -> Effects:
        return NO_EFFECTS

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        pass

    def role_changed(self, partition: Partition) -> None:
        pass


def make_log(directory: str, name: str) -> Log:
    return Log.open(
        RealDisk(),
        f"{directory}/{name}-0",
        topic_partition=TopicPartition(name, 0),
        topic_id=UUID(int=7),
        config=TopicConfig(),
        now_ms=NOW_MS,
        recovery=RecoveryPlan(clean=False),
    )


def make_partition(directory: str, workers: ThreadWorkers) -> Partition:
    partition = Partition("led", 0, topic_id=UUID(int=7), me=ME, config=TopicConfig(), host=Alone())
    place = LogDirectory(
        directory, UUID(int=9), workers=workers, clock=SystemClock(), on_failed=lambda *_: None
    )
    partition.on_opened(make_log(directory, "led"), place)
    partition.on_assignment(Assignment((ME,), (ME,), ME, Epoch(0), 0))
    return partition


def make_batches(first: int, *, producer_id: int) -> list[memoryview]:
    records = [Record(0, NOW_MS, None, bytes(100))]
    return [
        memoryview(
            bytearray(
                build_batch(
                    records,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=first + number if producer_id >= 0 else -1,
                )
            )
        )
        for number in range(APPENDS)
    ]


def measure_us(append: Append, *, producer_id: int) -> float:
    best = float("inf")
    for number in range(ROUNDS):
        batches = make_batches(number * APPENDS, producer_id=producer_id)
        begin = time.process_time_ns()
        for batch in batches:
            append(batch)
        best = min(best, time.process_time_ns() - begin)
    return best / APPENDS / 1_000


def count_calls(append: Append) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    batch = make_batches(0, producer_id=-1)[0]
    sys.setprofile(count)
    append(batch)
    sys.setprofile(None)
    return calls - 1


def run() -> dict[str, float]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    workers = ThreadWorkers()
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        log = make_log(directory, "plain")
        partition = make_partition(directory, workers)

        def append_to_log(batch: memoryview) -> object:
            return log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)

        def append_to_partition(batch: memoryview) -> object:
            return partition.append(batch, now_ms=NOW_MS)

        def read_from_partition(_: memoryview) -> object:
            return partition.read(Offset(5), bytes_max=1 << 20, bound=NO_BOUND, at_least_one=True)

        return {
            "Log, us": measure_us(append_to_log, producer_id=-1),
            "Log with producer id, us": measure_us(append_to_log, producer_id=5),
            "Partition, us": measure_us(append_to_partition, producer_id=-1),
            "Partition read, us": measure_us(read_from_partition, producer_id=-1),
            "Log, calls": count_calls(append_to_log),
            "Partition, calls": count_calls(append_to_partition),
            "Partition read, calls": count_calls(read_from_partition),
        }


def run_in(source: str) -> dict[str, float]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "bench.micro.append_path", "--once"]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, cwd=root)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="SRC", help="src folder of another checkout")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(run()))
        return
    here = str(Path(__file__).parents[2] / "src")
    there = str(Path(options.against or here).resolve())
    pairs = [(run_in(there), run_in(here)) for _ in range(options.pairs)]
    print(f"{'fastest of ' + str(len(pairs)) + ' runs':28}{'against':>10}{'here':>10}{'pairs':>10}")
    for name in pairs[0][0]:
        before = min(pair[0][name] for pair in pairs)
        after = min(pair[1][name] for pair in pairs)
        difference = statistics.median(pair[1][name] - pair[0][name] for pair in pairs)
        print(f"{name:28}{before:10.3f}{after:10.3f}{difference:+10.3f}")


if __name__ == "__main__":
    main()
