"""`lograft topics`: what it makes of what a cluster tells."""

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from lograft.cli.topics import alter, describe_lines, groups_lines, list_lines
from lograft.client.admin import (
    Admin,
    NewTopic,
    PartitionDescription,
    PartitionReading,
    ReplicaState,
    TopicDescription,
    TopicGroup,
    TopicGroups,
    TopicListing,
    TopicPartition,
)
from lograft.client.administering.request_driver import RequestDriver
from lograft.model.types import ReplicationMode
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import play

ID = UUID(int=7)


def test_describe_shows_mode_reason_and_replicas() -> None:
    entering = PartitionDescription(
        0,
        1,
        7,
        (1, 2),
        (1,),
        mode=ReplicationMode.ENTERING,
        wished_mode=ReplicationMode.RAFT,
        mode_reason="2 replicas are slow",
        high_watermark=90,
        states=(ReplicaState(1, 0, 100, 0, 0, 1500), ReplicaState(2, -1, -1, -1, -1, -1)),
    )
    leaderless = PartitionDescription(1, -1, 7, (1, 2), (1,), eligible_leaders=(2,))
    topic = TopicDescription("t", ID, False, (entering, leaderless))
    assert list(describe_lines({"t": topic})) == [
        "t-0  entering  leader 1 in epoch 7  in sync 1  committed 90",
        "    on its way to raft: 2 replicas are slow",
        "    replica 1  0 to 100, lag 0  last fetch 0.0 s ago  caught up 1.5 s ago",
        "    replica 2  ?  last fetch never  caught up never",
        "t-1  isr  leader -1 in epoch 7  in sync 1  eligible 2",
        "    replicas 1,2",
    ]


def test_list() -> None:
    assert list_lines([TopicListing("orders", ID, False, 3)]) == [
        "TOPIC   PARTITIONS  ID",
        "orders  3           AAAAAAAAAAAAAAAAAAAABw",
    ]
    assert "lograft topics create" in list_lines([])[0]


def test_groups() -> None:
    reading = PartitionReading(0, 4, 10, 6, "m")
    found = {
        "b": TopicGroups(
            "b",
            "psb",
            None,
            (
                TopicGroup("billing", "classic", "Stable", "range", 1, (reading,)),
                TopicGroup(
                    "gone", "classic", "Empty", "", 0, (PartitionReading(0, None, 10, None, None),)
                ),
            ),
        ),
        "a": TopicGroups("a", "ptp", "billing", ()),
        "c": TopicGroups("c", "ptp", None, ()),
    }
    assert list(groups_lines(found)) == [
        "a  subscription mode ptp: only group billing",
        "No group has members or committed offsets in this topic.",
        "",
        "b  subscription mode psb: any number of groups",
        "",
        "GROUP    TYPE     STATE   MEMBERS  PARTITIONS  LAG  ASSIGNED BY",
        "billing  classic  Stable  1        1           6    range",
        "gone     classic  Empty   0        1           -    -",
        "",
        "c  subscription mode ptp: one group, the first that subscribes",
        "No group has members or committed offsets in this topic.",
    ]


@scenario(play, nodes=3)
async def test_the_groups_of_a_topic_take_one_request_of_a_kind_to_each_broker(
    cluster: VirtualCluster, admin: Admin, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    send = RequestDriver.send

    def counted(self: RequestDriver, node: Any, request: Any, *rest: Any, **options: Any) -> Any:
        asked[type(request).__name__] += 1
        return send(self, node, request, *rest, **options)

    await admin.create_topics([NewTopic("t", partitions=2, replicas=1)])
    groups = [f"g{number:02d}" for number in range(30)]
    for group in groups:
        await admin.alter_group_offsets(group, {TopicPartition("t", 0): 0})
    monkeypatch.setattr(RequestDriver, "send", counted)
    found = await admin.list_topic_groups(["t"])
    assert [one.group for one in found["t"].groups] == groups
    for name in ("ListGroups", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe"):
        assert 1 <= asked[f"{name}Request"] <= 3, asked


@scenario(play, nodes=3)
async def test_single_partitions_keep_the_others_exceptions(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", partitions=3, replicas=3)])

    async def settled() -> list[str]:
        async with asyncio.timeout(60):
            while True:
                topic = (await admin.describe_topics(["t"]))["t"]
                if all(one.mode is one.wished_mode for one in topic.partitions):
                    return [one.mode.text for one in topic.partitions]
                await asyncio.sleep(0.1)

    async def change(
        mode: str | None,
        *partitions: int,
        replicas: int | None = None,
        partition_count: int | None = None,
    ) -> list[str]:
        return await alter(
            admin,
            "t",
            partitions=partitions,
            mode=mode,
            replicas=replicas,
            partition_count=partition_count,
        )

    await change("raft", 0)
    said = await change("raft", 2, replicas=3)
    assert said == [
        "partitions 2 of t: replication by raft and 3 replicas from now on;"
        " `lograft topics describe` shows how far."
    ]
    assert await settled() == ["raft", "isr", "raft"]
    assert await change("isr", partition_count=4) == [
        "t: 4 partitions from now on.",
        "t: replication by isr from now on; `lograft topics describe` shows how far.",
    ]
    assert await settled() == ["isr"] * 4
