"""Operations of a broker on many partitions of an internal topic."""

import asyncio
from functools import partial

import pytest

from lograft.broker.coordinators.coordinator_runtime import (
    CACHED_KEY_LENGTH_MAX,
    CONCURRENT_LOADS_MAX,
    KEY_LENGTH_MAX,
    SHARDS,
    key_hash,
)
from lograft.coordination.errors import CoordinatorLoading, NotCoordinator
from lograft.model.metrics import value_of
from lograft.model.types import OFFSETS_TOPIC
from lograft.storage.types import Origin
from lograft.wire.batches import Record, build_batch
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.record_frames import encode_coordinator_key, encode_coordinator_value
from lograft.wire.records.group_metadata_key import GroupMetadataKey
from lograft.wire.records.group_metadata_value import GroupMetadataValue, MemberMetadata
from lograft.wire.records.offset_commit_key import OffsetCommitKey
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import commit, fetch_all
from tests.unit.broker.bench import Bench, StandInController, new_machine, run

PARTITIONS = 3 * CONCURRENT_LOADS_MAX


async def load_all(bench: Bench) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    await bench.ask(request, 4, FindCoordinatorResponse)
    while value_of(bench.broker.groups, SHARDS, OFFSETS_TOPIC, "loaded") < PARTITIONS:
        await asyncio.sleep(0.001)


def test_more_partitions_than_are_loaded_at_once() -> None:
    controller, machine = StandInController(), new_machine()
    play = partial(
        run,
        controller=controller,
        machine=machine,
        offsets_topic_num_partitions=str(PARTITIONS),
        offsets_topic_replication_factor="1",
    )

    async def first(bench: Bench) -> None:
        await bench.create_topic("t")
        await load_all(bench)
        assert await commit(bench, 9, "t", {0: 7}) == {0: 0}

    async def second(bench: Bench) -> None:
        await load_all(bench)
        assert await fetch_all(bench, 9) == {"t": {0: (7, 3, "at 7")}}

    play(first, stop=False)
    machine.kill()
    play(second)


@scenario(run)
async def test_who_is_sent_here_too_early_need_not_look_elsewhere(bench: Bench, /) -> None:
    """The metadata contains the coordinator before its log is open."""
    bench.begin_topic(OFFSETS_TOPIC, 1, cleanup_policy="compact")
    with pytest.raises(CoordinatorLoading):
        bench.broker.groups.led_for("g")
    bench.registration.lease = False
    with pytest.raises(NotCoordinator):
        bench.broker.groups.led_for("g")


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        ("", 0),
        ("g", 103),
        ("polygenelubricants", 0),  # Java's hash is -(2 ** 31), which has no absolute value
        ("\N{GRINNING FACE}", 1_772_899),
        ("x" * (CACHED_KEY_LENGTH_MAX + 1), 1_661_435_784),
        # No state can have such a key, and its hash is never computed.
        ("x" * (KEY_LENGTH_MAX + 1), 0),
    ],
)
def test_the_partition_of_a_key(key: str, java_hash: int) -> None:
    assert key_hash(key) == java_hash


SENSELESS = {
    "a key of nothing": (b"", b"x"),
    "a value that ends too early": (encode_coordinator_key(OffsetCommitKey(group="g")), b"\0\4"),
    "two members of one name": (
        encode_coordinator_key(GroupMetadataKey(group="g")),
        encode_coordinator_value(
            GroupMetadataValue(protocol="range", members=[MemberMetadata(), MemberMetadata()]), 3
        ),
    ),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_a_log_that_makes_no_sense_stops_nobody_else(name: str) -> None:
    """Kafka's admin tools may write to internal topics, as may any client with their client id."""
    controller, machine = StandInController(), new_machine()
    play = partial(
        run,
        controller=controller,
        machine=machine,
        offsets_topic_num_partitions=str(PARTITIONS),
        offsets_topic_replication_factor="1",
    )
    key, value = SENSELESS[name]

    async def first(bench: Bench) -> None:
        await load_all(bench)
        partition = bench.broker.groups.led_for("g")
        batch = bytearray(build_batch([Record(0, 0, key, value)]))
        partition.append(memoryview(batch), now_ms=0, origin=Origin.COORDINATOR)

    async def second(bench: Bench) -> None:
        groups = bench.broker.groups
        while value_of(groups, SHARDS, OFFSETS_TOPIC, "loaded") < PARTITIONS - 1:
            await asyncio.sleep(0.001)
        with pytest.raises(NotCoordinator, match="could not be loaded"):
            groups.led_for("g")
        groups.on_role(bench.partition(OFFSETS_TOPIC, groups.partition_of("g")))
        assert value_of(groups, SHARDS, OFFSETS_TOPIC, "loading") == 0, "once is enough"

    play(first, stop=False)
    machine.kill()
    play(second)
