"""Streaming reads. One reader runs in a process next to the driver for as long as its query runs;
its copies in tasks only read.

Spark stores the offsets in its checkpoint, together with the topic IDs. State kept only here (the
end of an availableNow run, the time of the last batch) may be lost with the process.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lograft.client import TopicInfo
from lograft.model.types import ZERO_UUID
from lograft.runtime.clock import SystemClock
from lograft.spark.cluster import Cluster
from lograft.spark.data_loss import DataLossRule
from lograft.spark.offsets import (
    EARLIEST,
    LATEST,
    OffsetJson,
    Offsets,
    from_json,
    ids_in,
    to_json,
)
from lograft.spark.options import ReadOptions
from lograft.spark.planning import Range, backlog_of, limit_offsets, rows_in_bytes, split
from lograft.spark.progress import Progress
from lograft.spark.ranges import RangePartition, read_range
from lograft.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver's process and reads ranges in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._rule = DataLossRule(options.fails_on_data_loss)
        self._cluster: Cluster | None = None
        self._topics: dict[str, TopicInfo] = {}
        #: Last known ID of every topic ever seen.
        self._ids: dict[str, UUID] = {}
        #: End offsets of an availableNow run; None for other triggers.
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._progress = Progress(options, self._clock)
        #: When records were last available for a batch, by the monotonic clock.
        self._last_batch_ms = self._clock.mono_ms()

    # ── offsets ──────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> OffsetJson:
        options = self._options
        topics = self._refresh_topics()
        self._rule.check_exists(options.subscription, topics)
        cluster = self._open_cluster()
        start = cluster.resolve(
            "starting",
            options.start,
            cluster.partitions(topics),
            or_latest=options.late_start_is_latest,
        )
        written = to_json(start, self._ids)
        self._commit_progress(written)
        return written

    def latestOffset(
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """`limit` is None before Spark 4.2, whose batches contain all available records."""
        latest = self._available()
        if start is None:
            self._progress.renew(self._open_cluster())
            return to_json(latest, self._ids)
        self._commit_progress(start)
        start_ids = ids_in(start)
        replaced = self._find_replaced_topics(start_ids, self._ids)
        known = self._find_valid_offsets(from_json(start), latest, replaced)
        if limit is None or isinstance(limit, ReadAllAvailable):
            return to_json(latest, self._ids)
        begin = self._begin(known, latest)
        backlog = backlog_of(begin, latest)
        if backlog < (self._options.trigger_offsets_min or 0) and self._may_wait() and not replaced:
            return to_json(from_json(start), {**self._ids, **start_ids})
        return to_json(self._limited_end(begin, latest, backlog), self._ids)

    def reportLatestOffset(self) -> OffsetJson | None:
        return to_json(self._latest) if self._latest else None

    def getDefaultReadLimit(self) -> ReadLimit:
        """`latestOffset` enforces the limits; Spark only needs to know that there are any."""
        options = self._options
        if not options.limits_triggers:
            return ReadAllAvailable()
        return ReadMaxRows(options.trigger_offsets_max or (1 << 62))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = None
        self._target = self._available()

    def _available(self) -> Offsets:
        topics = self._refresh_topics()
        cluster = self._open_cluster()
        latest = self._latest = cluster.ends(LATEST, cluster.partitions(topics))
        if self._target is None:
            return latest
        return {
            partition: min(offset, latest.get(partition, offset))
            for partition, offset in self._target.items()
        }

    def _limited_end(self, begin: Offsets, latest: Offsets, backlog: int) -> Offsets:
        options = self._options
        rows = backlog
        if options.trigger_offsets_max is not None:
            rows = min(rows, options.trigger_offsets_max)
        if options.trigger_bytes_max is not None and backlog:
            sizes = self._open_cluster().row_bytes(begin, latest)
            rows = min(rows, rows_in_bytes(options.trigger_bytes_max, begin, latest, sizes))
        if backlog:
            self._last_batch_ms = self._clock.mono_ms()
        return limit_offsets(begin, latest, rows)

    def _may_wait(self) -> bool:
        """Returns whether a batch below minOffsetsPerTrigger may be delayed. An availableNow run
        never waits."""
        waited_ms = self._clock.mono_ms() - self._last_batch_ms
        return self._target is None and waited_ms < self._options.trigger_delay_ms_max

    def _find_valid_offsets(self, start: Offsets, latest: Offsets, replaced: set[str]) -> Offsets:
        """Returns the offsets in `start` that are valid for the current topics. A deleted partition
        keeps its offset until `partitions` reports it."""
        known = {}
        for partition, offset in start.items():
            if partition.topic in replaced:
                continue
            if (
                self._rule.adjust_end(partition, offset, latest=latest.get(partition, offset))
                == offset
            ):
                known[partition] = offset
        return known

    def _begin(self, known: Offsets, latest: Offsets) -> Offsets:
        """Returns the start of the next batch: the known offsets, and the log start offset for all
        other partitions (new ones, and those of a recreated topic). Deleted offsets do not count
        towards the limits of a batch. If data loss fails the query, `partitions` reports it, and no
        request is needed here."""
        unknown = self._latest.keys() & latest.keys()
        if self._options.fails_on_data_loss:
            unknown -= known.keys()
        first = self._open_cluster().ends(EARLIEST, unknown) if unknown else {}
        return {
            **first,
            **{partition: max(known[partition], first.get(partition, 0)) for partition in known},
        }

    def _find_replaced_topics(
        self, before: Mapping[str, UUID], now: Mapping[str, UUID]
    ) -> set[str]:
        """Reports and returns the topics that were deleted and recreated."""
        names = {name for name, topic_id in before.items() if now.get(name, topic_id) != topic_id}
        for name in sorted(names):
            self._rule.report_replaced(name, before[name], now[name])
        return names

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        if start == end:
            return []
        begins, ends = from_json(start), from_json(end)
        options, rule, cluster = self._options, self._rule, self._open_cluster()
        topics = self._topics or self._refresh_topics()
        self._commit_progress(start)
        planned = ids_in(end)
        replaced = self._find_replaced_topics(ids_in(start), planned)
        # A repeated batch whose topic was recreated since it was planned is empty; the next batch
        # starts the new topic.
        outdated = self._find_replaced_topics(planned, self._ids)
        rule.report_deleted(begins.keys() - ends.keys())
        existing = cluster.partitions(topics)
        rule.report_deleted(ends.keys() - existing)
        advanced = [
            partition
            for partition in sorted(ends)
            if ends[partition] != begins.get(partition) or partition.topic in replaced
        ]
        readable = {
            partition
            for partition in advanced
            if partition in existing and partition.topic not in outdated
        }
        first = cluster.ends(EARLIEST, readable)
        ranges = []
        for partition in advanced:
            if partition not in readable:
                # It keeps an empty task, so that the tasks of a repeated batch have the same
                # numbers: an exactly-once sink identifies published rows by task number.
                ranges.append(Range(*partition, ends[partition], ends[partition]))
                continue
            begin = begins.get(partition, first[partition])
            if ends[partition] < begin or partition.topic in replaced:
                begin = first[partition]
            begin = rule.adjust_start(partition, begin, earliest=first[partition])
            ranges.append(Range(*partition, begin, ends[partition], topics[partition.topic].id))
        return [
            RangePartition(part)
            for part in split(
                ranges,
                partitions_min=options.partitions_min,
                records_max=options.partition_records_max,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.range)

    def commit(self, end: OffsetJson) -> None:
        """Spark calls this with a batch's end only when the next batch starts. From Spark 4.2 on,
        `latestOffset` also receives the end of the last batch."""
        self._commit_progress(end)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _commit_progress(self, offsets: OffsetJson) -> None:
        """Commits offsets of existing topics only: those of a deleted topic would be wrong for a
        new topic of the same name."""
        ids = ids_in(offsets)
        current = {
            partition: offset
            for partition, offset in from_json(offsets).items()
            if partition.topic in self._topics
            and ids.get(partition.topic) in (None, self._ids.get(partition.topic))
        }
        self._progress.commit(self._open_cluster(), current)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    def _open_cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _refresh_topics(self) -> dict[str, TopicInfo]:
        topics = self._open_cluster().topics()
        self._ids |= {name: topic.id for name, topic in topics.items() if topic.id != ZERO_UUID}
        self._topics = topics
        return topics
