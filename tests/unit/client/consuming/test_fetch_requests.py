"""The requests of `SinglePartitionFetch` have the same bytes as those of the codec."""

from typing import cast
from uuid import UUID

import pytest

from lograft.client.broker_connection import BrokerConnection
from lograft.client.consuming.fetch_requests import SinglePartitionFetch, build_fetch_request
from lograft.client.consuming.fetch_sessions import FetchPlan, FetchSession, PartitionFetch
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.types import TopicPartition
from lograft.model.types import ZERO_UUID
from lograft.runtime.clock import SystemClock
from lograft.wire.client_connection import ClientConnection
from lograft.wire.headers import frame_request

PARTITION = TopicPartition("topic", 3)
ID = UUID(int=7)


def connect() -> BrokerConnection:
    return BrokerConnection(cast(ClientConnection, None), SystemClock(), client_id="me")


def plan_of(entry: PartitionFetch, partition: TopicPartition = PARTITION) -> FetchPlan:
    plan = FetchSession().plan({partition: entry})
    assert plan.is_sessionless
    return plan


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
@pytest.mark.parametrize("rack", ["", "here"])
def test_the_bytes_equal_those_of_the_codec(version: int, rack: str) -> None:
    settings = ConsumerSettings.read(
        {"bootstrap.servers": "h:1", "client.rack": rack, "isolation.level": "read_committed"}
    )
    topic_id = ID if version >= 13 else ZERO_UUID
    connection = connect()
    single = SinglePartitionFetch(
        settings, connection, plan_of(PartitionFetch(topic_id, 5, 2, 1_000)), version
    )
    for number, offset in ((1, 0), (2, 1 << 40), (0x7FFF_FFFF, (1 << 63) - 1)):
        plan = plan_of(PartitionFetch(topic_id, offset, 2, 1_000))
        assert single.matches(connection, plan)
        request = build_fetch_request(settings, plan)
        expected = frame_request(request, version, correlation_id=number, client_id="me")
        assert b"".join(single.encode(number, offset)) == expected


def test_a_plan_matches_if_only_its_offset_differs() -> None:
    settings = ConsumerSettings.read({"bootstrap.servers": "h:1"})
    connection = connect()
    plan = plan_of(PartitionFetch(ID, 5, 2, 1_000))
    single = SinglePartitionFetch(settings, connection, plan, 18)
    assert single.matches(connection, plan_of(PartitionFetch(ID, 6, 2, 1_000)))
    assert not single.matches(connect(), plan)
    assert not single.matches(connection, plan_of(PartitionFetch(ID, 5, 3, 1_000)))
    assert not single.matches(connection, plan_of(PartitionFetch(UUID(int=8), 5, 2, 1_000)))
    assert not single.matches(connection, plan_of(PartitionFetch(ID, 5, 2, 2_000)))
    assert not single.matches(
        connection, plan_of(PartitionFetch(ID, 5, 2, 1_000), TopicPartition("topic", 4))
    )


def test_the_request_that_closes_a_session_is_not_sessionless() -> None:
    session = FetchSession()
    entry = PartitionFetch(ID, 0, 0, 1)
    session.plan({PARTITION: entry, TopicPartition("topic", 4): entry})
    session.handle_response(99)
    assert not session.plan({PARTITION: entry}).is_sessionless
