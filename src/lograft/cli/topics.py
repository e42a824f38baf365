"""`lograft topics`: how partitions are replicated, who has how much of them, and changing it."""

from collections.abc import Collection, Iterator
from typing import Final

from lograft.cli.asking import Asks
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.seams import Address
from lograft.model.types import ReplicationMode
from lograft.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from lograft.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from lograft.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse

TOPIC: Final = 2
SET: Final = 0
DELETE: Final = 1
MODE: Final = "replication.mode"
MODE_OF_PARTITIONS: Final = "replication.mode.partitions"
UNKNOWN: Final = "?"

Partition = DescribeTopicPartitionsResponsePartition


class TopicsRefused(LograftError):
    """The cluster does not do it, and says why."""


# ── describe ─────────────────────────────────────────────────────────────────────────────────


async def describe(ask: Asks, topics: Collection[str]) -> list[str]:
    """What any server knows, with what the leader of each partition knows of its replicas."""
    partitions = await _partitions(ask, topics, at=None)
    addresses = await _addresses(ask)
    by_leader: dict[int, set[str]] = {}
    for (name, _), partition in partitions.items():
        by_leader.setdefault(partition.leader_id, set()).add(name)
    for leader, names in by_leader.items():
        if leader in addresses:
            try:
                views = await _partitions(ask, sorted(names), at=addresses[leader])
            except LograftError:
                continue  # It has just gone: what the others know is shown.
            for key, view in views.items():
                if view.leader_id == leader and view.replica_end_offsets:
                    partitions[key] = view
    return list(_lines(partitions))


async def _partitions(
    ask: Asks, topics: Collection[str], *, at: Address | None
) -> dict[tuple[str, int], Partition]:
    found: dict[tuple[str, int], Partition] = {}
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics], cursor=cursor
        )
        response = await ask(request, 0, DescribeTopicPartitionsResponse, at=at)
        for topic in response.topics:
            if topic.error_code:
                raise TopicsRefused(f"topic {topic.name}: {ErrorCode(topic.error_code).name}")
            for partition in topic.partitions:
                found[topic.name or "", partition.partition_index] = partition
        if response.next_cursor is None:
            return found
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )


async def _addresses(ask: Asks) -> dict[int, Address]:
    response = await ask(MetadataRequest(topics=[]), 12, MetadataResponse)
    return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}


def _lines(partitions: dict[tuple[str, int], Partition]) -> Iterator[str]:
    for (name, index), partition in sorted(partitions.items()):
        mode = ReplicationMode(partition.replication_mode)
        line = (
            f"{name}-{index}  {mode.name}  leader {partition.leader_id} in epoch"
            f" {partition.leader_epoch}  in sync {_listed(partition.isr_nodes)}"
        )
        if partition.eligible_leader_replicas:
            line += f"  eligible {_listed(partition.eligible_leader_replicas)}"
        if partition.high_watermark >= 0:
            line += f"  committed {partition.high_watermark}"
        yield line
        if partition.mode_reason:
            wish = ReplicationMode(partition.wished_mode)
            yield f"    on its way to {wish.name}: {partition.mode_reason}"
        yield from _replica_lines(partition)


def _replica_lines(partition: Partition) -> Iterator[str]:
    if not partition.replica_end_offsets:
        yield f"    replicas {_listed(partition.replica_nodes)}"
        return
    end = max(partition.replica_end_offsets)
    for node, start, its_end, fetched_ms, caught_up_ms in zip(
        partition.replica_nodes,
        partition.replica_log_start_offsets,
        partition.replica_end_offsets,
        partition.replica_last_fetch_ages_ms,
        partition.replica_last_caught_up_ages_ms,
        strict=True,
    ):
        has = f"{start} to {its_end}, lag {end - its_end}" if its_end >= 0 else UNKNOWN
        yield (
            f"    replica {node}  {has}  last fetch {_age(fetched_ms)}"
            f"  had everything {_age(caught_up_ms)}"
        )


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s ago"


def _listed(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes)) or "nobody"


# ── alter ────────────────────────────────────────────────────────────────────────────────────


async def alter(
    ask: Asks,
    topic: str,
    *,
    partitions: Collection[int],
    mode: str | None,
    replication_factor: int | None,
) -> str:
    """Settings and number of replicas change in one step of the cluster's log."""
    configs = []
    if mode is not None and partitions:
        overrides = await _overrides(ask, topic)
        overrides |= dict.fromkeys(partitions, mode)
        words = ",".join(f"{index}:{word}" for index, word in sorted(overrides.items()))
        configs.append(AlterableConfig(name=MODE_OF_PARTITIONS, config_operation=SET, value=words))
    elif mode is not None:
        configs.append(AlterableConfig(name=MODE, config_operation=SET, value=mode))
        configs.append(
            AlterableConfig(name=MODE_OF_PARTITIONS, config_operation=DELETE, value=None)
        )
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)],
        replication_factor=replication_factor or -1,
        partitions=sorted(partitions),
    )
    response = await ask(request, 1, IncrementalAlterConfigsResponse)
    for answer in response.responses:
        if answer.error_code:
            said = answer.error_message or ErrorCode(answer.error_code).name
            raise TopicsRefused(f"topic {topic}: {said}")
    what = [f"replication by {mode}"] if mode is not None else []
    what += [f"{replication_factor} replicas"] if replication_factor else []
    where = f"partitions {_listed(sorted(partitions))} of {topic}" if partitions else topic
    return f"{where}: {' and '.join(what)} from now on; `lograft topics describe` shows how far."


async def _overrides(ask: Asks, topic: str) -> dict[int, str]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=topic, configuration_keys=[MODE_OF_PARTITIONS]
            )
        ]
    )
    response = await ask(request, 4, DescribeConfigsResponse)
    for result in response.results:
        if result.error_code:
            raise TopicsRefused(f"topic {topic}: {ErrorCode(result.error_code).name}")
        for config in result.configs:
            words = [word for word in (config.value or "").split(",") if word]
            return {int(word.split(":")[0]): word.split(":")[1] for word in words}
    return {}
