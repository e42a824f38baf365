"""Applies failOnDataLoss when records that a query should read no longer exist: the query fails,
or, with failOnDataLoss=false, reads the remaining records and logs a warning. Loss is never
silent."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from lograft.client import TopicInfo
from lograft.model.errors import LograftError
from lograft.model.types import TopicPartition
from lograft.spark.options import Subscription

LOGGER: Final = logging.getLogger(__name__)


class RecordsLost(LograftError):
    """Records that the query should read have been deleted."""


class DataLossRule:
    """Reports lost records: raises RecordsLost, or logs a warning if `fails` is false."""

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def report(self, message: str) -> None:
        if self._fails:
            raise RecordsLost(f"{message}. To continue without them, set failOnDataLoss to false")
        LOGGER.warning("%s; failOnDataLoss is false, so the query continues", message)

    def adjust_start(self, partition: TopicPartition, start: int, *, earliest: int) -> int:
        """Returns `start`, or the log start offset if the log was deleted beyond it."""
        if start >= earliest:
            return start
        self.report(
            f"{partition}: offsets {start} to {earliest - 1} were deleted: the log start offset is"
            f" now {earliest}"
        )
        return earliest

    def adjust_end(self, partition: TopicPartition, end: int, *, latest: int) -> int:
        """Returns `end`, or the log end offset if the log ends before it."""
        if end <= latest:
            return end
        self.report(
            f"{partition}: the log end offset is {latest}, below the requested offset {end}"
        )
        return latest

    def report_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        if names:
            self.report(f"{names}: deleted before the query had read them completely")

    def report_replaced(self, topic: str, before: UUID, now: UUID) -> None:
        self.report(
            f"topic {topic!r} was deleted and recreated (its topic ID was {before} and is now"
            f" {now}): unread records of the old topic are lost"
        )

    def check_exists(self, subscription: Subscription, topics: Mapping[str, TopicInfo]) -> None:
        """Raises RecordsLost if a new query names a topic or partition that does not exist."""
        named = {partition.topic for partition in subscription.partitions} | set(
            subscription.topics
        )
        missing = sorted(named - topics.keys())
        if missing:
            raise RecordsLost(
                f"topic {missing[0]!r} does not exist: create it, or name another topic"
            )
        for partition in subscription.partitions:
            count = len(topics[partition.topic].partitions)
            if partition.partition >= count:
                raise RecordsLost(
                    f"assign names {partition}, but topic {partition.topic!r} has only"
                    f" partitions 0 to {count - 1}"
                )
