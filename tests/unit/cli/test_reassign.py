"""`lograft reassign` on a simulated cluster: plans, progress, cancellation and rollback."""

import json

import pytest

from lograft.cli.reassign import (
    PartitionCopy,
    compare_with_target,
    describe_plan,
    make_plan,
    parse_target,
    plan_as_json,
    progress_lines,
    read_copies,
    target_of,
    wait_reassigned,
)
from lograft.client.admin import Admin, NewTopic, TopicPartition
from lograft.client.errors import BrokerError
from lograft.metadata.rebalancing import Move
from lograft.model.errors import InvalidInput
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import play

#: Eight partitions of two replicas each, all on the first two of three brokers.
CROWDED = {index: [1, 2] if index % 2 else [2, 1] for index in range(8)}


@scenario(play, nodes=3)
async def test_a_plan_is_printed_executed_and_completed(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment=CROWDED)])
    load, moves = await make_plan(admin)
    copies = sum(move.copies for move in moves)
    assert copies == 5
    shown = describe_plan(load, moves)
    assert "5 of 16 replicas will be copied, in 5 partitions." in shown
    assert shown[-1].split()[:4] == ["3", "0", "->", "5"]
    target = parse_target(plan_as_json(moves))
    assert target == target_of(moves)
    assert json.loads(plan_as_json(moves))["version"] == 1
    assert (await compare_with_target(admin, target))[1] == moves
    await admin.reassign(target)
    progress: list[float] = []
    await wait_reassigned(admin, target, lambda done, _text="": progress.append(done))
    assert progress == sorted(progress)
    assert progress[-1] == len(moves)
    assert progress_lines(await read_copies(admin)) == ["No reassignments in progress."]

    load, again = await make_plan(admin)
    assert again == []
    assert describe_plan(load, again) == [
        "Nothing to do: the replicas are already evenly distributed."
    ]
    assert (await compare_with_target(admin, target))[1] == []
    rollback = parse_target(plan_as_json(moves, before=True))
    assert len((await compare_with_target(admin, rollback))[1]) == len(moves)


@scenario(play, nodes=3)
async def test_reassignments_in_progress_count_as_completed_and_can_be_cancelled(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment=CROWDED)])
    cluster.kill(3)  # It cannot catch up.
    target = {TopicPartition("t", index): [3, 1] for index in range(4)}
    await admin.reassign(target)
    assert (await compare_with_target(admin, target))[1] == []
    lines = progress_lines(await read_copies(admin))
    assert lines[0] == "t-0  adding 3: not started  removing 2"
    assert len(lines) == 4
    await admin.reassign(dict.fromkeys(await admin.list_reassignments()))
    assert await read_copies(admin) == []


def test_progress_is_the_share_of_copied_bytes() -> None:
    half = PartitionCopy("t", 0, {3: 50, 4: None}, 200, (1,))
    assert half.share == 0.125
    assert progress_lines([half]) == ["t-0  adding 3: 25 %, 4: not started  removing 1"]
    assert PartitionCopy("t", 0, {3: 0}, 0, ()).share == 1, "there is nothing to copy"
    assert progress_lines([PartitionCopy("t", 0, {}, 9, (1,))]) == ["t-0  removing 1"]


@scenario(play)
async def test_unknown_partitions_topics_and_brokers_are_rejected(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    with pytest.raises(BrokerError, match="t-99"):
        await admin.reassign({TopicPartition("t", 99): [1]})
    with pytest.raises(InvalidInput, match="broker 9 is not registered"):
        await make_plan(admin, brokers=[1, 9])
    with pytest.raises(InvalidInput, match="topic u does not exist"):
        await make_plan(admin, topics=["u"])
    with pytest.raises(InvalidInput, match="partition t-0 does not exist"):
        await compare_with_target(admin, target_of([Move("t", 0, (), (1,))]))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": [{"topic": "t"}]}'])
def test_invalid_plan_files_are_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="invalid reassignment"):
        parse_target(text)
