"""`lograft reassign` on a simulated cluster: plans, progress, and the way back."""

import json

import pytest

from lograft.cli.reassign import (
    Copying,
    describe_plan,
    follow,
    make_plan,
    moves_to,
    plan_as_json,
    progress_lines,
    read_copying,
    wanted_by,
    wanted_from_json,
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
async def test_a_plan_is_shown_run_and_followed(cluster: VirtualCluster, admin: Admin, /) -> None:
    await admin.create_topics([NewTopic("t", assignment=CROWDED)])
    load, moves = await make_plan(admin)
    copies = sum(move.copies for move in moves)
    assert copies == 5
    shown = describe_plan(load, moves)
    assert "5 of 16 replicas are copied, in 5 partitions." in shown
    assert shown[-1].split()[:4] == ["3", "0", "->", "5"]
    wanted = wanted_from_json(plan_as_json(moves))
    assert wanted == wanted_by(moves)
    assert json.loads(plan_as_json(moves))["version"] == 1
    assert (await moves_to(admin, wanted))[1] == moves
    await admin.reassign(wanted)
    told: list[float] = []
    await follow(admin, wanted, lambda done, _text="": told.append(done))
    assert told == sorted(told)
    assert told[-1] == len(moves)
    assert progress_lines(await read_copying(admin)) == ["No partition is being reassigned."]

    load, again = await make_plan(admin)
    assert again == []
    assert describe_plan(load, again) == [
        "Nothing to do: the brokers share the load as evenly as they can."
    ]
    assert (await moves_to(admin, wanted))[1] == []
    back = wanted_from_json(plan_as_json(moves, before=True))
    assert len((await moves_to(admin, back))[1]) == len(moves)


@scenario(play, nodes=3)
async def test_what_is_under_way_counts_as_done_and_can_be_cancelled(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", assignment=CROWDED)])
    cluster.kill(3)  # It will not catch up now.
    wanted = {TopicPartition("t", index): [3, 1] for index in range(4)}
    await admin.reassign(wanted)
    assert (await moves_to(admin, wanted))[1] == []
    lines = progress_lines(await read_copying(admin))
    assert lines[0] == "t-0  copies to 3: not begun, removes 2"
    assert len(lines) == 4
    await admin.reassign(dict.fromkeys(await admin.list_reassignments()))
    assert await read_copying(admin) == []


def test_how_far_a_copy_is() -> None:
    half = Copying("t", 0, {3: 50, 4: None}, 200, (1,))
    assert half.share == 0.125
    assert progress_lines([half]) == ["t-0  copies to 3: 25 %; 4: not begun, removes 1"]
    assert Copying("t", 0, {3: 0}, 0, ()).share == 1, "there is nothing to copy"
    assert progress_lines([Copying("t", 0, {}, 9, (1,))]) == ["t-0  copies to nobody, removes 1"]


@scenario(play)
async def test_what_the_cluster_refuses_is_said(cluster: VirtualCluster, admin: Admin, /) -> None:
    with pytest.raises(BrokerError, match="t-99"):
        await admin.reassign({TopicPartition("t", 99): [1]})
    with pytest.raises(InvalidInput, match="broker 9 is not registered"):
        await make_plan(admin, brokers=[1, 9])
    with pytest.raises(InvalidInput, match="no topic u"):
        await make_plan(admin, topics=["u"])
    with pytest.raises(InvalidInput, match="no partition t-0"):
        await moves_to(admin, wanted_by([Move("t", 0, (), (1,))]))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": [{"topic": "t"}]}'])
def test_files_that_are_no_plan(text: str) -> None:
    with pytest.raises(InvalidInput, match="invalid reassignment"):
        wanted_from_json(text)
