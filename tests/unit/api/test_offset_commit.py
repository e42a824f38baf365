from uuid import UUID

import pytest

from lograft.model.errors import ErrorCode
from lograft.model.types import RESET_GENERATION, ResetAction
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.scenarios import scenario
from tests.unit.api.offsets_bench import (
    IDS_SINCE,
    commit,
    fetch_all,
    find_coordinator,
    play,
    run_coordinator,
)
from tests.unit.broker.bench import Bench, StandInController, new_machine, run


@pytest.mark.parametrize("version", range(2, 11))
@scenario(play)
async def test_committed_offsets_are_returned_by_offset_fetch(
    bench: Bench, /, version: int
) -> None:
    assert await commit(bench, version, "t", {0: 42, 2: 7}) == {0: 0, 2: 0}
    epoch = 3 if version >= 6 else -1
    expected = {"t": {0: (42, epoch, "at 42"), 2: (7, epoch, "at 7")}}
    for fetch_version in range(5, 11):
        assert await fetch_all(bench, fetch_version) == expected


@pytest.mark.parametrize("version", range(2, 11))
@scenario(play)
async def test_unknown_topics_are_rejected(bench: Bench, /, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= IDS_SINCE:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert await commit(bench, version, "nowhere", {0: 1}) == {0: unknown}
    assert await fetch_all(bench, 10) == {}


@pytest.mark.parametrize("version", range(2, 11))
@scenario(play)
async def test_unknown_partitions_are_rejected(bench: Bench, /, version: int) -> None:
    """Each has its own error, even if the group has an error."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(bench, version, "t", {0: 1, 3: 1}) == {0: 0, 3: unknown}
    stranger = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    found = await commit(bench, version, "t", {0: 1, 3: 1}, **stranger)
    assert found == {0: ErrorCode.UNKNOWN_MEMBER_ID, 3: unknown}


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
@scenario(play)
async def test_unknown_member_is_rejected(bench: Bench, /, version: int, code: int) -> None:
    codes = await commit(
        bench, version, "t", {0: 1, 1: 1}, generation_id_or_member_epoch=3, member_id="m"
    )
    assert codes == {0: code, 1: code}


@scenario(run)
async def test_other_brokers_return_not_coordinator(bench: Bench, /) -> None:
    await bench.create_topic("t", partitions=2)
    assert await commit(bench, 9, "t", {0: 1}) == {0: ErrorCode.NOT_COORDINATOR}


@scenario(run_coordinator, offset_metadata_max_bytes="8")
async def test_long_metadata_is_rejected(bench: Bench, /) -> None:
    await bench.create_topic("t", partitions=2)
    await find_coordinator(bench)
    codes = await commit(bench, 9, "t", {0: 1, 1: 1_000_000})
    assert codes == {0: 0, 1: ErrorCode.OFFSET_METADATA_TOO_LARGE}


@scenario(run_coordinator, message_max_bytes="1000")
async def test_commit_larger_than_a_batch_is_rejected(bench: Bench, /) -> None:
    await bench.create_topic("t", partitions=50)
    await find_coordinator(bench)
    assert await commit(bench, 9, "t", {0: 1}) == {0: 0}
    codes = await commit(bench, 9, "t", dict.fromkeys(range(50), 7))
    assert codes == dict.fromkeys(range(50), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert await fetch_all(bench, 9) == {"t": {0: (1, 3, "at 1")}}


def test_offsets_survive_a_restart() -> None:
    controller, machine = StandInController(), new_machine()

    async def first(bench: Bench) -> None:
        await bench.create_topic("t", partitions=2)
        await find_coordinator(bench)
        for offset in range(10):
            assert await commit(bench, 9, "t", {0: offset, 1: 5}) == {0: 0, 1: 0}

    async def second(bench: Bench) -> None:
        await find_coordinator(bench)
        assert await fetch_all(bench, 9) == {"t": {0: (9, 3, "at 9"), 1: (5, 3, "at 5")}}

    run_coordinator(first, controller=controller, machine=machine, stop=False)
    machine.kill()
    run_coordinator(second, controller=controller, machine=machine)


# Offset resets, which Kafka does not have.


async def reset(
    bench: Bench, action: ResetAction, topic: str, positions: dict[int, int], version: int = 9
) -> OffsetCommitResponse:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=RESET_GENERATION,
        reset_action=action,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=bench.broker.image.topic_ids.get(topic, UUID(int=99)),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                    for partition, offset in positions.items()
                ],
            )
        ],
    )
    return await bench.ask(request, version, OffsetCommitResponse)


def codes_of(response: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", range(8, 11))
@scenario(play)
async def test_reset_can_be_undone(bench: Bench, /, version: int) -> None:
    await commit(bench, 9, "t", {0: 42, 1: 7})
    done = await reset(bench, ResetAction.RESET, "t", {0: 5, 2: 6}, version)
    assert codes_of(done) == [0, 0]
    now = await fetch_all(bench, 9)
    assert {index: found[0] for index, found in now["t"].items()} == {0: 5, 1: 7, 2: 6}
    undone = await reset(bench, ResetAction.UNDO, "t", {0: 42, 2: -1}, version)
    assert codes_of(undone) == [0, 0]
    assert await fetch_all(bench, 9) == {"t": {0: (42, 3, "at 42"), 1: (7, 3, "at 7")}}


@pytest.mark.parametrize(
    ("topic", "positions", "code", "sentence"),
    [
        ("nowhere", {0: 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Topic nowhere does not exist."),
        ("t", {0: 1, 9: 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Partition t-9 does not exist."),
        ("t", {0: -4}, ErrorCode.INVALID_REQUEST, "Cannot reset to the negative offset -4."),
    ],
)
@scenario(play)
async def test_reset_is_all_or_nothing(
    bench: Bench, /, topic: str, positions: dict[int, int], code: ErrorCode, sentence: str
) -> None:
    rejected = await reset(bench, ResetAction.RESET, topic, positions)
    assert codes_of(rejected) == [code] * len(positions)
    assert rejected.error_message == sentence
    assert await fetch_all(bench, 9) == {}
