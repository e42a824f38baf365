"""Files that changed while the node was stopped: it starts or refuses in a sentence, a damaged
partition is repaired, cut at its torn end or offline, and all others go on.

Every partition of one topic is damaged in another way, so that one start judges them all.
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
    of_a_partition,
    scribble,
)
from tests.chaos.nemesis import patiently
from tests.chaos.payloads import value_of
from tests.chaos.raw_client import EARLIEST, LATEST, ErrorResponse, RawClient, batch_of
from tests.chaos.topics import BUSY_NODE
from tests.compatibility.servers import Server

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
TOPIC: Final = "t"
DAMAGES: Final = of_a_partition()
#: Healthy neighbours beside the damaged ones.
SPARE: Final = 2
BATCHES: Final = 24
RECORDS_PER_BATCH: Final = 3
VALUE_BYTES: Final = 120
SEGMENT_BYTES: Final = 2_500
STARTED_SECONDS_MAX: Final = 20.0
#: Of all ways to damage the files that stand for the whole node; each costs a start.
CASES_PER_RUN: Final = int(os.environ.get("LOGRAFT_CHAOS_SECONDS", "90")) // 15

Contents = dict[TopicPartition, dict[int, str]]


class Prepared(NamedTuple):
    """A stopped node's folder and what it holds."""

    folder: Path
    controller_port: int
    contents: Contents
    #: Where the last segment of each log begins.
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
                patiently(client, tp, LATEST)
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
    """A node that will start on a copy of the prepared folder."""
    server = new_node(settings=BUSY_NODE)
    shutil.copytree(prepared.folder / "data", server.data)
    server.controller_port = prepared.controller_port
    return server


def outcome(client: RawClient, tp: TopicPartition, wanted: dict[int, str]) -> DamageOutcome:
    """What a consumer finds that reads the partition from its beginning to its end."""
    found: list[tuple[int, str]] = []
    try:
        position, end = patiently(client, tp, EARLIEST), patiently(client, tp, LATEST)
        while position < end:
            got = client.fetch(tp, position, wait_ms=0)
            if got.bad_crc:
                return "served corrupt"
            if got.next_offset <= position:
                return "stuck"
            found += got.records
            position = got.next_offset
    except MalformedMessage:
        return "served corrupt"
    except ErrorResponse as error:
        if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE):
            raise
        return "offline"
    known = sorted(wanted.items())
    if found == known:
        return "whole"
    return "shorter" if found == known[: len(found)] else "wrong"


def outcomes(server: Server, contents: Contents) -> dict[TopicPartition, DamageOutcome]:
    with RawClient(server.port) as client:
        return {tp: outcome(client, tp, wanted) for tp, wanted in contents.items()}


def start_and_wait(server: Server) -> None:
    """A node answers already while its controller does not count on it yet; this waits longer."""
    server.log_path.write_text("")
    server.start()
    deadline = time.monotonic() + STARTED_SECONDS_MAX
    while "is listening" not in server.log_path.read_text():
        assert time.monotonic() < deadline, server.log_tail()
        time.sleep(0.02)


def write_to(client: RawClient, tp: TopicPartition) -> int:
    return client.produce(tp, batch_of([value_of("later")], now_ms=time.time_ns() // 1_000_000))


def test_each_damaged_partition_stands_for_itself(
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
    again = outcomes(damaged, prepared.contents)
    # The record just written is not one of the contents: a readable log now ends otherwise.
    changed = [
        f"{tp}: {seen[tp]}, then {again[tp]}"
        for tp in seen
        if (seen[tp] in ("whole", "shorter")) != (again[tp] == "wrong") and seen[tp] != again[tp]
    ]
    assert not changed, changed
    assert "Traceback" not in damaged.log_path.read_text()


CHANGES: Final = {
    "flip": flip_anywhere,
    "cut": cut_anywhere,
    "scribble": scribble,
    "empty": empty,
    "lose": lose,
}
METADATA: Final = "__cluster_metadata-0"
#: Files that stand for the whole node.
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


#: A flipped digit is still a good checkpoint: nobody can know that it was another.
UNKNOWABLE: Final = {("flip", "log-start-offset-checkpoint")}


def test_damage_to_a_file_of_the_whole_node(
    prepared: Prepared, damaged: Server, seed: int, say: Callable[[str], None]
) -> None:
    """Starts with everything, or says in one sentence which file it cannot do without."""
    chance = random.Random(f"{seed}-shared")
    pristine = damaged.folder / "pristine"
    shutil.copytree(damaged.data, pristine)
    cases = sorted({(kind, file) for kind in CHANGES for file in SHARED_FILES} - UNKNOWABLE)
    verdicts: dict[str, str] = {}
    for kind, pattern in chance.sample(cases, CASES_PER_RUN):
        shutil.rmtree(damaged.data)
        shutil.copytree(pristine, damaged.data)
        for path in damaged.data.glob(pattern):
            CHANGES[kind](path, chance)
        verdicts[f"{kind} {pattern}"] = start_and_judge(damaged, prepared.contents)
    for name, verdict in verdicts.items():
        say(f"{name}: {verdict.replace(str(damaged.data), '...')}")
    bad = {name: verdict for name, verdict in verdicts.items() if verdict.startswith("BAD")}
    assert not bad, bad


def test_a_torn_tail_of_the_metadata_log_is_cut(
    prepared: Prepared, damaged: Server, seed: int
) -> None:
    chance = random.Random(f"{seed}-torn")
    (*_, log) = sorted((damaged.data / METADATA).glob("*.log"))
    log.write_bytes(log.read_bytes() + chance.randbytes(chance.randrange(1, 3_000)))
    assert start_and_judge(damaged, prepared.contents) == "serves all"


def start_and_judge(server: Server, contents: Contents) -> str:
    server.log_path.write_text("")
    server.format = lambda log: None  # type: ignore[method-assign]
    server.launch()
    deadline = time.monotonic() + STARTED_SECONDS_MAX
    said = ""
    while "is listening" not in said:
        said = server.log_path.read_text()
        if server.has_ended_within(0.02):
            said = server.log_path.read_text().strip()
            if "Traceback" in said or "LOGRAFT_TRACE" in said:
                return f"BAD: {said[-1500:]}"
            words = said.rpartition("\n")[2]
            return f"refuses: {words}" if words.startswith("lograft: ") else f"BAD: {words}"
        if time.monotonic() > deadline:
            server.kill()
            return f"BAD: neither serves nor ends: {said[-1500:]}"
    seen = Counter(outcomes(server, contents).values())
    server.kill()
    if "Traceback" in server.log_path.read_text():
        return f"BAD: {server.log_path.read_text()[-1500:]}"
    if set(seen) == {"whole"}:
        return "serves all"
    # A recovery point that is too high makes a log look as if its end were lost.
    return f"serves {dict(seen)}" if set(seen) <= {"whole", "offline"} else f"BAD: {dict(seen)}"
