"""Output of `lograft topics`; changes replication and elects chosen leaders."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from lograft.cli.output import NOTHING, count, number, numbers, table
from lograft.client.admin import (
    Admin,
    PartitionDescription,
    TopicDescription,
    TopicGroups,
    TopicListing,
    TopicPartition,
)
from lograft.client.errors import BrokerError, ClientError, SomeFailed
from lograft.model.errors import ErrorCode
from lograft.model.types import ReplicationMode
from lograft.model.uuids import uuid_to_text

UNKNOWN: Final = "?"
POINT_TO_POINT: Final = "ptp"
ELECTION_ATTEMPTS_MAX: Final = 5


def list_lines(topics: Sequence[TopicListing]) -> list[str]:
    if not topics:
        return ["No topics; create one with `lograft topics create NAME`."]
    return table(
        ["TOPIC", "PARTITIONS", "ID"],
        ((topic.name, str(topic.partitions), uuid_to_text(topic.id)) for topic in topics),
    )


def describe_lines(topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    for name, topic in sorted(topics.items()):
        for partition in topic.partitions:
            yield from _partition_lines(name, partition)


def _partition_lines(name: str, partition: PartitionDescription) -> Iterator[str]:
    line = (
        f"{name}-{partition.index}  {partition.mode.text}  leader {partition.leader}  epoch"
        f" {partition.leader_epoch}  in sync {numbers(partition.isr)}"
    )
    if partition.eligible_leaders:
        line += f"  eligible {numbers(partition.eligible_leaders)}"
    if partition.high_watermark >= 0:
        line += f"  high watermark {partition.high_watermark}"
    yield line
    if partition.mode_reason:
        yield f"    switching to {partition.target_mode.text}: {partition.mode_reason}"
    if not partition.states:
        yield f"    replicas {numbers(partition.replicas)}"
    for replica in partition.states:
        offsets = UNKNOWN
        if replica.end_offset >= 0:
            offsets = f"{replica.start_offset} to {replica.end_offset}, lag {replica.lag}"
        yield (
            f"    replica {replica.node}  {offsets}"
            f"  last fetch {_format_age(replica.last_fetch_age_ms)}"
            f"  caught up {_format_age(replica.caught_up_age_ms)}"
        )


def _format_age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s ago"


def groups_lines(topics: Mapping[str, TopicGroups]) -> Iterator[str]:
    for index, (name, topic) in enumerate(sorted(topics.items())):
        if index:
            yield ""
        yield f"{name}  {_describe_subscription(topic)}"
        if not topic.groups:
            yield "No group has members or committed offsets in this topic."
            continue
        yield ""
        yield from table(
            ["GROUP", "TYPE", "STATE", "MEMBERS", "PARTITIONS", "LAG", "ASSIGNOR"],
            (
                (
                    group.group,
                    group.type,
                    group.state,
                    str(group.members),
                    str(len(group.partitions)),
                    number(group.lag),
                    (group.assignor or NOTHING) if group.members else NOTHING,
                )
                for group in topic.groups
            ),
        )


def _describe_subscription(topic: TopicGroups) -> str:
    if topic.mode != POINT_TO_POINT:
        return f"subscription mode {topic.mode}: any number of groups"
    if topic.owner is None:
        return f"subscription mode {topic.mode}: one group, the first that subscribes"
    return f"subscription mode {topic.mode}: only group {topic.owner}"


async def choose_leader(
    admin: Admin, partitions: Sequence[TopicPartition], leader: int
) -> dict[TopicPartition, bool]:
    """Makes a broker the leader; returns whether each partition got a new leader. In raft mode
    another voter may win the election after the leader resigns, so partitions that can still
    succeed are retried."""
    outcomes: dict[TopicPartition, bool] = {}
    pending = list(partitions)
    attempts = 0
    while True:
        attempts += 1
        try:
            found = await admin.elect_leaders(partitions=pending, leader=leader)
        except SomeFailed as error:
            failed, done = error.failed, error.done
        except BrokerError as error:
            failed, done = {pending[0]: error}, {}
        else:
            return outcomes | {partition: attempts > 1 or new for partition, new in found.items()}
        outcomes |= {partition: attempts > 1 or new for partition, new in done.items()}
        if attempts == ELECTION_ATTEMPTS_MAX or not await _may_succeed(admin, failed, leader):
            raise SomeFailed(outcomes, failed) if outcomes else next(iter(failed.values()))
        pending = list(failed)


async def _may_succeed(
    admin: Admin, failed: Mapping[TopicPartition, ClientError], leader: int
) -> bool:
    topics = await admin.describe_topics({partition.topic for partition in failed})
    for (topic, index), error in failed.items():
        partition = topics[topic].partitions[index]
        may_succeed = (
            isinstance(error, BrokerError)
            and error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            and partition.mode is ReplicationMode.RAFT
            and leader in partition.isr
        )
        if not may_succeed:
            return False
    return True


def election_summary(found: Mapping[TopicPartition, bool], leader: int | None) -> str:
    """Summarizes an election; `found` contains whether each partition got a new leader."""
    elected = sum(found.values())
    kept = len(found) - elected
    if leader is None:
        text = f"Elected {count(elected, 'leader')}"
        return f"{text}; {count(kept, 'partition')} needed no election."
    text = f"Broker {leader} now leads {count(elected, 'partition')}"
    return f"{text}; it already led {count(kept, 'partition')}."


async def alter(
    admin: Admin,
    topic: str,
    *,
    partitions: Collection[int],
    mode: str | None,
    replicas: int | None,
    partition_count: int | None,
) -> list[str]:
    """Changes a topic; returns a sentence for each change."""
    changes = []
    if partition_count is not None:
        await admin.create_partitions({topic: partition_count})
        changes.append(f"Topic {topic} now has {count(partition_count, 'partition')}.")
    if mode is not None or replicas is not None:
        await admin.alter_replication(
            topic,
            mode="raft" if mode == "raft" else None if mode is None else "isr",
            replicas=replicas,
            partitions=partitions,
        )
        goals = [f"replication mode {mode}"] if mode is not None else []
        goals += [f"replication factor {replicas}"] if replicas else []
        scope = f"partitions {numbers(sorted(partitions))} of {topic}" if partitions else topic
        changes.append(
            f"Switching {scope} to {' and '.join(goals)}; `lograft topics describe {topic}` shows"
            " the progress."
        )
    return changes
