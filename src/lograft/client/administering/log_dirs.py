"""Requests about the log directories of brokers and moves of replicas between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lograft.client.administering.partitions import error_if_failed, group_indexes_by_topic
from lograft.client.administering.request_driver import Destinations, RequestDriver
from lograft.client.errors import ClientError, broker_error, raise_for
from lograft.client.network import Node
from lograft.model.types import TopicPartition
from lograft.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from lograft.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker.

    replica = TopicPartitionReplica("orders", 0, broker=1)
    assert str(replica) == "orders-0-1"
    """

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"


@dataclass(frozen=True, slots=True)
class DirectoryReplica:
    """The replica of a partition in one log directory.

    (directory,) = (await admin.describe_log_dirs())[1]
    replica: DirectoryReplica = directory.replicas[TopicPartition("orders", 0)]
    print(replica.bytes, replica.lag)
    """

    bytes: int
    #: Relative to the high watermark, or for a future replica to the current one.
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    path: str
    #: Set if the directory is offline.
    error: ClientError | None
    #: -1: unknown.
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, DirectoryReplica]


async def describe_log_dirs(
    driver: RequestDriver,
    brokers: Iterable[int] | None = None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
) -> dict[int, list[LogDirectory]]:
    topics = None if partitions is None else group_indexes_by_topic(partitions)

    async def send(
        node: Node | None, ids: Sequence[int]
    ) -> dict[int, list[LogDirectory] | ClientError]:
        (broker,) = ids
        response = await driver.send(
            node,
            DescribeLogDirsRequest(
                topics=None
                if topics is None
                else [
                    DescribableLogDirTopic(topic=name, partitions=indexes)
                    for name, indexes in topics.items()
                ]
            ),
            DescribeLogDirsResponse,
        )
        raise_for(response.error_code, f"log directories of broker {broker}")
        return {broker: list(map(_directory_of, response.results))}

    ids = await driver.list_broker_ids() if brokers is None else brokers
    return await driver.results_of(ids, driver.find_brokers, send)


async def alter_replica_log_dirs(
    driver: RequestDriver, directories: Mapping[TopicPartitionReplica, str]
) -> None:
    async def look_up(
        replicas: Sequence[TopicPartitionReplica],
    ) -> Destinations[TopicPartitionReplica]:
        brokers = await driver.find_brokers([replica.broker for replica in replicas])
        return {replica: brokers[replica.broker] for replica in replicas}

    async def send(
        node: Node | None, replicas: Sequence[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, ClientError | None]:
        response = await driver.send(
            node,
            _build_alter_request({replica: directories[replica] for replica in replicas}),
            AlterReplicaLogDirsResponse,
        )
        broker = replicas[0].broker
        outcomes = {}
        for topic in response.results:
            for result in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, result.partition_index, broker)
                what = f"moving replica {replica} to {directories[replica]}"
                outcomes[replica] = error_if_failed(result.error_code, what)
        return outcomes

    await driver.results_of(directories, look_up, send)


def _build_alter_request(
    directories: Mapping[TopicPartitionReplica, str],
) -> AlterReplicaLogDirsRequest:
    paths: dict[str, dict[str, list[int]]] = {}
    for (topic, partition, _broker), path in directories.items():
        paths.setdefault(path, {}).setdefault(topic, []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
            for path, topics in paths.items()
        ]
    )


def _directory_of(result: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        result.log_dir,
        broker_error(result.error_code, result.log_dir) if result.error_code else None,
        result.total_bytes,
        result.usable_bytes,
        {
            TopicPartition(topic.name, partition.partition_index): DirectoryReplica(
                partition.partition_size, partition.offset_lag, partition.is_future_key
            )
            for topic in result.topics
            for partition in topic.partitions
        },
    )
