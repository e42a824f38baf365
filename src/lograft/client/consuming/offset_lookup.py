"""Asks the leaders of partitions: which offset is first, last, or the first at a time; and where
the log of an epoch ends.
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

A = TypeVar("A")
Q = TypeVar("Q")


class Found(NamedTuple):
    """-1 where the log has none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    #: The latest epoch up to the one asked for that the leader's log has; -1: none.
    epoch: int
    #: Where its records end.
    end_offset: int


class Answers(NamedTuple):
    """What one round of questions brought, partition by partition."""

    found: dict[TopicPartition, Any]
    failed: dict[TopicPartition, ClientError]


class OffsetLookup:
    def __init__(self, core: ClientCore[ConsumerSettings]) -> None:
        self._core = core
        self._settings = core.settings

    async def look_up(
        self, wanted: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, Found]:
        """Offsets by timestamp (or LATEST, EARLIEST); tries until the deadline."""
        found: dict[TopicPartition, Found] = {}
        rest = dict(wanted)
        failures = 0
        while rest:
            answers = await self._within(deadline_ms, self.ask(rest), rest)
            found.update(answers.found)
            for error in answers.failed.values():
                if not error.is_retriable:
                    raise error
            rest = {one: rest[one] for one in answers.failed}
            if rest:
                failures += 1
                await self.back_off(failures)
                if self._core.now_ms() >= deadline_ms:
                    raise _too_late(rest, next(iter(answers.failed.values())))
        return {one: found[one] for one in wanted}

    async def ask(self, wanted: Mapping[TopicPartition, int]) -> Answers:
        """Every leader once."""
        return await self._of_leaders(wanted, self._ask_for_offsets)

    async def ask_epochs(self, wanted: Mapping[TopicPartition, int]) -> Answers:
        """Where the logs of these epochs end, every leader once."""
        return await self._of_leaders(wanted, self._ask_for_epochs)

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

    async def _within(
        self, deadline_ms: int, question: Awaitable[A], wanted: Iterable[TopicPartition]
    ) -> A:
        rest_ms = max(0, deadline_ms - self._core.now_ms())
        try:
            async with asyncio.timeout(rest_ms / 1000):
                return await question
        except TimeoutError:
            raise _too_late(wanted, None) from None

    async def _of_leaders(
        self,
        wanted: Mapping[TopicPartition, Q],
        question: Callable[[int, Mapping[TopicPartition, Q]], Awaitable[Answers]],
    ) -> Answers:
        found: dict[TopicPartition, Any] = {}
        failed: dict[TopicPartition, ClientError] = {}
        by_leader: dict[int, dict[TopicPartition, Q]] = {}
        for one, what in wanted.items():
            leader = self._leader_of(one)
            if isinstance(leader, int):
                by_leader.setdefault(leader, {})[one] = what
            else:
                failed[one] = leader
        for answers in await asyncio.gather(
            *(self._of_leader(leader, part, question) for leader, part in by_leader.items())
        ):
            found.update(answers.found)
            failed.update(answers.failed)
        if any(getattr(one, "code", None) in STALE_METADATA for one in failed.values()):
            self._core.metadata.request_update()
        return Answers(found, failed)

    async def _of_leader(
        self,
        leader: int,
        wanted: Mapping[TopicPartition, Q],
        question: Callable[[int, Mapping[TopicPartition, Q]], Awaitable[Answers]],
    ) -> Answers:
        try:
            return await question(leader, wanted)
        except ClientError as error:
            self._core.metadata.request_update()
            return Answers({}, dict.fromkeys(wanted, error))

    def _leader_of(self, partition: TopicPartition) -> int | ClientError:
        metadata = self._core.metadata
        topic = metadata.use(partition.topic)
        if topic is None:
            code = metadata.cache.error_of(partition.topic)
            if code and not is_transient(code):
                return broker_error(code, str(partition))
            return _unknown(partition)
        known = topic.partition(partition.partition)
        if known is None or known.leader not in self._core.network.brokers:
            return _unknown(partition)
        return known.leader

    def _leader_epoch(self, partition: TopicPartition) -> int:
        known: Partition | None = self._core.metadata.cache.partition(*partition)
        return NO_EPOCH if known is None else known.leader_epoch

    async def _ask_for_offsets(self, leader: int, wanted: Mapping[TopicPartition, int]) -> Answers:
        topics: dict[str, listing.ListOffsetsTopic] = {}
        for one, timestamp in wanted.items():
            topic = topics.setdefault(one.topic, listing.ListOffsetsTopic(name=one.topic))
            topic.partitions.append(
                listing.ListOffsetsPartition(
                    partition_index=one.partition,
                    current_leader_epoch=self._leader_epoch(one),
                    timestamp=timestamp,
                )
            )
        answer = await self._core.network.request(
            listing.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=READ_COMMITTED if self._settings.is_read_committed else 0,
                topics=list(topics.values()),
                timeout_ms=self._settings.request_timeout_ms,
            ),
            listing.ListOffsetsResponse,
            node=leader,
            # The level of isolation is needed only where it is not the lowest.
            at_least=2 if self._settings.is_read_committed else 1,
        )
        told = {
            TopicPartition(topic.name, one.partition_index): (
                one.error_code,
                Found(one.offset, one.timestamp, one.leader_epoch),
            )
            for topic in answer.topics
            for one in topic.partitions
        }
        return _sorted_out(wanted, told, "offsets")

    async def _ask_for_epochs(self, leader: int, wanted: Mapping[TopicPartition, int]) -> Answers:
        topics: dict[str, epochs.OffsetForLeaderTopic] = {}
        for one, epoch in wanted.items():
            topic = topics.setdefault(one.topic, epochs.OffsetForLeaderTopic(topic=one.topic))
            topic.partitions.append(
                epochs.OffsetForLeaderPartition(
                    partition=one.partition,
                    current_leader_epoch=self._leader_epoch(one),
                    leader_epoch=epoch,
                )
            )
        answer = await self._core.network.request(
            epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values())),
            epochs.OffsetForLeaderEpochResponse,
            node=leader,
            # Before version 3 it is for brokers only.
            at_least=3,
        )
        told = {
            TopicPartition(topic.topic, one.partition): (
                one.error_code,
                EpochEnd(one.leader_epoch, one.end_offset),
            )
            for topic in answer.topics
            for one in topic.partitions
        }
        return _sorted_out(wanted, told, "the end of an epoch")


def _sorted_out(
    wanted: Iterable[TopicPartition],
    told: Mapping[TopicPartition, tuple[int, A]],
    what: str,
) -> Answers:
    answers = Answers({}, {})
    for one in wanted:
        code, value = told.get(one, (None, None))
        if code is None:
            answers.failed[one] = OutcomeUnknown(f"the broker's answer leaves out {one}")
        elif code:
            answers.failed[one] = broker_error(code, f"{one}: asked for {what}")
        else:
            answers.found[one] = value
    return answers


def _unknown(partition: TopicPartition) -> BrokerError:
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition), "it has no leader that is known here"
    )


def _too_late(wanted: Iterable[TopicPartition], cause: ClientError | None) -> TimedOut:
    names = ", ".join(map(str, sorted(wanted)[:5]))
    return TimedOut(
        f"the offsets of {names} were not told in time" + (f"; the last: {cause}" if cause else "")
    )
