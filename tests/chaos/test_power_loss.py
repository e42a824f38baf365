"""The power fails while clients write: what was acknowledged after an fsync is there, all else is
a prefix of what it was, and nothing damaged is ever served.

The node's log dir is an ext4 in a loop device; at each loss only what the kernel had written to the
device stays. The faults of the disk itself (torn sectors, lying fsyncs) are the simulator's.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import TopicPartition
from tests.chaos import topics
from tests.chaos.mounts import LoopDisk
from tests.chaos.nemesis import Nemesis
from tests.chaos.producers import LibrdkafkaProducer, RetryingProducer
from tests.chaos.raw_client import ErrorResponse, RawClient
from tests.chaos.readers import RawReader
from tests.chaos.recording import Run
from tests.chaos.topics import FLUSHED
from tests.chaos.verdict import judge, read_everything, taken_by_power
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]
#: This test's share of LOGRAFT_CHAOS_SECONDS.
SHARE: Final = 0.15
LIFE_SECONDS_MAX: Final = 3.0
LOSSES_MIN: Final = 4
JOIN_SECONDS_MAX: Final = 100.0
UNFENCED_SECONDS_MAX: Final = 10.0
#: ext4 keeps different promises to those who do not fsync.
MOUNT_OPTIONS: Final = (
    "commit=1",
    "commit=1,nodelalloc",
    "commit=1,data=writeback,nodelalloc",
    "commit=300,data=writeback",
)


def short_lived(run: Run, life: int) -> list[threading.Thread]:
    """Clients whose node may forget what it told them: they do not outlive it."""
    partitions = [tp for topic in topics.ALL for tp in topic.of_partitions()]
    first = 10 * life
    return [
        LibrdkafkaProducer(run, first + 10, topics.ALL, gives_up=True),
        LibrdkafkaProducer(run, first + 11, topics.ALL, gives_up=True, pause_seconds=0.01),
        RawReader(run, f"c{life}", partitions),
    ]


def finish(run: Run, threads: list[threading.Thread]) -> None:
    run.stop.set()
    for thread in threads:
        thread.join(JOIN_SECONDS_MAX)
    assert not any(thread.is_alive() for thread in threads)


def create_when_unfenced(port: int, topic: str) -> None:
    """A node that has just come up refuses new topics until its controller has unfenced it."""
    with RawClient(port, name="operator") as client:
        deadline = time.monotonic() + UNFENCED_SECONDS_MAX
        while True:
            try:
                client.create_topic(topic)
                return
            except ErrorResponse as error:
                is_fenced = error.code == ErrorCode.INVALID_REPLICATION_FACTOR
                if not is_fenced or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)


def test_what_was_fsynced_survives_power_loss(
    new_node: Callable[..., Server], seed: int, say: Callable[[str], None], tmp_path: Path
) -> None:
    chance = random.Random(f"{seed}-power")
    seconds = float(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) * SHARE
    server = new_node(settings=topics.BUSY_NODE)
    disk = LoopDisk(tmp_path / "disk", server.data)
    disk.mount(chance.choice(MOUNT_OPTIONS))
    try:
        survive(server, disk, Run(server.port, seed), chance, seconds, say=say, folder=tmp_path)
    finally:
        server.kill()
        disk.unmount()


def survive(
    server: Server,
    disk: LoopDisk,
    run: Run,
    chance: random.Random,
    seconds: float,
    *,
    say: Callable[[str], None],
    folder: Path,
) -> None:
    partitions = [tp for topic in topics.ALL for tp in topic.of_partitions()]
    nemesis = Nemesis(run, server, partitions)
    server.start()
    topics.create(server.port, topics.ALL)
    lasting: list[threading.Thread] = [
        LibrdkafkaProducer(run, 0, [FLUSHED], pause_seconds=0.01),
        RetryingProducer(run, 1, FLUSHED, TopicPartition("flushed", 0)),
    ]
    for thread in lasting:
        thread.start()
    losses, created = 0, []
    deadline = time.monotonic() + seconds
    while losses < LOSSES_MIN or time.monotonic() < deadline:
        life = replace(run, stop=threading.Event())
        threads = short_lived(life, losses)
        for thread in threads:
            thread.start()
        create_when_unfenced(server.port, f"life-{losses}")
        created.append(f"life-{losses}")
        time.sleep(chance.uniform(0.3, LIFE_SECONDS_MAX))
        disk.dribble(chance, sorted(server.data.rglob("*.*")))
        server.kill()
        options = chance.choice(MOUNT_OPTIONS)
        disk.lose_power(options)
        run.history.record("nemesis", "probe", "crash", kind="power")
        losses += 1
        finish(life, threads)
        nemesis.up()
        with RawClient(server.port, name="operator") as client:
            assert set(created) <= set(client.topics())
    finish(run, lasting)
    read_everything(run, topics.ALL)
    taken = taken_by_power(run.history)
    say(f"{losses} power losses took {taken} records that were not on the disk")
    say(f"{len(nemesis.start_seconds)} starts, the longest {max(nemesis.start_seconds):.2f} s")
    judge(run, topics.ALL, folder=folder, say=say)
    assert taken > 0
    assert b"Traceback" not in server.log_path.read_bytes()
