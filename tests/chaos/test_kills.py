"""Kills, pauses and restarts a node while clients produce and consume: no acknowledged record is
lost, duplicated or out of order.

LOGRAFT_CHAOS_SECONDS sets the total duration of all chaos tests, LOGRAFT_CHAOS_SEED the faults.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from lograft.model.types import TopicPartition
from tests.chaos import topics
from tests.chaos.nemesis import Nemesis, plan
from tests.chaos.producers import DRAIN_SECONDS_MAX, LibrdkafkaProducer, RetryingProducer
from tests.chaos.readers import LibrdkafkaReader, RawReader
from tests.chaos.recording import Run
from tests.chaos.verdict import check_run, read_topics, read_topics_with_librdkafka
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]
#: This test's share of LOGRAFT_CHAOS_SECONDS; the final reads and checks take about a third.
SHARE: Final = 0.4
KILLS_MIN: Final = 5


def clients(run: Run) -> list[threading.Thread]:
    partitions = [tp for topic in topics.ALL for tp in topic.of_partitions()]
    return [
        LibrdkafkaProducer(run, 0, topics.ALL),
        LibrdkafkaProducer(run, 1, topics.ALL, settings={"compression.type": "lz4"}),
        LibrdkafkaProducer(
            run, 2, topics.ALL, settings={"compression.type": "zstd", "batch.num.messages": 7}
        ),
        LibrdkafkaProducer(run, 3, topics.ALL, idempotent=False, pause_seconds=0.1),
        RetryingProducer(run, 4, topics.PLAIN, TopicPartition("plain", 1)),
        RetryingProducer(run, 5, topics.FLUSHED, TopicPartition("flushed", 0)),
        RetryingProducer(run, 6, topics.EXPIRING, TopicPartition("expiring", 0)),
        LibrdkafkaReader(run, "c0", partitions),
        RawReader(run, "c1", partitions),
    ]


def test_node_loses_no_acknowledged_record(
    new_node: Callable[..., Server], seed: int, say: Callable[[str], None], tmp_path: Path
) -> None:
    seconds = float(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) * SHARE
    server = new_node(settings=topics.BUSY_NODE).start()
    topics.create(server.port, topics.ALL)
    partitions = [tp for topic in topics.ALL for tp in topic.of_partitions()]
    run = Run(server.port, seed)
    nemesis = Nemesis(run, server, partitions)
    threads = clients(run)
    for thread in threads:
        thread.start()
    try:
        nemesis.carry_out(plan(seed, seconds))
    finally:
        run.stop.set()
        for thread in threads:
            thread.join(2 * DRAIN_SECONDS_MAX)
    assert not any(thread.is_alive() for thread in threads)
    nemesis.kill()
    nemesis.start()
    read_topics(run, topics.ALL)
    server.stop()
    nemesis.start()
    read_topics_with_librdkafka(run, topics.ALL)
    say(f"{nemesis.kills} kills in all; faults: {dict(nemesis.done)}")
    say(f"{len(nemesis.start_seconds)} starts, the longest {max(nemesis.start_seconds):.2f} s")
    check_run(run, topics.ALL, folder=tmp_path, say=say)
    assert nemesis.kills >= min(KILLS_MIN, seconds / 10)
    assert b"Traceback" not in server.log_path.read_bytes()
