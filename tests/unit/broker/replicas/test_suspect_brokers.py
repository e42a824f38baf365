"""Metadata about a broker that may have failed a moment ago is delayed, but not for long."""

import asyncio

from lograft.broker.replicas.suspect_brokers import (
    NOTICE_MS,
    QUIET_MS,
    SUSPICION_MS_MAX,
    SuspectBrokers,
)
from lograft.model.types import NodeId
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import SimulatedClock
from lograft.simulation.policies import policy_of
from lograft.simulation.trace import Streams

NODE = NodeId(2)


def make() -> tuple[SimulatedLoop, SuspectBrokers]:
    streams = Streams(1)
    loop = SimulatedLoop(streams=streams, policy=policy_of("fifo", streams.stream("schedule")))
    return loop, SuspectBrokers(SimulatedClock(loop))


def waited_ms(loop: SimulatedLoop, suspect_brokers: SuspectBrokers) -> int:
    began = loop.now_ns
    loop.run_until_complete(suspect_brokers.wait_resolved(lambda _node: True))
    return (loop.now_ns - began) // 1_000_000


def test_nobody_waits_without_a_doubt() -> None:
    loop, suspect_brokers = make()
    assert not suspect_brokers.has_suspect_leader(lambda _node: True)
    assert waited_ms(loop, suspect_brokers) == NOTICE_MS
    loop.close()


def test_only_who_leads_something_concerns() -> None:
    loop, suspect_brokers = make()
    suspect_brokers.on_lost(NODE)
    assert suspect_brokers.has_suspect_leader(lambda node: node == NODE)
    assert not suspect_brokers.has_suspect_leader(lambda _node: False)
    loop.close()


def test_a_doubt_ends_with_news_of_the_broker() -> None:
    loop, suspect_brokers = make()
    suspect_brokers.on_lost(NODE)
    loop.call_later(0.05, suspect_brokers.on_contact, NODE)
    assert waited_ms(loop, suspect_brokers) == 50
    loop.close()


def test_a_doubt_ends_when_the_image_gives_its_partitions_to_others() -> None:
    loop, suspect_brokers = make()
    leads = [True]

    def on_image() -> None:
        leads.clear()
        suspect_brokers.on_image()

    suspect_brokers.on_lost(NODE)
    loop.call_later(0.03, suspect_brokers.on_image)
    loop.call_later(0.1, on_image)
    loop.run_until_complete(suspect_brokers.wait_resolved(lambda _node: bool(leads)))
    assert loop.now_ns // 1_000_000 == 100
    loop.close()


def test_a_doubt_does_not_last_and_does_not_come_back_at_once() -> None:
    loop, suspect_brokers = make()
    suspect_brokers.on_lost(NODE)
    assert waited_ms(loop, suspect_brokers) == NOTICE_MS + SUSPICION_MS_MAX
    suspect_brokers.on_lost(NODE)
    assert waited_ms(loop, suspect_brokers) == NOTICE_MS
    loop.run_until_complete(asyncio.sleep(QUIET_MS / 1000))
    suspect_brokers.on_lost(NODE)
    assert waited_ms(loop, suspect_brokers) == NOTICE_MS + SUSPICION_MS_MAX
    loop.close()
