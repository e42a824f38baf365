"""A topic as a stream. One reader lives in a process beside the driver as long as its query runs;
its copies in tasks only read.

Offsets come from Spark's checkpoint and go there, with the ids of the topics that they are of; what
is remembered here (the end of an availableNow run, when the last batch was given) is lost with the
process and can be.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lograft.model.types import ZERO_UUID
from lograft.runtime.clock import SystemClock
from lograft.spark.cluster import Cluster, TopicSeen
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
from lograft.spark.planning import Range, backlog, limited, rows_in_bytes, split
from lograft.spark.progress import Progress
from lograft.spark.ranges import RangePartition, read_range
from lograft.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._rule = DataLossRule(options.fails_on_data_loss)
        self._cluster: Cluster | None = None
        self._topics: dict[str, TopicSeen] = {}
        #: Of every topic that was there once, as it was seen last.
        self._ids: dict[str, UUID] = {}
        #: Where an availableNow run ends; None: nowhere.
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._progress = Progress(options, self._clock)
        #: When a batch with news was last given, by the monotonic clock.
        self._last_news_ms = self._clock.mono_ms()

    # ── offsets ──────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> OffsetJson:
        options = self._options
        topics = self._look()
        self._rule.check_there(options.subscription, topics)
        cluster = self._asked()
        start = cluster.resolve(
            "starting",
            options.start,
            cluster.partitions(topics),
            or_latest=options.late_start_is_latest,
        )
        written = to_json(start, self._ids)
        self._tell_progress(written)
        return written

    def latestOffset(
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """`limit` is None before Spark 4.2, which takes all there is."""
        latest = self._available()
        if start is None:
            self._progress.renew(self._asked())
            return to_json(latest, self._ids)
        self._tell_progress(start)
        begun = ids_in(start)
        replaced = self._replaced(begun, self._ids)
        known = self._known(from_json(start), latest, replaced)
        if limit is None or isinstance(limit, ReadAllAvailable):
            return to_json(latest, self._ids)
        begin = self._begin(known, latest)
        ready = backlog(begin, latest)
        if ready < (self._options.trigger_offsets_min or 0) and self._may_wait() and not replaced:
            return to_json(from_json(start), {**self._ids, **begun})
        return to_json(self._admitted(begin, latest, ready), self._ids)

    def reportLatestOffset(self) -> OffsetJson | None:
        return to_json(self._latest) if self._latest else None

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits are ours to keep; Spark only needs to hear that there are some."""
        options = self._options
        if not options.limits_triggers:
            return ReadAllAvailable()
        return ReadMaxRows(options.trigger_offsets_max or (1 << 62))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = None
        self._target = self._available()

    def _available(self) -> Offsets:
        topics = self._look()
        cluster = self._asked()
        latest = self._latest = cluster.ends(LATEST, cluster.partitions(topics))
        if self._target is None:
            return latest
        return {one: min(offset, latest.get(one, offset)) for one, offset in self._target.items()}

    def _admitted(self, begin: Offsets, latest: Offsets, ready: int) -> Offsets:
        options = self._options
        rows = ready
        if options.trigger_offsets_max is not None:
            rows = min(rows, options.trigger_offsets_max)
        if options.trigger_bytes_max is not None and ready:
            sizes = self._asked().row_bytes(begin, latest)
            rows = min(rows, rows_in_bytes(options.trigger_bytes_max, begin, latest, sizes))
        if ready:
            self._last_news_ms = self._clock.mono_ms()
        return limited(begin, latest, rows)

    def _may_wait(self) -> bool:
        """An availableNow run has nothing to wait for."""
        waited_ms = self._clock.mono_ms() - self._last_news_ms
        return self._target is None and waited_ms < self._options.trigger_delay_ms_max

    def _known(self, start: Offsets, latest: Offsets, replaced: set[str]) -> Offsets:
        """Those of `start` that are offsets of the logs there are now. A partition that is gone
        stays where it was until `partitions` tells."""
        known = {}
        for one, offset in start.items():
            if one.topic in replaced:
                continue
            if self._rule.end(one, offset, latest=latest.get(one, offset)) == offset:
                known[one] = offset
        return known

    def _begin(self, known: Offsets, latest: Offsets) -> Offsets:
        """Where the next batch begins: at what is known, and of all other partitions (new ones,
        those of a topic that was created again) at their beginning. Offsets that are gone are no
        part of what a batch may take. Where they fail the query, `partitions` tells, and nobody
        need be asked here."""
        asked = self._latest.keys() & latest.keys()
        if self._options.fails_on_data_loss:
            asked -= known.keys()
        first = self._asked().ends(EARLIEST, asked) if asked else {}
        return {**first, **{one: max(known[one], first.get(one, 0)) for one in known}}

    def _replaced(self, before: Mapping[str, UUID], now: Mapping[str, UUID]) -> set[str]:
        """Topics that were deleted and created again since."""
        found = {name for name, topic_id in before.items() if now.get(name, topic_id) != topic_id}
        for name in sorted(found):
            self._rule.replaced(name, before[name], now[name])
        return found

    # ── tasks ────────────────────────────────────────────────────────────────────────────────

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        if start == end:
            return []
        begins, ends = from_json(start), from_json(end)
        options, rule, cluster = self._options, self._rule, self._asked()
        topics = self._topics or self._look()
        self._tell_progress(start)
        planned = ids_in(end)
        replaced = self._replaced(ids_in(start), planned)
        # Of a batch that comes again, when its topic was created again since it was planned,
        # nothing is left; the next batch begins the new topic.
        outdated = self._replaced(planned, self._ids)
        rule.gone(begins.keys() - ends.keys())
        there = cluster.partitions(topics)
        rule.gone(ends.keys() - there)
        moved = [
            one for one in sorted(ends) if ends[one] != begins.get(one) or one.topic in replaced
        ]
        left = {one for one in moved if one in there and one.topic not in outdated}
        first = cluster.ends(EARLIEST, left)
        ranges = []
        for one in moved:
            if one not in left:
                # It keeps its task: those of a batch that comes again have the numbers that they
                # had, by which an exactly-once sink knows what it has written.
                ranges.append(Range(*one, ends[one], ends[one]))
                continue
            begin = begins.get(one, first[one])
            if ends[one] < begin or one.topic in replaced:
                begin = first[one]
            begin = rule.start(one, begin, earliest=first[one])
            ranges.append(Range(*one, begin, ends[one], topics[one.topic].id))
        return [
            RangePartition(one)
            for one in split(
                ranges,
                partitions_min=options.partitions_min,
                records_max=options.partition_records_max,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.range)

    def commit(self, end: OffsetJson) -> None:
        """Spark tells a batch's end here only when the next one begins. From 4.2 on `latestOffset`
        hears of the last one, too."""
        self._tell_progress(end)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _tell_progress(self, done: OffsetJson) -> None:
        """Offsets of a topic that is no more would be wrong for the one that has its name."""
        ids = ids_in(done)
        there = {
            one: offset
            for one, offset in from_json(done).items()
            if one.topic in self._topics and ids.get(one.topic) in (None, self._ids.get(one.topic))
        }
        self._progress.tell(self._asked(), there)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _look(self) -> dict[str, TopicSeen]:
        seen = self._asked().topics()
        self._ids |= {name: topic.id for name, topic in seen.items() if topic.id != ZERO_UUID}
        self._topics = seen
        return seen
