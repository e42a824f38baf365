"""Batch reads: the offset range is resolved once, when Spark plans the query."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from lograft.spark.cluster import Cluster
from lograft.spark.data_loss import DataLossRule
from lograft.spark.filters import Restriction, restriction_of
from lograft.spark.offsets import EARLIEST, LATEST, Offsets
from lograft.spark.options import ReadOptions
from lograft.spark.planning import Range, split
from lograft.spark.ranges import RangePartition, read_range


class BatchReader(DataSourceReader):
    """Plans and reads a range of offsets, from the starting to the ending offsets of the
    options."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._restriction = Restriction()

    @property
    def pushFilters(self) -> "_FilterPushdown":
        return _FilterPushdown(self)

    def restrict(self, filters: Sequence[Filter]) -> None:
        self._restriction = restriction_of(filters)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        parts = split(
            [whole for whole in self.ranges() if whole.size],
            partitions_min=options.partitions_min,
            records_max=options.partition_records_max,
        )
        return [RangePartition(part) for part in parts]

    def ranges(self) -> list[Range]:
        """Returns one range for each partition, including empty ones."""
        cluster = Cluster(self._options)
        try:
            return self._ranges(cluster)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark passes a placeholder when the plan has no tasks
        return read_range(self._options, partition.range)

    def _ranges(self, cluster: Cluster) -> list[Range]:
        options = self._options
        topics = cluster.topics()
        rule = DataLossRule(options.fails_on_data_loss)
        rule.check_exists(options.subscription, topics)
        partitions = cluster.partitions(topics)
        starts = cluster.resolve(
            "starting", options.start, partitions, or_latest=options.late_start_is_latest
        )
        ends = cluster.resolve("ending", options.end, partitions, or_latest=True)
        first, last = cluster.ends(EARLIEST, partitions), cluster.ends(LATEST, partitions)
        allowed = sorted(
            partition for partition in partitions if self._restriction.allows(partition)
        )
        times = self._first_in_time(cluster, allowed, last)
        ranges = []
        for partition in allowed:
            # A start beyond the log end belongs to a deleted topic of the same name.
            begin = rule.adjust_end(partition, starts[partition], latest=last[partition])
            start, end = self._restriction.clip(
                rule.adjust_start(partition, begin, earliest=first[partition]),
                rule.adjust_end(partition, ends[partition], latest=last[partition]),
            )
            start = max(start, times.get(partition, start))
            ranges.append(Range(*partition, start, end, topics[partition.topic].id))
        return ranges

    def _first_in_time(self, cluster: Cluster, partitions: list[Any], last: Offsets) -> Offsets:
        """Returns the first offsets whose records may satisfy the query's timestamp filter."""
        timestamp_ms = self._restriction.timestamp_min_ms
        if timestamp_ms is None:
            return {}
        found = cluster.offsets(dict.fromkeys(partitions, timestamp_ms))
        return {
            partition: last[partition] if offset < 0 else offset
            for partition, offset in found.items()
        }


class _FilterPushdown:
    """The reader's `pushFilters` method.

    While spark.sql.python.filterPushdown.enabled is false, Spark rejects every reader that
    overrides this method, and the reader cannot read that setting. Spark detects an override by
    comparing `__func__`, so this object presents the inherited method."""

    def __init__(self, reader: BatchReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.restrict(filters)
        return filters
