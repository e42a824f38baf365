"""`lograft groups`: what it makes of what a cluster tells, and what its options mean."""

import pytest

from lograft.cli.group_resets import (
    parse_datetime_ms,
    parse_duration_ms,
    parse_scope,
    plan_lines,
)
from lograft.cli.groups import Standing, describe, describe_json, describe_lines, list_lines
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
#: `fill` gives the record of an offset this time, plus the offset.
FIRST_MS = 1_000


def test_list() -> None:
    found = [GroupListing("c", "classic", "Stable", ""), GroupListing("k", "consumer", "Empty", "")]
    assert list_lines(found) == [
        "GROUP  TYPE      STATE",
        "c      classic   Stable",
        "k      consumer  Empty",
    ]
    assert list_lines([]) == ["There are no groups."]


def test_describe_shows_members_and_lag() -> None:
    member = MemberDescription("m2", "i", "app", "/h", {"t": [0]}, {"t": [0]})
    group = GroupDescription("c", "classic", "Stable", "range", 1, (member,))
    positions = [
        Standing("t", 0, 50, 100, 50, "m2", None),
        Standing("t", 1, 60, 100, 40, None, -1),
        Standing("t", 2, None, None, None, None, 7),
    ]
    assert list(describe_lines([(group, positions)])) == [
        "c  classic  Stable  1 member, assigned by range",
        "",
        "MEMBER  INSTANCE  CLIENT  HOST  PARTITIONS",
        "m2      i         app     /h    t:0",
        "",
        "PARTITION  OFFSET  END  LAG  BEFORE RESET  MEMBER",
        "t-0        50      100  50   -             m2",
        "t-1        60      100  40   none          -",
        "t-2        -       -    -    7             -",
    ]
    (shown,) = describe_json([(group, positions)])
    assert shown["members"][0]["partitions"] == {"t": [0]}
    assert shown["positions"][0]["lag"] == 50


@scenario(play, nodes=3)
async def test_describe_asks_for_the_ends_of_what_is_there(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", partitions=2), "gone"])
    await fill(cluster, "t", 4)
    await admin.alter_group_offsets("g", {TopicPartition("t", 0): 1, TopicPartition("gone", 0): 0})
    ((group, positions),) = await describe(admin, [])
    assert (group.group, group.state) == ("g", "Empty")
    assert Standing("t", 0, 1, 4, 3, None, None) in positions
    with pytest.raises(GroupMissing, match="there is no group x; `lograft groups list` shows"):
        await describe(admin, ["x"])


@scenario(play, nodes=3)
async def test_where_a_reset_goes(cluster: VirtualCluster, admin: Admin, /) -> None:
    await admin.create_topics([NewTopic("t", partitions=2)])
    await fill(cluster, "t", LATEST)
    place = TopicPartition("t", 0)
    await admin.delete_records({place: EARLIEST})
    await admin.alter_group_offsets("g", {place: 10})
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
    for scope, sentence in (
        ({"u": None}, "there is no topic u"),
        ({"t": {1, 7}}, "topic t has no partition 7, it has 2"),
    ):
        with pytest.raises(WrongUse, match=sentence):
            await admin.plan_reset("g", Target(latest=True), scope)
    with pytest.raises(WrongUse, match="group e has no offsets and reads nothing"):
        await admin.plan_reset("e", Target(latest=True))


def test_plans_in_words() -> None:
    moves = (OffsetMove("t", 0, 50, 70), OffsetMove("t", 1, None, 70), OffsetMove("t", 2, 3, None))
    plan = ResetPlan("c", ResetAction.RESET, 1, moves)
    assert plan_lines(plan, executed=False) == [
        "PARTITION  BEFORE  AFTER  DIFFERENCE",
        "t-0        50      70     +20",
        "t-1        none    70",
        "t-2        3       none",
        "",
        "Nothing is changed yet: --execute does it, in one step.",
        "The 1 member of group c will join again and begin there.",
    ]
    assert plan_lines(plan, executed=True)[-3:] == [
        "The offsets of group c are reset.",
        "Its 1 member must join again and will begin there.",
        "`lograft groups undo c` takes it back.",
    ]
    undone = plan_lines(ResetPlan("c", ResetAction.UNDO, 0, moves), executed=True)
    assert undone[-1] == "The offsets of group c are back where they were."


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1h30m", 5_400_000), ("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("2d", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "1h30", "-1h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no duration: write it as in 1h30m"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text", ["1970-01-01T00:00:10", "1970-01-01T00:00:10Z", "1970-01-01T02:00:10+02:00"]
)
def test_times(text: str) -> None:
    assert parse_datetime_ms(text) == 10_000


def test_no_time() -> None:
    with pytest.raises(InvalidInput, match="noon is no time"):
        parse_datetime_ms("noon")


def test_scopes() -> None:
    assert parse_scope(["t:0,2", "t:5", "u"]) == {"t": {0, 2, 5}, "u": None}
    assert parse_scope(["t", "t:5"]) == {"t": None}
    for text in ("", ":1", "t:", "t:x"):
        with pytest.raises(InvalidInput):
            parse_scope([text])
