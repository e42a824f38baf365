"""Requests with a single batch are identical to those that the codec encodes."""

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

    def update_metadata(self, topic_id: UUID) -> None:
        partitions = [MetadataResponsePartition(partition_index=index) for index in range(2)]
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)],
            topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=partitions)],
        )
        assert self.metadata.cache.update(response, covers_all=False)


def connection_of(newest: int) -> BrokerConnection:
    connection = BrokerConnection(cast(ClientConnection, None), SystemClock(), client_id="me")
    connection.versions = {PRODUCE_KEY: VersionRange(3, newest)}
    return connection


def requests_of(**settings: Any) -> tuple[StandInCore, ProduceRequests]:
    core = StandInCore(ProducerSettings.read({"bootstrap.servers": "h:1"}, **settings))
    core.update_metadata(UUID(int=7))
    return core, ProduceRequests(cast("ClientCore[ProducerSettings]", core))


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("size", [0, 61, 126, 127, 16_382, 16_383, 3_000_000])
@pytest.mark.parametrize("settings", [{}, {"acks": "1", "enable_idempotence": False}])
def test_bytes_equal_those_of_the_codec(version: int, size: int, settings: dict[str, Any]) -> None:
    _, requests = requests_of(request_timeout_ms=1_234, **settings)
    connection = connection_of(version)
    for number in (1, 0x7FFF_FFFF):
        records = bytes([number & 0xFF]) * size
        single = requests.single_batch("t", 1, connection, None)
        assert single is not None
        assert single.version == version
        request = requests.build([Content("t", 1, records)], version)
        whole = frame_request(request, version, correlation_id=number, client_id="me")
        assert b"".join(single.pack(number, records)) == whole


def test_cached_request_is_rebuilt_when_its_inputs_change() -> None:
    core, requests = requests_of()
    connection = connection_of(13)
    first = requests.single_batch("t", 0, connection, None)
    assert first is not None
    assert requests.single_batch("t", 0, connection, None) is first
    assert requests.single_batch("t", 1, connection, None) is not first
    older = requests.single_batch("t", 0, connection, 12)
    assert older is not None
    assert older.version == 12
    core.update_metadata(UUID(int=8))
    another = requests.single_batch("t", 0, connection, None)
    assert another is not None
    assert UUID(int=8).bytes in b"".join(another.pack(1, b""))
    elsewhere = requests.single_batch("t", 0, connection_of(9), None)
    assert elsewhere is not None
    assert elsewhere.version == 9


def test_no_single_batch_request_for_old_broker() -> None:
    _, requests = requests_of()
    assert requests.single_batch("t", 0, connection_of(8), None) is None
