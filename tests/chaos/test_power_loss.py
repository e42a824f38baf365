"""Cuts the power while clients produce: records acknowledged after an fsync exist, the others are a
prefix of those written, and damaged data is never served.

The node's log dir is an ext4 file system in a loop device; each power loss keeps only what the
kernel had written to the device. Faults of the disk itself (torn sectors, false fsyncs) are
simulated only."""

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
from tests.chaos.verdict import check_run, count_lost_records, read_topics
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]
#: This test's share of LOGRAFT_CHAOS_SECONDS.
SHARE: Final = 0.15
LIFE_SECONDS_MAX: Final = 3.0
LOSSES_MIN: Final = 4
JOIN_SECONDS_MAX: Final = 100.0
UNFENCED_SECONDS_MAX: Final = 10.0
#: Options with different guarantees for data that was not fsynced.
MOUNT_OPTIONS: Final = (
    "commit=1",
    "commit=1,nodelalloc",
    "commit=1,data=writeback,nodelalloc",
    "commit=300,data=writeback",
)


def short_lived(run: Run, life: int) -> list[threading.Thread]:
    """Returns clients that stop at each power loss, because the node may lose acknowledged
    records."""
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
    """Creates a topic with retries, because a node rejects new topics until it is unfenced."""
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


def test_fsynced_records_survive_a_power_loss(
    new_node: Callable[..., Server], seed: int, say: Callable[[str], None], tmp_path: Path
) -> None:
    chance = random.Random(f"{seed}-power")
    seconds = float(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) * SHARE
    server = new_node(settings=topics.BUSY_NODE)
    disk = LoopDisk(tmp_path / "disk", server.data)
    disk.mount(chance.choice(MOUNT_OPTIONS))
    try:
        run_with_power_losses(
            server, disk, Run(server.port, seed), chance, seconds, say=say, folder=tmp_path
        )
    finally:
        server.kill()
        disk.unmount()


def run_with_power_losses(
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
        disk.write_back_some(chance, sorted(server.data.rglob("*.*")))
        server.kill()
        options = chance.choice(MOUNT_OPTIONS)
        disk.lose_power(options)
        run.history.record("nemesis", "probe", "crash", kind="power")
        losses += 1
        finish(life, threads)
        nemesis.start()
        with RawClient(server.port, name="operator") as client:
            assert set(created) <= set(client.topics())
    finish(run, lasting)
    read_topics(run, topics.ALL)
    lost = count_lost_records(run.history)
    say(f"{losses} power losses destroyed {lost} records that were not on the disk")
    say(f"{len(nemesis.start_seconds)} starts, the longest {max(nemesis.start_seconds):.2f} s")
    check_run(run, topics.ALL, folder=folder, say=say)
    assert lost > 0
    assert b"Traceback" not in server.log_path.read_bytes()
