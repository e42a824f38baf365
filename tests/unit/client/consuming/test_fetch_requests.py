"""Fetches of single partitions have the bytes that the codec would write."""

from typing import cast
from uuid import UUID

import pytest

from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.fetch_requests import SinglePartitionFetch, fetch_request
from lograft.client.consuming.fetch_sessions import FetchSession, Plan, Wanted
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.types import TopicPartition
from lograft.model.types import ZERO_UUID
from lograft.runtime.clock import SystemClock
from lograft.wire.client_connection import ClientConnection
from lograft.wire.headers import frame_request

PLACE = TopicPartition("topic", 3)
ID = UUID(int=7)


def link() -> BrokerConnection:
    return BrokerConnection(cast(ClientConnection, None), SystemClock(), client_id="me")


def plan_of(wanted: Wanted, place: TopicPartition = PLACE) -> Plan:
    plan = FetchSession().plan({place: wanted})
    assert plan.is_lone
    return plan


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("rack", ["", "here"])
def test_the_bytes_are_those_of_the_codec(version: int, rack: str) -> None:
    settings = ConsumerSettings.read(
        {"bootstrap.servers": "h:1", "client.rack": rack, "isolation.level": "read_committed"}
    )
    topic_id = ID if version >= 13 else ZERO_UUID
    here = link()
    lone = SinglePartitionFetch(settings, here, plan_of(Wanted(topic_id, 5, 2, 1_000)), version)
    for number, offset in ((1, 0), (2, 1 << 40), (0x7FFF_FFFF, (1 << 63) - 1)):
        plan = plan_of(Wanted(topic_id, offset, 2, 1_000))
        assert lone.means(here, plan)
        request = fetch_request(settings, plan)
        whole = frame_request(request, version, correlation_id=number, client_id="me")
        assert b"".join(lone.parts(number, offset)) == whole


def test_another_meaning_is_another_request() -> None:
    settings = ConsumerSettings.read({"bootstrap.servers": "h:1"})
    here = link()
    lone = SinglePartitionFetch(settings, here, plan_of(Wanted(ID, 5, 2, 1_000)), 18)
    assert lone.means(here, plan_of(Wanted(ID, 6, 2, 1_000)))
    assert not lone.means(link(), plan_of(Wanted(ID, 5, 2, 1_000)))
    assert not lone.means(here, plan_of(Wanted(ID, 5, 3, 1_000)))
    assert not lone.means(here, plan_of(Wanted(UUID(int=8), 5, 2, 1_000)))
    assert not lone.means(here, plan_of(Wanted(ID, 5, 2, 2_000)))
    assert not lone.means(here, plan_of(Wanted(ID, 5, 2, 1_000), TopicPartition("topic", 4)))


def test_a_session_that_is_to_end_is_named() -> None:
    session = FetchSession()
    session.plan({PLACE: Wanted(ID, 0, 0, 1), TopicPartition("topic", 4): Wanted(ID, 0, 0, 1)})
    session.answered(99)
    assert not session.plan({PLACE: Wanted(ID, 0, 0, 1)}).is_lone
