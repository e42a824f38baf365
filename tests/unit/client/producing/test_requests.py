"""Requests of single batches have the bytes that the codec would write."""

from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from lograft.client.broker_connection import BrokerConnection, VersionRange
from lograft.client.core import ClientCore
from lograft.client.metadata import MetadataCache
from lograft.client.producing.requests import Content, ProduceRequests
from lograft.client.producing.settings import ProducerSettings
from lograft.runtime.clock import SystemClock
from lograft.wire.apis import PRODUCE_KEY
from lograft.wire.client_connection import ClientConnection
from lograft.wire.headers import frame_request
from lograft.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass
class StandInMetadata:
    cache: MetadataCache = field(default_factory=MetadataCache)


@dataclass
class StandInCore:
    settings: ProducerSettings
    metadata: StandInMetadata = field(default_factory=StandInMetadata)

    def learn(self, topic_id: UUID) -> None:
        partitions = [MetadataResponsePartition(partition_index=index) for index in range(2)]
        answer = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
            topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=partitions)],
        )
        assert self.metadata.cache.update(answer, covers_all=False)


def link_of(newest: int) -> BrokerConnection:
    link = BrokerConnection(cast(ClientConnection, None), SystemClock(), client_id="me")
    link.versions = {PRODUCE_KEY: VersionRange(3, newest)}
    return link


def requests_of(**settings: Any) -> tuple[StandInCore, ProduceRequests]:
    core = StandInCore(ProducerSettings.read({"bootstrap.servers": "h:1"}, **settings))
    core.learn(UUID(int=7))
    return core, ProduceRequests(cast("ClientCore[ProducerSettings]", core))


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("size", [0, 61, 126, 127, 16_382, 16_383, 3_000_000])
@pytest.mark.parametrize("settings", [{}, {"acks": "1", "enable_idempotence": False}])
def test_the_bytes_are_those_of_the_codec(
    version: int, size: int, settings: dict[str, Any]
) -> None:
    _, requests = requests_of(request_timeout_ms=1_234, **settings)
    link = link_of(version)
    for number in (1, 0x7FFF_FFFF):
        records = bytes([number & 0xFF]) * size
        lone = requests.lone("t", 1, link, None)
        assert lone is not None
        assert lone.version == version
        request = requests.of([Content("t", 1, records)], version)
        whole = frame_request(request, version, correlation_id=number, client_id="me")
        assert b"".join(lone.parts(number, records)) == whole


def test_what_the_bytes_depend_on_makes_them_anew() -> None:
    core, requests = requests_of()
    link = link_of(13)
    first = requests.lone("t", 0, link, None)
    assert first is not None
    assert requests.lone("t", 0, link, None) is first
    assert requests.lone("t", 1, link, None) is not first
    older = requests.lone("t", 0, link, 12)
    assert older is not None
    assert older.version == 12
    core.learn(UUID(int=8))
    another = requests.lone("t", 0, link, None)
    assert another is not None
    assert UUID(int=8).bytes in b"".join(another.parts(1, b""))
    elsewhere = requests.lone("t", 0, link_of(9), None)
    assert elsewhere is not None
    assert elsewhere.version == 9


def test_an_old_broker_gets_none() -> None:
    _, requests = requests_of()
    assert requests.lone("t", 0, link_of(8), None) is None
