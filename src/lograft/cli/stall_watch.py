"""Reports why a producer gets no acknowledgements or a consumer no records, while it keeps
retrying."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import fields
from typing import Any, Final, Self

from lograft.cli.output import numbers
from lograft.client.admin import Admin, PartitionDescription, topic_resource
from lograft.client.client_settings import ClientSettings
from lograft.client.consumer import Consumer
from lograft.client.errors import BrokerMissing, ClientError, ConnectionFailed, TopicMissing
from lograft.client.producer import Producer
from lograft.client.producing.settings import ProducerSettings

#: A command that makes no progress for this long is stalled.
STALL_SECONDS: Final = 1.0
NAMED_MAX: Final = 5
METADATA_MS: Final = 1_000
_MIN_ISR: Final = "min.insync.replicas"


class StallWatch:
    """An async context manager that reports each reason for a stall once."""

    def __init__(
        self,
        read_progress: Callable[[], float | None],
        explain: Callable[[], Awaitable[str]],
        report: Callable[[str], None],
    ) -> None:
        """`read_progress` returns a value that changes with progress, or None while the client
        waits for nothing; `explain` returns the reason, or "" if nothing is wrong."""
        self._read_progress = read_progress
        self._explain = explain
        self.report = report
        #: Whether the command waits for metadata or for space in the producer's buffer.
        self.is_enqueuing = False
        self._task: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        last_reason = ""
        previous: float | None = None
        while True:
            await asyncio.sleep(STALL_SECONDS)
            progress = self._read_progress()
            if progress is None and self.is_enqueuing:
                progress = -1
            if progress is not None and progress == previous:
                reason = await self._explain()
                if reason and reason != last_reason:
                    self.report(reason)
                last_reason = reason
            previous = progress


def watch_producer(producer: Producer, topic: str, report: Callable[[str], None]) -> StallWatch:
    def read_progress() -> float | None:
        if not producer.has_pending:
            return None
        return producer.metrics().value("record-acknowledged-total")

    return StallWatch(read_progress, lambda: explain_stall(producer, topic), report)


def watch_consumer(
    consumer: Consumer,
    topic: str,
    partitions: Collection[int],
    report: Callable[[str], None],
) -> StallWatch:
    """`partitions`: those that the command reads; empty for all. The other partitions make progress
    while one has no leader, so the consumer's metadata is checked instead."""
    return StallWatch(
        lambda: 0, lambda: explain_missing_records(consumer, topic, partitions), report
    )


async def explain_missing_records(
    consumer: Consumer, topic: str, partitions: Collection[int]
) -> str:
    """Returns which of these partitions have no leader. Sends no requests if all have one."""
    try:
        known = await consumer.partitions_for(topic, timeout_ms=METADATA_MS)
        if all(partition.leader >= 0 for partition in known.partitions):
            return ""
        async with Admin(_client_settings_of(consumer.settings)) as admin:
            await admin.connect()
            return await find_missing_leaders(admin, topic, partitions)
    except ClientError:
        # The command reports it when its own request fails.
        return ""


async def find_missing_leaders(admin: Admin, topic: str, partitions: Collection[int]) -> str:
    described = (await admin.describe_topics([topic]))[topic].partitions
    leaderless = [
        partition
        for partition in described
        if partition.leader < 0 and (not partitions or partition.index in partitions)
    ]
    return await _explain_missing_leaders(admin, topic, leaderless) if leaderless else ""


def _client_settings_of(settings: ClientSettings) -> dict[str, Any]:
    return {field.name: getattr(settings, field.name) for field in fields(ClientSettings)}


async def explain_stall(producer: Producer, topic: str) -> str:
    """Returns what a producer of this topic is waiting for."""
    timeout = _timeout_of(producer.settings)
    try:
        async with Admin(_client_settings_of(producer.settings)) as admin:
            await admin.connect()
            return await find_reason(admin, producer.settings, topic)
    except TopicMissing:
        return (
            f"waiting for topic {topic}, which does not exist: create it with `lograft topics"
            f" create {topic}`; giving up after {producer.settings.max_block_ms / 1000:g} s"
            " (max.block.ms)"
        )
    except ClientError as error:
        return f"waiting for the cluster: {error}; {timeout}"


async def find_reason(admin: Admin, settings: ProducerSettings, topic: str) -> str:
    """Returns what keeps the topic's partitions from acknowledging records."""
    timeout = _timeout_of(settings)
    partitions = (await admin.describe_topics([topic]))[topic].partitions
    leaderless = [partition for partition in partitions if partition.leader < 0]
    if leaderless:
        reason = await _explain_missing_leaders(admin, topic, leaderless)
        return f"{reason}; {timeout}"
    unreachable = await _find_unreachable_leader(admin, partitions)
    if unreachable is not None:
        leader, problem = unreachable
        led = [partition for partition in partitions if partition.leader == leader]
        return (
            f"waiting for broker {leader}, the leader of {_names_of(topic, led)}: {problem};"
            f" {timeout}"
        )
    configs = await admin.describe_configs([topic_resource(topic)], names=[_MIN_ISR])
    entry = configs[topic_resource(topic)].get(_MIN_ISR)
    isr_min = int(entry.value) if entry is not None and entry.value else 1
    under_min_isr = [
        partition
        for partition in partitions
        if len(partition.isr) < min(isr_min, len(partition.replicas))
    ]
    if under_min_isr and settings.required_acks == -1:
        return (
            f"waiting for replicas of {_names_of(topic, under_min_isr)}: fewer than"
            f" {_MIN_ISR}={isr_min} are in sync; {timeout}"
        )
    return f"waiting for acknowledgements from {topic}; {timeout}"


async def _explain_missing_leaders(
    admin: Admin, topic: str, partitions: list[PartitionDescription]
) -> str:
    replicas = {node for partition in partitions for node in partition.isr or partition.replicas}
    online = {broker.id for broker in (await admin.describe_cluster()).brokers}
    reason = f"waiting for a leader of {_names_of(topic, partitions)}"
    match sorted(replicas - online):
        case []:
            return reason
        case [broker]:
            return f"{reason}: start broker {broker}"
        case brokers:
            return f"{reason}: start one of the brokers {numbers(brokers)}"


def _timeout_of(settings: ProducerSettings) -> str:
    return f"giving up after {settings.delivery_timeout_ms / 1000:g} s (delivery.timeout.ms)"


async def _find_unreachable_leader(
    admin: Admin, partitions: Sequence[PartitionDescription]
) -> tuple[int, str] | None:
    """Returns a broker that leads partitions but cannot be reached, and why. Without an active
    controller it stays the leader in the metadata."""
    for leader in sorted({partition.leader for partition in partitions if partition.leader >= 0}):
        try:
            await admin.probe(leader)
        except (ConnectionFailed, BrokerMissing) as error:
            return leader, str(error)
    return None


def _names_of(topic: str, partitions: list[PartitionDescription]) -> str:
    names = ", ".join(f"{topic}-{partition.index}" for partition in partitions[:NAMED_MAX])
    return names + (" …" if len(partitions) > NAMED_MAX else "")
