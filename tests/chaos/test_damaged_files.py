"""Damages files while the node is stopped: the node starts, or reports an error in one sentence; a
damaged partition is repaired, truncated at its torn end or offline, and all others continue to
work.

Every partition of a topic is damaged in a different way, so that one start tests all of them.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import Offset, TopicPartition
from lograft.runtime.disk import RealDisk
from lograft.storage.log_dirs import RECOVERY_POINTS, write_checkpoint
from lograft.wire.errors import MalformedMessage
from tests.chaos.damages import (
    Damage,
    DamageOutcome,
    cut_anywhere,
    empty,
    flip_anywhere,
    lose,
    overwrite,
    partition_damages,
)
from tests.chaos.nemesis import offset_with_retries
from tests.chaos.payloads import value_of
from tests.chaos.raw_client import EARLIEST, LATEST, ErrorResponse, RawClient, batch_of
from tests.chaos.topics import BUSY_NODE
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
TOPIC: Final = "t"
DAMAGES: Final = partition_damages()
#: Undamaged partitions.
SPARE: Final = 2
BATCHES: Final = 24
RECORDS_PER_BATCH: Final = 3
VALUE_BYTES: Final = 120
SEGMENT_BYTES: Final = 2_500
STARTED_SECONDS_MAX: Final = 20.0
#: Number of cases to draw for files of the whole node; each needs a start.
CASES_PER_RUN: Final = int(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) // 15

Contents = dict[TopicPartition, dict[int, str]]


class Prepared(NamedTuple):
    """A stopped node's folder and its contents."""

    folder: Path
    controller_port: int
    contents: Contents
    #: Base offset of the last segment of each log.
    tails: dict[TopicPartition, Offset]
    is_clean: bool


def fill(client: RawClient, partitions: list[TopicPartition]) -> Contents:
    contents: Contents = {}
    producer_id, epoch = client.producer_id()
    for tp in partitions:
        contents[tp] = {}
        for number in range(BATCHES):
            first = number * RECORDS_PER_BATCH
            uids = [f"{tp}-{first + place}" for place in range(RECORDS_PER_BATCH)]
            batch = batch_of(
                [value_of(uid, VALUE_BYTES) for uid in uids],
                now_ms=time.time_ns() // 1_000_000,
                producer_id=producer_id,
                producer_epoch=epoch,
                sequence=first,
            )
            base = client.produce(tp, batch)
            contents[tp] |= {base + place: uid for place, uid in enumerate(uids)}
    return contents


@pytest.fixture(scope="module", params=["killed", "stopped"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp(request.param)
    server = Server.of("lograft", folder, settings=BUSY_NODE)
    partitions = [TopicPartition(TOPIC, index) for index in range(len(DAMAGES) + SPARE)]
    try:
        server.start()
        with RawClient(server.port) as client:
            client.create_topic(
                TOPIC,
                partitions=len(partitions),
                configs={
                    "internal.segment.bytes": str(SEGMENT_BYTES),
                    "index.interval.bytes": "300",
                },
            )
            for tp in partitions:
                offset_with_retries(client, tp, LATEST)
            contents = fill(client, partitions)
        if request.param == "stopped":
            server.stop()
    finally:
        server.kill()
    is_clean = request.param == "stopped"
    tails = last_segments(server.data, partitions)
    if not is_clean:
        # As if the last segment of each log had never been fsynced.
        write_checkpoint(RealDisk(), str(server.data / RECOVERY_POINTS), tails)
    return Prepared(folder, server.controller_port, contents, tails, is_clean)


def last_segments(data: Path, partitions: list[TopicPartition]) -> dict[TopicPartition, Offset]:
    return {
        tp: Offset(int(sorted((data / str(tp)).glob("*.log"))[-1].name[:20])) for tp in partitions
    }


@pytest.fixture
def damaged(prepared: Prepared, new_node: Callable[..., Server], tmp_path: Path) -> Server:
    """A stopped node with a copy of the prepared folder."""
    server = new_node(settings=BUSY_NODE)
    shutil.copytree(prepared.folder / "data", server.data)
    server.controller_port = prepared.controller_port
    return server


def outcome(client: RawClient, tp: TopicPartition, expected: dict[int, str]) -> DamageOutcome:
    """Reads the partition from its beginning to its end, and classifies the result."""
    found: list[tuple[int, str]] = []
    try:
        position, end = (
            offset_with_retries(client, tp, EARLIEST),
            offset_with_retries(client, tp, LATEST),
        )
        while position < end:
            fetched = client.fetch(tp, position, wait_ms=0)
            if fetched.bad_crc:
                return "served corrupt"
            if fetched.next_offset <= position:
                return "stuck"
            found += fetched.records
            position = fetched.next_offset
    except MalformedMessage:
        return "served corrupt"
    except ErrorResponse as error:
        if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE):
            raise
        return "offline"
    known = sorted(expected.items())
    if found == known:
        return "whole"
    return "shorter" if found == known[: len(found)] else "wrong"


def outcomes(server: Server, contents: Contents) -> dict[TopicPartition, DamageOutcome]:
    with RawClient(server.port) as client:
        return {tp: outcome(client, tp, expected) for tp, expected in contents.items()}


def start_and_wait(server: Server) -> None:
    """Starts a node and waits until it is unfenced; it responds to requests before that."""
    server.log_path.write_text("")
    server.start()
    deadline = time.monotonic() + STARTED_SECONDS_MAX
    while "is listening" not in server.log_path.read_text():
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.02)


