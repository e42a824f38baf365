"""What a query does when records that it was to read are not there: it fails, or, with
failOnDataLoss=false, reads what there is and says in the log what it did not find. Never silent."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from lograft.model.errors import LograftError
from lograft.model.types import TopicPartition
from lograft.spark.cluster import TopicSeen
from lograft.spark.options import Subscription

LOGGER: Final = logging.getLogger(__name__)


class RecordsLost(LograftError):
    """Records that the query was to read are gone."""


class DataLossRule:
    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def report(self, sentence: str) -> None:
        if self._fails:
            raise RecordsLost(f"{sentence}. To go on without them, set failOnDataLoss to false")
        LOGGER.warning("%s; failOnDataLoss is false, so the query goes on", sentence)

    def start(self, where: TopicPartition, start: int, *, earliest: int) -> int:
        if start >= earliest:
            return start
        self.report(
            f"{where}: offsets {start} to {earliest - 1} are not there any more: the log now begins"
            f" at {earliest}"
        )
        return earliest

    def end(self, where: TopicPartition, end: int, *, latest: int) -> int:
        if end <= latest:
            return end
        self.report(
            f"{where}: the log ends at {latest}, before the offset {end} that was asked for"
        )
        return latest

    def gone(self, partitions: Iterable[TopicPartition]) -> None:
        listed = ", ".join(str(one) for one in sorted(partitions))
        if listed:
            self.report(f"{listed}: deleted while the query was to read on there")

    def replaced(self, topic: str, before: UUID, now: UUID) -> None:
        self.report(
            f"topic {topic!r} was deleted and created again (its id was {before} and is {now}):"
            " what had not been read of the old one is gone"
        )

    def check_there(self, subscription: Subscription, topics: Mapping[str, TopicSeen]) -> None:
        """A query that begins names topics and partitions that there are."""
        named = {one.topic for one in subscription.partitions} | set(subscription.topics)
        missing = sorted(named - topics.keys())
        if missing:
            raise RecordsLost(
                f"topic {missing[0]!r} is not in the cluster: create it, or name another one"
            )
        for one in subscription.partitions:
            count = topics[one.topic].partitions
            if one.partition >= count:
                raise RecordsLost(
                    f"assign names {one}, but topic {one.topic!r} has the partitions 0 to"
                    f" {count - 1}"
                )
