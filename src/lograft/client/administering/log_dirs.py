"""The log dirs of brokers: what they hold, and moves of replicas between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lograft.client.administering.partitions import failure
from lograft.client.administering.request_driver import Destinations, RequestDriver
from lograft.client.arguments import as_iterable, partition_of
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
    """What one log directory holds of one partition.

    (directory,) = (await admin.describe_log_dirs())[1]
    held: DirectoryReplica = directory.replicas[TopicPartition("orders", 0)]
    print(held.bytes, held.lag)
    """

    bytes: int
    #: Behind the high watermark, or of a future replica behind the present one.
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    path: str
    #: Why it cannot be used.
    error: ClientError | None
    #: -1: not known.
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, DirectoryReplica]


async def describe_log_dirs(
    driver: RequestDriver,
    brokers: Iterable[int] | None = None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
) -> dict[int, list[LogDirectory]]:
    topics = None if partitions is None else _by_topic(partitions)

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
        return {broker: [_directory(one) for one in response.results]}

    asked = await driver.list_broker_ids() if brokers is None else brokers
    return await driver.results_of(asked, driver.find_brokers, send)


async def alter_replica_log_dirs(
    driver: RequestDriver, directories: Mapping[TopicPartitionReplica, str]
) -> None:
    async def locate(
        replicas: Sequence[TopicPartitionReplica],
    ) -> Destinations[TopicPartitionReplica]:
        places = await driver.find_brokers([one.broker for one in replicas])
        return {one: places[one.broker] for one in replicas}

    async def send(
        node: Node | None, replicas: Sequence[TopicPartitionReplica]
    ) -> dict[TopicPartitionReplica, ClientError | None]:
        response = await driver.send(
            node,
            _alter_request({one: directories[one] for one in replicas}),
            AlterReplicaLogDirsResponse,
        )
        broker = replicas[0].broker
        found = {}
        for topic in response.results:
            for one in topic.partitions:
                replica = TopicPartitionReplica(topic.topic_name, one.partition_index, broker)
                what = f"moving replica {replica} to {directories[replica]}"
                found[replica] = failure(one.error_code, what)
        return found

    await driver.results_of(directories, locate, send)


def _alter_request(
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


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for one in map(partition_of, as_iterable(partitions)):
        topics.setdefault(one.topic, []).append(one.partition)
    return topics


def _directory(told: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        told.log_dir,
        broker_error(told.error_code, told.log_dir) if told.error_code else None,
        told.total_bytes,
        told.usable_bytes,
        {
            TopicPartition(topic.name, one.partition_index): DirectoryReplica(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in told.topics
            for one in topic.partitions
        },
    )