def write_to(client: RawClient, tp: TopicPartition) -> int:
    return client.produce(tp, batch_of([value_of("later")], now_ms=time.time_ns() // 1_000_000))


def test_damaged_partitions_do_not_affect_others(
    prepared: Prepared, damaged: Server, seed: int, say: Callable[[str], None]
) -> None:
    chance = random.Random(f"{seed}-damage")
    cases: dict[TopicPartition, Damage] = {}
    for index, damage in enumerate(DAMAGES):
        tp = TopicPartition(TOPIC, index)
        cases[tp] = damage
        damage.apply(damaged.data / str(tp), chance, prepared.tails[tp])
    start_and_wait(damaged)
    seen = outcomes(damaged, prepared.contents)
    say(str(dict(Counter(seen.values()))))
    bad = [
        f"{cases[tp].name}: {seen[tp]}"
        for tp in cases
        if not cases[tp].allows(seen[tp], clean=prepared.is_clean)
    ]
    assert not bad, bad
    assert all(seen[tp] == "whole" for tp in seen if tp not in cases)
    with RawClient(damaged.port) as client:
        for tp, found in seen.items():
            if found in ("whole", "shorter"):
                write_to(client, tp)
    damaged.kill()
    start_and_wait(damaged)
    repeated = outcomes(damaged, prepared.contents)
    # The record just written is not part of the contents, so the end of a readable log has changed.
    changed = [
        f"{tp}: {seen[tp]}, then {repeated[tp]}"
        for tp in seen
        if (seen[tp] in ("whole", "shorter")) != (repeated[tp] == "wrong")
        and seen[tp] != repeated[tp]
    ]
    assert not changed, changed
    assert "Traceback" not in damaged.log_path.read_text()


CHANGES: Final = {
    "flip": flip_anywhere,
    "cut": cut_anywhere,
    "overwrite": overwrite,
    "empty": empty,
    "lose": lose,
}
METADATA: Final = "__cluster_metadata-0"
#: Files of the whole node.
SHARED_FILES: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "meta.properties",
    "bootstrap.checkpoint",
    f"{METADATA}/quorum-state",
    f"{METADATA}/leader-epoch-checkpoint",
    f"{METADATA}/recovery-point-offset-checkpoint",
    f"{METADATA}/partition.metadata",
    f"{METADATA}/*.log",
    f"{METADATA}/*.index",
    f"{METADATA}/*.checkpoint",
)


#: A flipped digit is still a valid checkpoint, so the damage cannot be detected.
UNDETECTABLE: Final = {("flip", "log-start-offset-checkpoint")}


def test_damage_to_files_of_the_whole_node(
    prepared: Prepared, damaged: Server, seed: int, say: Callable[[str], None]
) -> None:
    """The node starts with all partitions, or reports in one sentence which file it needs."""
    chance = random.Random(f"{seed}-shared")
    pristine = damaged.folder / "pristine"
    shutil.copytree(damaged.data, pristine)
    cases = sorted({(kind, file) for kind in CHANGES for file in SHARED_FILES} - UNDETECTABLE)
    results: dict[str, str] = {}
    for kind, pattern in chance.sample(cases, CASES_PER_RUN):
        shutil.rmtree(damaged.data)
        shutil.copytree(pristine, damaged.data)
        for path in damaged.data.glob(pattern):
            CHANGES[kind](path, chance)
        results[f"{kind} {pattern}"] = start_and_check(damaged, prepared.contents)
    for name, result in results.items():
        say(f"{name}: {result.replace(str(damaged.data), '...')}")
    bad = {name: result for name, result in results.items() if result.startswith("BAD")}
    assert not bad, bad


def test_torn_tail_of_the_metadata_log_is_truncated(
    prepared: Prepared, damaged: Server, seed: int
) -> None:
    chance = random.Random(f"{seed}-torn")
    (*_, log) = sorted((damaged.data / METADATA).glob("*.log"))
    log.write_bytes(log.read_bytes() + chance.randbytes(chance.randrange(1, 3_000)))
    assert start_and_check(damaged, prepared.contents) == "serves all"


def start_and_check(server: Server, contents: Contents) -> str:
    server.log_path.write_text("")
    server.format = lambda log: None  # type: ignore[method-assign]
    server.launch()
    deadline = time.monotonic() + STARTED_SECONDS_MAX
    output = ""
    while "is listening" not in output:
        output = server.log_path.read_text()
        if server.has_ended_within(0.02):
            output = server.log_path.read_text().strip()
            if "Traceback" in output or "LOGRAFT_TRACE" in output:
                return f"BAD: {output[-1500:]}"
            last_line = output.rpartition("\n")[2]
            if last_line.startswith("lograft: "):
                return f"does not start: {last_line}"
            return f"BAD: {last_line}"
        if time.monotonic() > deadline:
            server.kill()
            return f"BAD: neither serves nor exits: {output[-1500:]}"
    seen = Counter(outcomes(server, contents).values())
    server.kill()
    if "Traceback" in server.log_path.read_text():
        return f"BAD: {server.log_path.read_text()[-1500:]}"
    if set(seen) == {"whole"}:
        return "serves all"
    # With a recovery point that is too high, a log looks as if its end were lost.
    return f"serves {dict(seen)}" if set(seen) <= {"whole", "offline"} else f"BAD: {dict(seen)}"
