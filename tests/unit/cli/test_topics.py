"""`lograft topics` without a network: what it asks for, and what it makes of the answers."""

import asyncio
from typing import Any

import pytest

from lograft.cli.topics import TopicsRefused, alter, describe
from lograft.model.seams import Address
from lograft.model.types import ReplicationMode
from lograft.wire.message import Message
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)

LEADER = Address("n1", 9092)


class Server:
    """Knows one topic with two partitions; the leader of the first one knows its replicas."""

    def __init__(self) -> None:
        self.altered: list[IncrementalAlterConfigsRequest] = []
        self.overrides = "5:raft"
        self.error_code = 0

    async def ask(
        self, message: Message, version: int, answer: Any, *, at: Address | None = None
    ) -> Any:
        match message:
            case DescribeTopicPartitionsRequest():
                return self._partitions(message, at)
            case MetadataRequest():
                broker = MetadataResponseBroker(node_id=1, host=LEADER.host, port=LEADER.port)
                return MetadataResponse(brokers=[broker])
            case DescribeConfigsRequest():
                config = DescribeConfigsResourceResult(
                    name="replication.mode.partitions", value=self.overrides
                )
                return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[config])])
            case IncrementalAlterConfigsRequest():
                self.altered.append(message)
                return IncrementalAlterConfigsResponse(
                    responses=[
                        AlterConfigsResourceResponse(
                            error_code=self.error_code, error_message="no", resource_name="t"
                        )
                    ]
                )
            case _:
                raise AssertionError(message)

    def _partitions(
        self, request: DescribeTopicPartitionsRequest, at: Address | None
    ) -> DescribeTopicPartitionsResponse:
        """In pages of one."""
        index = 0 if request.cursor is None else request.cursor.partition_index
        partition = DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=1 if index == 0 else -1,
            leader_epoch=7,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            replication_mode=ReplicationMode.entering if index == 0 else ReplicationMode.isr,
            wished_mode=ReplicationMode.raft,
            mode_reason="2 replicas are slow" if index == 0 else "",
        )
        if at == LEADER and index == 0:
            partition.high_watermark = 90
            partition.replica_log_start_offsets = [0, -1]
            partition.replica_end_offsets = [100, -1]
            partition.replica_last_fetch_ages_ms = [0, -1]
            partition.replica_last_caught_up_ages_ms = [1500, -1]
        response = DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(name="t", partitions=[partition])]
        )
        if index == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(
                topic_name="t", partition_index=1
            )
        return response


def test_describe_shows_mode_reason_and_replicas() -> None:
    lines = asyncio.run(describe(Server().ask, ["t"]))
    assert lines == [
        "t-0  entering  leader 1 in epoch 7  in sync 1  committed 90",
        "    on its way to raft: 2 replicas are slow",
        "    replica 1  0 to 100, lag 0  last fetch 0.0 s ago  had everything 1.5 s ago",
        "    replica 2  ?  last fetch never  had everything never",
        "t-1  isr  leader -1 in epoch 7  in sync 1",
        "    replicas 1,2",
    ]


def test_a_whole_topic_forgets_its_exceptions() -> None:
    server = Server()
    asyncio.run(alter(server.ask, "t", partitions=(), mode="raft", replication_factor=3))
    (request,) = server.altered
    configs = {each.name: each.value for each in request.resources[0].configs}
    assert configs == {"replication.mode": "raft", "replication.mode.partitions": None}
    assert (request.replication_factor, request.partitions) == (3, [])


def test_single_partitions_keep_the_others_exceptions() -> None:
    server = Server()
    said = asyncio.run(alter(server.ask, "t", partitions=[2], mode="isr", replication_factor=None))
    (request,) = server.altered
    (config,) = request.resources[0].configs
    assert config.value == "2:isr,5:raft"
    assert request.replication_factor == -1
    assert "partitions 2 of t" in said


def test_a_refusal_is_told() -> None:
    server = Server()
    server.error_code = 40
    with pytest.raises(TopicsRefused, match="topic t: no"):
        asyncio.run(alter(server.ask, "t", partitions=(), mode="raft", replication_factor=None))
