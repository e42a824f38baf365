"""Reports why a producer gets no acknowledgements, while it keeps retrying."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import Final, Self

from lograft.cli.output import numbers
from lograft.client.admin import Admin, PartitionDescription, topic_resource
from lograft.client.client_settings import ClientSettings
from lograft.client.errors import BrokerMissing, ClientError, ConnectionFailed, TopicMissing
from lograft.client.producer import Producer
from lograft.client.producing.settings import ProducerSettings

#: A producer that gets no acknowledgement for this long is stalled.
STALL_SECONDS: Final = 1.0
NAMED_MAX: Final = 5
_MIN_ISR: Final = "min.insync.replicas"


class StallWatch:
    """An async context manager that reports each reason for a stall once."""

    def __init__(
        self,
        producer: Producer,
        explain: Callable[[], Awaitable[str]],
        report: Callable[[str], None],
    ) -> None:
        self._producer = producer
        self._explain = explain
        self.report = report
        #: Whether the command waits for metadata or for space in the buffer.
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
        previous = -1.0
        while True:
            await asyncio.sleep(STALL_SECONDS)
            acknowledged = self._producer.metrics().value("record-acknowledged-total")
            is_waiting = self.is_enqueuing or self._producer.has_pending
            if is_waiting and acknowledged == previous:
                reason = await self._explain()
                if reason != last_reason:
                    self.report(reason)
                last_reason = reason
            previous = acknowledged if is_waiting else -1


async def explain_stall(producer: Producer, topic: str) -> str:
    """Returns what a producer of this topic is waiting for."""
    settings = {
        field.name: getattr(producer.settings, field.name) for field in fields(ClientSettings)
    }
    timeout = _timeout_of(producer.settings)
    try:
        async with Admin(settings) as admin:
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
