"""`lograft topics`: output, and changes of the replication."""

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
        target_mode=ReplicationMode.RAFT,
        mode_reason="2 replicas are slow",
        high_watermark=90,
        states=(ReplicaState(1, 0, 100, 0, 0, 1500), ReplicaState(2, -1, -1, -1, -1, -1)),
    )
    leaderless = PartitionDescription(1, -1, 7, (1, 2), (1,), eligible_leaders=(2,))
    topic = TopicDescription("t", ID, False, (entering, leaderless))
    assert list(describe_lines({"t": topic})) == [
        "t-0  entering  leader 1  epoch 7  in sync 1  high watermark 90",
        "    switching to raft: 2 replicas are slow",
        "    replica 1  0 to 100, lag 0  last fetch 0.0 s ago  caught up 1.5 s ago",
        "    replica 2  ?  last fetch never  caught up never",
        "t-1  isr  leader -1  epoch 7  in sync 1  eligible 2",
        "    replicas 1,2",
    ]


def test_list_shows_partitions_and_ids() -> None:
    assert list_lines([TopicListing("orders", ID, False, 3)]) == [
        "TOPIC   PARTITIONS  ID",
        "orders  3           AAAAAAAAAAAAAAAAAAAABw",
    ]
    assert "lograft topics create" in list_lines([])[0]


def test_groups_shows_the_subscription_mode_and_the_groups_of_each_topic() -> None:
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
        "GROUP    TYPE     STATE   MEMBERS  PARTITIONS  LAG  ASSIGNOR",
        "billing  classic  Stable  1        1           6    range",
        "gone     classic  Empty   0        1           -    -",
        "",
        "c  subscription mode ptp: one group, the first that subscribes",
        "No group has members or committed offsets in this topic.",
    ]


@scenario(play, nodes=3)
async def test_groups_sends_one_request_of_each_kind_per_broker(
    cluster: VirtualCluster, admin: Admin, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: Counter[str] = Counter()
    send = RequestDriver.send

    def counted(self: RequestDriver, node: Any, request: Any, *rest: Any, **options: Any) -> Any:
        requests[type(request).__name__] += 1
        return send(self, node, request, *rest, **options)

    await admin.create_topics([NewTopic("t", partitions=2, replicas=1)])
    groups = [f"g{number:02d}" for number in range(30)]
    for group in groups:
        await admin.alter_group_offsets(group, {TopicPartition("t", 0): 0})
    monkeypatch.setattr(RequestDriver, "send", counted)
    found = await admin.list_topic_groups(["t"])
    assert [group.group for group in found["t"].groups] == groups
    for name in ("ListGroups", "OffsetFetch", "DescribeGroups", "ConsumerGroupDescribe"):
        assert 1 <= requests[f"{name}Request"] <= 3, requests


@scenario(play, nodes=3)
async def test_altering_a_partition_does_not_affect_other_partitions(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("t", partitions=3, replicas=3)])

    async def wait_modes() -> list[str]:
        async with asyncio.timeout(60):
            while True:
                topic = (await admin.describe_topics(["t"]))["t"]
                if all(partition.mode is partition.target_mode for partition in topic.partitions):
                    return [partition.mode.text for partition in topic.partitions]
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
    assert await change("raft", 2, replicas=3) == [
        "Switching partitions 2 of t to replication mode raft and replication factor 3;"
        " `lograft topics describe t` shows the progress."
    ]
    assert await wait_modes() == ["raft", "isr", "raft"]
    assert await change("isr", partition_count=4) == [
        "Topic t now has 4 partitions.",
        "Switching t to replication mode isr; `lograft topics describe t` shows the progress.",
    ]
    assert await wait_modes() == ["isr"] * 4
