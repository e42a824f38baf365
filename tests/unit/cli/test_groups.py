"""`lograft groups`: output, and parsing of options."""

import pytest

from lograft.cli.group_resets import (
    parse_datetime_ms,
    parse_duration_ms,
    parse_scope,
    plan_lines,
)
from lograft.cli.groups import GroupPosition, describe, describe_json, describe_lines, list_lines
from lograft.client.admin import (
    Admin,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetMove,
    ResetPlan,
    Target,
    TopicPartition,
)
from lograft.client.errors import GroupMissing, WrongUse
from lograft.model.errors import InvalidInput
from lograft.model.types import ResetAction
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import fill, play

EARLIEST, LATEST, SINCE = 5, 20, 8
#: `fill` gives each record this timestamp plus its offset.
FIRST_MS = 1_000


def test_list_shows_type_and_state() -> None:
    found = [GroupListing("c", "classic", "Stable", ""), GroupListing("k", "consumer", "Empty", "")]
    assert list_lines(found) == [
        "GROUP  TYPE      STATE",
        "c      classic   Stable",
        "k      consumer  Empty",
    ]
    assert list_lines([]) == ["No groups."]


def test_describe_shows_members_and_lag() -> None:
    member = MemberDescription("m2", "i", "app", "/h", {"t": [0]}, {"t": [0]})
    group = GroupDescription("c", "classic", "Stable", "range", 1, (member,))
    positions = [
        GroupPosition("t", 0, 50, 100, 50, "m2", None),
        GroupPosition("t", 1, 60, 100, 40, None, -1),
        GroupPosition("t", 2, None, None, None, None, 7),
    ]
    assert list(describe_lines([(group, positions)])) == [
        "c  classic  Stable  1 member, assignor range",
        "",
        "MEMBER  INSTANCE  CLIENT  HOST  PARTITIONS",
        "m2      i         app     /h    t:0",
        "",
        "PARTITION  OFFSET  LOG END  LAG  BEFORE RESET  MEMBER",
        "t-0        50      100      50   -             m2",
        "t-1        60      100      40   none          -",
        "t-2        -       -        -    7             -",
    ]
    (shown,) = describe_json([(group, positions)])
    assert shown["members"][0]["partitions"] == {"t": [0]}
    assert shown["positions"][0]["lag"] == 50


@scenario(play, nodes=3)
async def test_describe_finds_end_offsets_of_existing_partitions(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", partitions=2), "gone"])
    await fill(cluster, "t", 4)
    await admin.alter_group_offsets("g", {TopicPartition("t", 0): 1, TopicPartition("gone", 0): 0})
    ((group, positions),) = await describe(admin, [])
    assert (group.group, group.state) == ("g", "Empty")
    assert GroupPosition("t", 0, 1, 4, 3, None, None) in positions
    with pytest.raises(GroupMissing, match="group x does not exist: `lograft groups list` shows"):
        await describe(admin, ["x"])


@scenario(play, nodes=3)
async def test_reset_targets(cluster: VirtualCluster, admin: Admin, /) -> None:
    await admin.create_topics([NewTopic("t", partitions=2)])
    await fill(cluster, "t", LATEST)
    partition = TopicPartition("t", 0)
    await admin.delete_records({partition: EARLIEST})
    await admin.alter_group_offsets("g", {partition: 10})
    for target, after in (
        (Target(earliest=True), EARLIEST),
        (Target(latest=True), LATEST),
        (Target(offset=7), 7),
        (Target(offset=3), EARLIEST),
        (Target(offset=300), LATEST),
        (Target(shift=-2), 8),
        (Target(current=True), 10),
        (Target(from_ms=FIRST_MS + SINCE), SINCE),
        (Target(from_ms=FIRST_MS + LATEST), LATEST),
    ):
        plan = await admin.plan_reset("g", target, {"t": {0}})
        assert plan.moves == (OffsetMove("t", 0, 10, after),), target
    for scope, message in (
        ({"u": None}, "topic u does not exist"),
        ({"t": {1, 7}}, "topic t has 2 partitions, so there is no partition 7"),
    ):
        with pytest.raises(WrongUse, match=message):
            await admin.plan_reset("g", Target(latest=True), scope)
    with pytest.raises(WrongUse, match="group e has no committed offsets"):
        await admin.plan_reset("e", Target(latest=True))


def test_plans_are_printed_with_their_consequences() -> None:
    moves = (OffsetMove("t", 0, 50, 70), OffsetMove("t", 1, None, 70), OffsetMove("t", 2, 3, None))
    plan = ResetPlan("c", ResetAction.RESET, 1, moves)
    assert plan_lines(plan, executed=False) == [
        "PARTITION  BEFORE  AFTER  DIFFERENCE",
        "t-0        50      70     +20",
        "t-1        none    70",
        "t-2        3       none",
        "",
        "Dry run: nothing was changed. Use --execute to apply the changes.",
        "The 1 member of group c will have to rejoin, and will continue at the new offsets.",
    ]
    assert plan_lines(plan, executed=True)[-3:] == [
        "Reset the offsets of group c.",
        "Its 1 member must rejoin and will continue at these offsets.",
        "`lograft groups undo c` restores the previous offsets.",
    ]
    undone = plan_lines(ResetPlan("c", ResetAction.UNDO, 0, moves), executed=True)
    assert undone[-1] == "Restored the previous offsets of group c."


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1h30m", 5_400_000), ("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("2d", 172_800_000)],
)
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "1h30", "-1h"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"invalid duration .*: write it as 1h30m"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:00:10", "1970-01-01T00:00:10Z", "1970-01-01T02:00:10+02:00"]
)
def test_times_are_utc_by_default(text: str) -> None:
    assert parse_datetime_ms(text) == 10_000


def test_an_invalid_time_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="invalid time noon"):
        parse_datetime_ms("noon")


def test_scopes_are_parsed() -> None:
    assert parse_scope(["t:0,2", "t:5", "u"]) == {"t": {0, 2, 5}, "u": None}
    assert parse_scope(["t", "t:5"]) == {"t": None}
    for text in ("", ":1", "t:", "t:x"):
        with pytest.raises(InvalidInput):
            parse_scope([text])
