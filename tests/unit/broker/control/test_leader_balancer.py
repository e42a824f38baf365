"""Automatic elections: their time, and that only the active controller holds them."""

import asyncio
from uuid import UUID

from lograft.broker.control.leader_balancer import LeaderBalancer
from lograft.metadata.types import ControllerResult
from lograft.simulation.machine import Life
from lograft.wire.message import Message
from lograft.wire.records.config_record import ConfigRecord
from lograft.wire.records.partition_record import PartitionRecord
from lograft.wire.records.register_broker_record import RegisterBrokerRecord
from lograft.wire.records.topic_record import TopicRecord
from tests.support.scenarios import scenario
from tests.unit.broker.quorum.metadata_nodes import ControlNode, node_config, run

T = UUID(int=7)


def cluster(*partitions: PartitionRecord) -> list[Message]:
    """Brokers 11 and 12, which send no heartbeats, with one topic."""
    brokers = [
        RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            incarnation_id=UUID(int=broker_id),
            fenced=False,
        )
        for broker_id in (11, 12)
    ]
    return [*brokers, TopicRecord(name="t", topic_id=T), *partitions]


def partition(index: int, leader: int, isr: list[int]) -> PartitionRecord:
    return PartitionRecord(
        topic_id=T, partition_id=index, replicas=[11, 12], leader=leader, isr=isr, leader_epoch=0
    )


def leaders(node: ControlNode) -> list[int]:
    return [state.leader for state in node.image.topics[T].partitions.values()]


async def started(life: Life, **settings: str) -> ControlNode:
    node = await ControlNode.start(life, node_config(**settings))
    records = cluster(partition(0, 12, [11, 12]), partition(1, -1, []))
    await node.controller.submit(lambda image: ControllerResult(tuple(records), None))
    balancer = LeaderBalancer(node.runtime, node.config, node.controller)
    node.runtime.spawn(balancer.run(), name="balancer")
    return node


@scenario(run)
async def test_leaders_go_home_after_a_while(life: Life, /) -> None:
    node = await started(life, leader_imbalance_check_interval_seconds="60")
    await asyncio.sleep(59)
    assert leaders(node) == [12, -1]
    await asyncio.sleep(2)
    assert leaders(node) == [11, -1]


@scenario(run)
async def test_leaders_stay_where_they_are_if_that_is_wanted(life: Life, /) -> None:
    node = await started(life, auto_leader_rebalance_enable="false")
    await asyncio.sleep(1000)
    assert leaders(node) == [12, -1]


@scenario(run)
async def test_unclean_elections_come_where_they_are_allowed(life: Life, /) -> None:
    node = await started(
        life,
        unclean_leader_election_interval_ms="5000",
        auto_leader_rebalance_enable="false",
    )
    await asyncio.sleep(6)
    assert leaders(node) == [12, -1]
    allowed = ConfigRecord(
        resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"
    )
    await node.controller.submit(lambda image: ControllerResult((allowed,), None))
    await asyncio.sleep(6)
    assert leaders(node) == [12, 11]


@scenario(run)
async def test_who_is_not_active_elects_nobody(life: Life, /) -> None:
    class Passive:
        is_active = False

        async def submit(self, decision: object) -> object:
            raise AssertionError(decision)

    balancer = LeaderBalancer(life.runtime, node_config(), Passive())  # type: ignore[arg-type]
    task = life.runtime.spawn(balancer.run(), name="balancer")
    await asyncio.sleep(3600)
    assert not task.done()
