"""A topic as a table: from the starting to the ending offsets, as they are when it is planned."""

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
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._restriction = Restriction()

    @property
    def pushFilters(self) -> "_PushesIfAsked":
        return _PushesIfAsked(self)

    def restrict(self, filters: Sequence[Filter]) -> None:
        self._restriction = restriction_of(filters)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        cut = split(
            [one for one in self.ranges() if one.size],
            partitions_min=options.partitions_min,
            records_max=options.partition_records_max,
        )
        return [RangePartition(one) for one in cut]

    def ranges(self) -> list[Range]:
        """One for each partition, also where there is nothing to read."""
        cluster = Cluster(self._options)
        try:
            return self._ranges(cluster)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in for a plan without tasks
        return read_range(self._options, partition.range)

    def _ranges(self, cluster: Cluster) -> list[Range]:
        options = self._options
        topics = cluster.topics()
        rule = DataLossRule(options.fails_on_data_loss)
        rule.check_there(options.subscription, topics)
        partitions = cluster.partitions(topics)
        starts = cluster.resolve(
            "starting", options.start, partitions, or_latest=options.late_start_is_latest
        )
        ends = cluster.resolve("ending", options.end, partitions, or_latest=True)
        first, last = cluster.ends(EARLIEST, partitions), cluster.ends(LATEST, partitions)
        allowed = sorted(one for one in partitions if self._restriction.allows(one))
        times = self._first_in_time(cluster, allowed, last)
        ranges = []
        for one in allowed:
            # A start behind the end is of another log, as after the topic was created again.
            begin = rule.end(one, starts[one], latest=last[one])
            start, end = self._restriction.cut(
                rule.start(one, begin, earliest=first[one]),
                rule.end(one, ends[one], latest=last[one]),
            )
            start = max(start, times.get(one, start))
            ranges.append(Range(*one, start, end, topics[one.topic].id))
        return ranges

    def _first_in_time(self, cluster: Cluster, partitions: list[Any], last: Offsets) -> Offsets:
        """Where the records begin that can be young enough for the query."""
        moment = self._restriction.timestamp_min_ms
        if moment is None:
            return {}
        found = cluster.offsets(dict.fromkeys(partitions, moment))
        return {one: last[one] if offset < 0 else offset for one, offset in found.items()}


class _PushesIfAsked:
    """`pushFilters` of a reader. Spark refuses a reader that has one while
    spark.sql.python.filterPushdown.enabled is off, and the reader cannot see that setting: to the
    look that Spark takes for that, this is the inherited method."""

    def __init__(self, reader: BatchReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        self._reader.restrict(filters)
        return filters
