"""Requests to partition leaders: the first or last offset, the first offset at a timestamp, and the
end offset of a leader epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from lograft.client.backoff import backoff_ms
from lograft.client.consuming.fetch_requests import READ_COMMITTED
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.core import ClientCore
from lograft.client.errors import (
    STALE_METADATA,
    BrokerError,
    ClientError,
    OutcomeUnknown,
    TimedOut,
    broker_error,
)
from lograft.client.metadata import Partition, is_transient
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import NO_EPOCH
from lograft.wire.messages import list_offsets as listing
from lograft.wire.messages import offset_for_leader_epoch as epochs

R = TypeVar("R")
A = TypeVar("A")


class FoundOffset(NamedTuple):
    """The fields are -1 if the log has no such offset."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    #: The largest epoch in the leader's log up to the requested one; -1: there is none.
    epoch: int
    end_offset: int


class LookupOutcome(NamedTuple):
    """The results of one request to each leader."""

    found: dict[TopicPartition, Any]
    failed: dict[TopicPartition, ClientError]


class OffsetLookup:
    def __init__(self, core: ClientCore[ConsumerSettings]) -> None:
        self._core = core
        self._settings = core.settings

    async def look_up(
        self, timestamps: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, FoundOffset]:
        """Returns offsets by timestamp (or LATEST, EARLIEST); retries until the deadline."""
        found: dict[TopicPartition, FoundOffset] = {}
        pending = dict(timestamps)
        failures = 0
        while pending:
            outcome = await self._run_until(deadline_ms, self.request_offsets(pending), pending)
            found.update(outcome.found)
            for error in outcome.failed.values():
                if not error.is_retriable:
                    raise error
            pending = {partition: pending[partition] for partition in outcome.failed}
            if pending:
                failures += 1
                await self.back_off(failures)
                if self._core.now_ms() >= deadline_ms:
                    raise _timeout_error(pending, next(iter(outcome.failed.values())))
        return {partition: found[partition] for partition in timestamps}

    async def request_offsets(self, timestamps: Mapping[TopicPartition, int]) -> LookupOutcome:
        """Sends one request to each leader, without retries."""
        return await self._request_from_leaders(timestamps, self._send_list_offsets)

    async def request_epoch_ends(
        self, leader_epochs: Mapping[TopicPartition, int]
    ) -> LookupOutcome:
        """Requests the end offsets of these epochs, without retries."""
        return await self._request_from_leaders(leader_epochs, self._send_offset_for_leader_epoch)

    async def back_off(self, failures: int) -> None:
        await asyncio.sleep(
            backoff_ms(
                self._settings.retry_backoff_ms,
                self._settings.retry_backoff_max_ms,
                failures,
                self._core.runtime.randomness,
            )
            / 1000
        )

    async def _run_until(
        self, deadline_ms: int, request: Awaitable[R], partitions: Iterable[TopicPartition]
    ) -> R:
        timeout_ms = max(0, deadline_ms - self._core.now_ms())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await request
        except TimeoutError:
            raise _timeout_error(partitions, None) from None

    async def _request_from_leaders(
        self,
        arguments: Mapping[TopicPartition, A],
        send: Callable[[int, Mapping[TopicPartition, A]], Awaitable[LookupOutcome]],
    ) -> LookupOutcome:
        found: dict[TopicPartition, Any] = {}
        failed: dict[TopicPartition, ClientError] = {}
        by_leader: dict[int, dict[TopicPartition, A]] = {}
        for partition, argument in arguments.items():
            leader = self._leader_of(partition)
            if isinstance(leader, int):
                by_leader.setdefault(leader, {})[partition] = argument
            else:
                failed[partition] = leader
        for outcome in await asyncio.gather(
            *(self._request_from_leader(leader, part, send) for leader, part in by_leader.items())
        ):
            found.update(outcome.found)
            failed.update(outcome.failed)
        if any(getattr(error, "code", None) in STALE_METADATA for error in failed.values()):
            self._core.metadata.request_update()
        return LookupOutcome(found, failed)

    async def _request_from_leader(
        self,
        leader: int,
        arguments: Mapping[TopicPartition, A],
        send: Callable[[int, Mapping[TopicPartition, A]], Awaitable[LookupOutcome]],
    ) -> LookupOutcome:
        try:
            return await send(leader, arguments)
        except ClientError as error:
            self._core.metadata.request_update()
            return LookupOutcome({}, dict.fromkeys(arguments, error))

    def _leader_of(self, partition: TopicPartition) -> int | ClientError:
        metadata = self._core.metadata
        topic = metadata.use(partition.topic)
        if topic is None:
            code = metadata.cache.error_of(partition.topic)
            if code and not is_transient(code):
                return broker_error(code, str(partition))
            return _unknown_leader_error(partition)
        known = topic.partition(partition.partition)
        if known is None or known.leader not in self._core.network.brokers:
            return _unknown_leader_error(partition)
        return known.leader

    def _leader_epoch(self, partition: TopicPartition) -> int:
        known: Partition | None = self._core.metadata.cache.partition(*partition)
        return NO_EPOCH if known is None else known.leader_epoch

    async def _send_list_offsets(
        self, leader: int, timestamps: Mapping[TopicPartition, int]
    ) -> LookupOutcome:
        topics: dict[str, listing.ListOffsetsTopic] = {}
        for partition, timestamp in timestamps.items():
            topic = topics.setdefault(
                partition.topic, listing.ListOffsetsTopic(name=partition.topic)
            )
            topic.partitions.append(
                listing.ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=self._leader_epoch(partition),
                    timestamp=timestamp,
                )
            )
        response = await self._core.network.request(
            listing.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=READ_COMMITTED if self._settings.is_read_committed else 0,
                topics=list(topics.values()),
                timeout_ms=self._settings.request_timeout_ms,
            ),
            listing.ListOffsetsResponse,
            node=leader,
            # Version 1 has no isolation level and means read_uncommitted.
            at_least=2 if self._settings.is_read_committed else 1,
        )
        results = {
            TopicPartition(topic.name, entry.partition_index): (
                entry.error_code,
                FoundOffset(entry.offset, entry.timestamp, entry.leader_epoch),
            )
            for topic in response.topics
            for entry in topic.partitions
        }
        return _outcome_of(timestamps, results, "looking up an offset")

    async def _send_offset_for_leader_epoch(
        self, leader: int, leader_epochs: Mapping[TopicPartition, int]
    ) -> LookupOutcome:
        topics: dict[str, epochs.OffsetForLeaderTopic] = {}
        for partition, epoch in leader_epochs.items():
            topic = topics.setdefault(
                partition.topic, epochs.OffsetForLeaderTopic(topic=partition.topic)
            )
            topic.partitions.append(
                epochs.OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._leader_epoch(partition),
                    leader_epoch=epoch,
                )
            )
        response = await self._core.network.request(
            epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values())),
            epochs.OffsetForLeaderEpochResponse,
            node=leader,
            # Earlier versions are for brokers only.
            at_least=3,
        )
        results = {
            TopicPartition(topic.topic, entry.partition): (
                entry.error_code,
                EpochEnd(entry.leader_epoch, entry.end_offset),
            )
            for topic in response.topics
            for entry in topic.partitions
        }
        return _outcome_of(leader_epochs, results, "looking up the end of an epoch")


def _outcome_of(
    partitions: Iterable[TopicPartition],
    results: Mapping[TopicPartition, tuple[int, R]],
    action: str,
) -> LookupOutcome:
    outcome = LookupOutcome({}, {})
    for partition in partitions:
        code, value = results.get(partition, (None, None))
        if code is None:
            outcome.failed[partition] = OutcomeUnknown(
                f"the broker's response does not contain {partition}"
            )
        elif code:
            outcome.failed[partition] = broker_error(code, f"{partition}: {action}")
        else:
            outcome.found[partition] = value
    return outcome


def _unknown_leader_error(partition: TopicPartition) -> BrokerError:
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition), "its leader is not known"
    )


def _timeout_error(
    partitions: Iterable[TopicPartition], last_error: ClientError | None
) -> TimedOut:
    names = ", ".join(map(str, sorted(partitions)[:5]))
    return TimedOut(
        f"timed out looking up the offsets of {names}"
        + (f"; last error: {last_error}" if last_error else "")
    )
