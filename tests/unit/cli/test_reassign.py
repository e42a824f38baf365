"""`lograft reassign` against the controller's own decisions, without a network."""

import asyncio
import json
from collections.abc import Callable
from uuid import UUID

import pytest

from lograft.cli.asking import R
from lograft.cli.reassign import (
    ReassignmentRefused,
    begin,
    describe_plan,
    describe_progress,
    make_plan,
    plan_as_json,
    read_ongoing,
    wanted_from_json,
)
from lograft.metadata.image import MetadataImage
from lograft.metadata.reassignment import alter_reassignments, list_reassignments
from lograft.metadata.topics import create_topics
from lograft.model.errors import InvalidInput
from lograft.model.seams import Address
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from lograft.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lograft.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lograft.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from lograft.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.metadata.conftest import append, cluster, make_config, new_id

__all__ = ["cluster", "new_id"]
CONFIG = make_config()


class Answers:
    """A cluster that decides, and in which nothing is ever copied."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        #: Bytes of every replica by broker; one that is not named has not begun.
        self.sizes: dict[int, int] = {}

    async def __call__(
        self, message: Message, version: int, answer: type[R], *, at: Address | None = None
    ) -> R:
        response = self._answer(message, at)
        assert isinstance(response, answer)
        return response

    def _answer(self, message: Message, at: Address | None) -> Message:
        match message:
            case DescribeClusterRequest():
                return DescribeClusterResponse(
                    brokers=[
                        DescribeClusterBroker(broker_id=b, host="h", port=b, rack=broker.rack)
                        for b, broker in self.image.brokers.items()
                    ]
                )
            case MetadataRequest():
                return self._metadata()
            case ListPartitionReassignmentsRequest():
                return list_reassignments(self.image, message)
            case AlterPartitionReassignmentsRequest():
                outcome = alter_reassignments(self.image, message, config=CONFIG)
                append(self.image, outcome.records)
                return outcome.reply
            case DescribeLogDirsRequest():
                assert at is not None
                return self._log_dirs(message, at.port)
            case _:
                raise AssertionError(message)

    def _metadata(self) -> MetadataResponse:
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    name=topic.name,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index, replica_nodes=list(state.replicas)
                        )
                        for index, state in topic.partitions.items()
                    ],
                )
                for topic in self.image.topics.values()
            ]
        )

    def _log_dirs(self, message: DescribeLogDirsRequest, broker_id: int) -> DescribeLogDirsResponse:
        if broker_id not in self.sizes:
            return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="d")])
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=index, partition_size=self.sizes[broker_id]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in message.topics or ()
        ]
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="d", topics=topics)])


@pytest.fixture
def answers(cluster: Callable[..., MetadataImage], new_id: Callable[[], UUID]) -> Answers:
    """Three brokers share a topic of 8 partitions with 2 replicas each; a fourth has joined."""
    image = cluster(1, 2, 3)
    topic = CreatableTopic(name="t", num_partitions=8, replication_factor=2)
    request = CreateTopicsRequest(topics=[topic])
    append(image, create_topics(image, request, config=CONFIG, new_id=new_id).records)
    joined = cluster(4)
    image.brokers[4] = joined.brokers[4]
    return Answers(image)


def test_a_plan_is_shown_applied_followed_and_cancelled(answers: Answers) -> None:
    async def work() -> None:
        load, moves = await make_plan(answers)
        assert sum(move.copies for move in moves) == 4
        shown = describe_plan(load, moves)
        assert "4 of 16 replicas are copied, in" in "\n".join(shown)
        assert shown[-1].split() == ["4", "0", "->", "4", "0", "->", "2"]
        wanted = wanted_from_json(plan_as_json(moves))
        assert json.loads(plan_as_json(moves))["version"] == 1
        assert await begin(answers, wanted) == len(moves)

        # What is under way counts as done: there is nothing more to plan.
        load, again = await make_plan(answers)
        assert again == []
        assert describe_plan(load, again) == [
            "Nothing to do: the brokers share the load as evenly as they can."
        ]
        assert all("4: not begun" in line for line in await describe_progress(answers))
        answers.sizes = {1: 1000, 2: 1000, 3: 1000, 4: 250}
        lines = await describe_progress(answers)
        assert len(lines) == 4
        assert all("copies to 4: 25 %, removes " in line for line in lines)

        ongoing = await read_ongoing(answers)
        assert await begin(answers, dict.fromkeys(ongoing)) == 4
        assert await describe_progress(answers) == ["No partition is being reassigned."]

    asyncio.run(work())


def test_what_the_cluster_refuses_is_said(answers: Answers) -> None:
    async def work() -> None:
        with pytest.raises(ReassignmentRefused, match="1 of 1 partitions were not taken; t-99: "):
            await begin(answers, {("t", 99): [1]})
        with pytest.raises(InvalidInput, match="broker 9 is not registered"):
            await make_plan(answers, brokers=[1, 9])
        with pytest.raises(InvalidInput, match="no topic u"):
            await make_plan(answers, topics=["u"])

    asyncio.run(work())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": [{"topic": "t"}]}'])
def test_files_that_are_no_plan(text: str) -> None:
    with pytest.raises(InvalidInput, match="no reassignment"):
        wanted_from_json(text)
