"""Metadata responses that a real cluster rarely returns, from a scripted broker."""

import asyncio
from collections.abc import Sequence
from typing import Any

from lograft.client.client_settings import ClientSettings
from lograft.client.metadata_updates import Metadata
from lograft.client.network import Broker, Network
from lograft.model.errors import ErrorCode
from lograft.simulation.cluster import SimulatedCluster
from lograft.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.scenarios import scenario


class Scripted(Network):
    """Returns the next response for each request, and repeats the last one."""

    def __init__(self, *responses: MetadataResponse) -> None:
        self.responses = list(responses)
        self.request_count = 0
        #: The topics that each request named.
        self.requested: list[list[str] | None] = []
        self.known_ids: list[int] = []

    async def request(self, request: Any, *args: Any, **more: Any) -> Any:
        self.request_count += 1
        topics = request(12).topics
        self.requested.append(None if topics is None else [topic.name for topic in topics])
        return self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]

    def update_brokers(self, brokers: Sequence[Broker]) -> None:
        self.known_ids = [broker.id for broker in brokers]

    def rebootstrap(self) -> None:
        self.known_ids = []

    @property
    def brokers(self) -> dict[int, Broker]:
        return {}


def described(leader: int, epoch: int, topic: str = "t") -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=leader, host=f"n{leader}", port=9092)],
        topics=[
            MetadataResponseTopic(
                name=topic,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=0, leader_id=leader, leader_epoch=epoch
                    )
                ],
            )
        ],
    )


def failed(topic: str, code: ErrorCode) -> MetadataResponse:
    response = described(1, 0, topic)
    response.topics[0].error_code = code
    return response


def play(scenario: Any, *responses: MetadataResponse) -> None:
    network = Scripted(*responses)
    cluster = SimulatedCluster(nodes=1)

    async def main() -> None:
        settings = ClientSettings.read({"bootstrap.servers": "n1:9092"})
        metadata = Metadata(cluster.client_runtime(), network, settings, creates_topics=False)
        metadata.start()
        await scenario(metadata, network)
        metadata.close()

    cluster.run(main())


@scenario(play, MetadataResponse(), MetadataResponse(), described(1, 0))
async def test_response_without_brokers_is_retried(
    metadata: Metadata, network: Scripted, /
) -> None:
    topic = await metadata.wait_topic("t", deadline_ms=1 << 40)
    assert topic.partitions[0].leader == 1
    assert network.request_count == 3
    assert network.known_ids == [1]


@scenario(play, described(1, 7), described(2, 6), described(3, 8))
async def test_older_leader_epoch_is_ignored(metadata: Metadata, network: Scripted, /) -> None:
    seen = []
    metadata.on_update(lambda: seen.append(metadata.cache.topics["t"].partitions[0].leader))
    await metadata.wait_topic("t", deadline_ms=1 << 40)
    while len(seen) < 3:
        metadata.request_update()
        await asyncio.sleep(1)
    assert seen[:3] == [1, 1, 3]


@scenario(play, described(1, 0))
async def test_updates_requested_after_every_update_are_rate_limited(
    metadata: Metadata, network: Scripted, /
) -> None:
    # Like a producer whose partition has no leader: an iteration of the loop after each update.
    def again() -> None:
        asyncio.get_running_loop().call_soon(metadata.request_update)

    metadata.on_update(again)
    await metadata.wait_topic("t", deadline_ms=1 << 40)
    await asyncio.sleep(10)
    assert 90 < network.request_count < 120  # every retry.backoff.ms, and a few immediately
    before = network.request_count
    await asyncio.sleep(0.05)
    metadata.use("new")
    await asyncio.sleep(10)
    assert 90 < network.request_count - before < 120


FAR_MS = 1 << 40


@scenario(play, described(1, 0), described(1, 0, "u"), described(1, 0, "v"))
async def test_new_topic_causes_partial_update(metadata: Metadata, network: Scripted, /) -> None:
    for name in "tuv":
        await metadata.wait_topic(name, deadline_ms=FAR_MS)
    assert network.requested == [["t"], ["u"], ["v"]]
    assert sorted(metadata.cache.topics) == ["t", "u", "v"]
    metadata.request_update()
    await metadata.wait_update(FAR_MS, "")
    assert network.requested[3:] == [["t", "u", "v"]]


def test_new_topic_with_error_causes_full_update() -> None:
    missing = failed("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def scenario(metadata: Metadata, network: Scripted) -> None:
        await metadata.wait_topic("t", deadline_ms=FAR_MS)
        await metadata.wait_topic("u", deadline_ms=FAR_MS)
        assert network.requested == [["t"], ["u"], ["t", "u"]]

    play(scenario, described(1, 0), missing, described(1, 0, "u"))


@scenario(play, described(1, 0), MetadataResponse(), described(1, 0, "u"))
async def test_failed_partial_update_is_retried(metadata: Metadata, network: Scripted, /) -> None:
    await metadata.wait_topic("t", deadline_ms=FAR_MS)
    await metadata.wait_topic("u", deadline_ms=FAR_MS)
    assert network.requested == [["t"], ["u"], ["u"]]


@scenario(play, described(1, 0))
async def test_partial_updates_do_not_postpone_full_update(
    metadata: Metadata, network: Scripted, /
) -> None:
    await metadata.wait_topic("t", deadline_ms=FAR_MS)
    for number in range(40):  # metadata.max.age.ms is five minutes
        await asyncio.sleep(10)
        metadata.use(f"new {number}".replace(" ", "-"))
    full = [names for names in network.requested if names is not None and "t" in names]
    assert [len(names) for names in full] == [1, 31]
