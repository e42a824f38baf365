"""Answers about metadata that a whole cluster seldom gives, from a broker that reads a script."""

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
    """Answers each question with the next answer, the last one for ever."""

    def __init__(self, *answers: MetadataResponse) -> None:
        self.answers = list(answers)
        self.questions = 0
        #: The topics that each request named.
        self.asked: list[list[str] | None] = []
        self.learnt: list[int] = []

    async def ask(self, request: Any, *args: Any, **more: Any) -> Any:
        self.questions += 1
        topics = request(12).topics
        self.asked.append(None if topics is None else [topic.name for topic in topics])
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def learn(self, brokers: Sequence[Broker]) -> None:
        self.learnt = [broker.id for broker in brokers]

    def forget_brokers(self) -> None:
        self.learnt = []

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
    answer = described(1, 0, topic)
    answer.topics[0].error_code = code
    return answer


def play(scenario: Any, *answers: MetadataResponse) -> None:
    network = Scripted(*answers)
    cluster = SimulatedCluster(nodes=1)

    async def main() -> None:
        settings = ClientSettings.read({"bootstrap.servers": "n1:9092"})
        metadata = Metadata(cluster.client_runtime(), network, settings, creates_topics=False)
        metadata.start()
        await scenario(metadata, network)
        metadata.close()

    cluster.run(main())


@scenario(play, MetadataResponse(), MetadataResponse(), described(1, 0))
async def test_an_empty_list_of_brokers_is_asked_for_again(
    metadata: Metadata, network: Scripted, /
) -> None:
    topic = await metadata.topic("t", deadline_ms=1 << 40)
    assert topic.partitions[0].leader == 1
    assert network.questions == 3
    assert network.learnt == [1]


@scenario(play, described(1, 7), described(2, 6), described(3, 8))
async def test_an_older_epoch_changes_nothing(metadata: Metadata, network: Scripted, /) -> None:
    seen = []
    metadata.on_update(lambda: seen.append(metadata.cache.topics["t"].partitions[0].leader))
    await metadata.topic("t", deadline_ms=1 << 40)
    while len(seen) < 3:
        metadata.is_old()
        await asyncio.sleep(1)
    assert seen[:3] == [1, 1, 3]


@scenario(play, described(1, 0))
async def test_who_is_never_content_does_not_ask_without_a_pause(
    metadata: Metadata, network: Scripted, /
) -> None:
    # As a producer does whose partition has no leader: a turn of the loop after each update.
    def again() -> None:
        asyncio.get_running_loop().call_soon(metadata.is_old)

    metadata.on_update(again)
    await metadata.topic("t", deadline_ms=1 << 40)
    await asyncio.sleep(10)
    assert 90 < network.questions < 120  # every retry.backoff.ms, and a few at once
    before = network.questions
    await asyncio.sleep(0.05)
    metadata.use("new")
    await asyncio.sleep(10)
    assert 90 < network.questions - before < 120


FAR_MS = 1 << 40


@scenario(play, described(1, 0), described(1, 0, "u"), described(1, 0, "v"))
async def test_a_new_topic_needs_a_partial_update_only(
    metadata: Metadata, network: Scripted, /
) -> None:
    for name in "tuv":
        await metadata.topic(name, deadline_ms=FAR_MS)
    assert network.asked == [["t"], ["u"], ["v"]]
    assert sorted(metadata.cache.topics) == ["t", "u", "v"]
    metadata.is_old()
    await metadata.next_update(FAR_MS, "")
    assert network.asked[3:] == [["t", "u", "v"]]


def test_a_new_topic_with_an_error_needs_a_full_update() -> None:
    missing = failed("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def scenario(metadata: Metadata, network: Scripted) -> None:
        await metadata.topic("t", deadline_ms=FAR_MS)
        await metadata.topic("u", deadline_ms=FAR_MS)
        assert network.asked == [["t"], ["u"], ["t", "u"]]

    play(scenario, described(1, 0), missing, described(1, 0, "u"))


@scenario(play, described(1, 0), MetadataResponse(), described(1, 0, "u"))
async def test_a_partial_update_that_fails_is_tried_again(
    metadata: Metadata, network: Scripted, /
) -> None:
    await metadata.topic("t", deadline_ms=FAR_MS)
    await metadata.topic("u", deadline_ms=FAR_MS)
    assert network.asked == [["t"], ["u"], ["u"]]


@scenario(play, described(1, 0))
async def test_partial_updates_do_not_put_off_the_full_one(
    metadata: Metadata, network: Scripted, /
) -> None:
    await metadata.topic("t", deadline_ms=FAR_MS)
    for number in range(40):  # metadata.max.age.ms is five minutes
        await asyncio.sleep(10)
        metadata.use(f"new {number}".replace(" ", "-"))
    full = [asked for asked in network.asked if asked is not None and "t" in asked]
    assert [len(asked) for asked in full] == [1, 31]
