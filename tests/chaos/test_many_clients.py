"""Kills a node while three hundred connections produce and wait for records."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.chaos import topics
from tests.chaos.crowd import follow, produce
from tests.chaos.nemesis import Fault, Nemesis
from tests.chaos.recording import Run
from tests.chaos.topics import Topic
from tests.chaos.verdict import check_run, read_topics
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]
#: This test's share of LOGRAFT_CHAOS_SECONDS.
SHARE: Final = 0.12
PRODUCERS: Final = 180
FOLLOWERS: Final = 120
SECONDS_PER_KILL: Final = 3.0
TOPICS: Final = (Topic("crowded", 12), Topic("careful", 3, {"flush.messages": "1"}))


async def crowd(run: Run, nemesis: Nemesis, faults: list[Fault], server: Server) -> int:
    """Runs the clients and faults. Returns the node's resident memory in bytes while all are
    connected."""
    places = [(topic, tp) for topic in TOPICS for tp in topic.of_partitions()]
    async with asyncio.TaskGroup() as group:
        for index in range(PRODUCERS):
            group.create_task(produce(run, index, *places[index % len(places)]))
        for index in range(FOLLOWERS):
            group.create_task(follow(run, index, places[index % len(places)][1]))
        try:
            await asyncio.to_thread(nemesis.carry_out, faults)
            await asyncio.sleep(SECONDS_PER_KILL / 2)
            resident: int = psutil.Process(server.pid).memory_info().rss
        finally:
            run.stop.set()
    return resident


def test_node_with_three_hundred_clients_survives_kills(
    new_node: Callable[..., Server], seed: int, say: Callable[[str], None], tmp_path: Path
) -> None:
    seconds = float(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) * SHARE
    chance = random.Random(f"{seed}-crowd")
    faults = [
        Fault("kill", chance.uniform(1, SECONDS_PER_KILL), chance.random() / 2)
        for _ in range(max(3, int(seconds / SECONDS_PER_KILL)))
    ]
    server = new_node(settings=topics.BUSY_NODE).start()
    topics.create(server.port, TOPICS)
    run = Run(server.port, seed)
    nemesis = Nemesis(run, server, [tp for topic in TOPICS for tp in topic.of_partitions()])
    resident = asyncio.run(crowd(run, nemesis, faults, server))
    read_topics(run, TOPICS)
    say(f"{PRODUCERS + FOLLOWERS} connections, {nemesis.kills} kills, {resident >> 20} MB resident")
    check_run(run, TOPICS, folder=tmp_path, say=say)
    assert b"Traceback" not in server.log_path.read_bytes()
