"""`lograft topics` in words: who holds what, in which mode, and how far each replica is."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from lograft.cli.output import count, numbers, table
from lograft.client.admin import (
    Admin,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from lograft.model.uuids import uuid_to_text

UNKNOWN: Final = "?"


def list_lines(topics: Sequence[TopicListing]) -> list[str]:
    if not topics:
        return ["There is no topic; `lograft topics create NAME` makes one."]
    return table(
        ["TOPIC", "PARTITIONS", "ID"],
        ((one.name, str(one.partitions), uuid_to_text(one.id)) for one in topics),
    )


def describe_lines(topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    for name, topic in sorted(topics.items()):
        for partition in topic.partitions:
            yield from _partition_lines(name, partition)


def _partition_lines(name: str, partition: PartitionDescription) -> Iterator[str]:
    line = (
        f"{name}-{partition.index}  {partition.mode.name}  leader {partition.leader} in epoch"
        f" {partition.leader_epoch}  in sync {numbers(partition.isr)}"
    )
    if partition.eligible_leaders:
        line += f"  eligible {numbers(partition.eligible_leaders)}"
    if partition.high_watermark >= 0:
        line += f"  committed {partition.high_watermark}"
    yield line
    if partition.mode_reason:
        yield f"    on its way to {partition.wished_mode.name}: {partition.mode_reason}"
    if not partition.states:
        yield f"    replicas {numbers(partition.replicas)}"
    for one in partition.states:
        has = UNKNOWN
        if one.end_offset >= 0:
            has = f"{one.start_offset} to {one.end_offset}, lag {one.lag}"
        yield (
            f"    replica {one.node}  {has}  last fetch {_age(one.last_fetch_age_ms)}"
            f"  had everything {_age(one.caught_up_age_ms)}"
        )


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s ago"


async def alter(
    admin: Admin,
    topic: str,
    *,
    partitions: Collection[int],
    mode: str | None,
    replicas: int | None,
    partition_count: int | None,
) -> list[str]:
    """What was changed, in sentences."""
    said = []
    if partition_count is not None:
        await admin.create_partitions({topic: partition_count})
        said.append(f"{topic}: {count(partition_count, 'partition')} from now on.")
    if mode is not None or replicas is not None:
        await admin.alter_replication(
            topic,
            mode="raft" if mode == "raft" else None if mode is None else "isr",
            replicas=replicas,
            partitions=partitions,
        )
        what = [f"replication by {mode}"] if mode is not None else []
        what += [count(replicas, "replica")] if replicas else []
        where = f"partitions {numbers(sorted(partitions))} of {topic}" if partitions else topic
        said.append(
            f"{where}: {' and '.join(what)} from now on; `lograft topics describe` shows how far."
        )
    return said
