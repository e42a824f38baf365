"""The lag of the groups that this broker coordinates: committed offsets against high watermarks.

Lag is counted in offsets, as in Kafka. The number of groups in the metrics is limited by
lograft.metrics.groups.max: those with the largest lag at the last collection have series of their
own, and the lag of all others is added up under `other`. Series of single partitions are limited by
lograft.metrics.partitions.max.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from operator import itemgetter
from typing import Final

from lograft.broker.coordinators.end_offsets import EndOffsets
from lograft.broker.partitions.exporter_series import PARTITION
from lograft.broker.partitions.topic_traffic import TOPIC
from lograft.coordination.group import Group
from lograft.coordination.group_shard import GroupShard
from lograft.coordination.offset_table import Committed
from lograft.model.metrics import OTHER, Gauge, Label, Sample
from lograft.model.progress_groups import is_progress
from lograft.model.seams import Clock
from lograft.model.settings.broker import BrokerConfig

#: The upper limit of lograft.metrics.groups.max.
GROUPS_MAX: Final = 10_000
#: Partitions between two samples: some tenths of a millisecond.
PARTITIONS_AT_ONCE: Final = 100

GROUP: Final = Label("group", GROUPS_MAX + 1)
CONSUMERGROUP: Final = Label("consumergroup", GROUPS_MAX + 1)

LAG: Final = Gauge(
    "lograft_group_lag",
    "Records between the committed offsets of a group and the high watermarks of its partitions.",
    GROUP,
)
PARTITION_LAG: Final = Gauge(
    "lograft_group_partition_lag",
    "Records between the committed offset of a group and the high watermark of the partition.",
    GROUP,
    TOPIC,
    PARTITION,
)
LAG_UNKNOWN: Final = Gauge(
    "lograft_group_lag_unknown_partitions",
    "Partitions with committed offsets whose high watermark this broker does not know (yet).",
)
PROGRESS_GROUPS: Final = Gauge(
    "lograft_spark_progress_groups",
    "Groups coordinated by this broker to which Spark queries commit their positions.",
)
PROGRESS_AGE: Final = Gauge(
    "lograft_spark_progress_age_seconds",
    "Time since a Spark query last committed its position to the group.",
    GROUP,
)
EXPORTER_OFFSET: Final = Gauge(
    "kafka_consumergroup_current_offset",
    "Committed offset of the group.",
    CONSUMERGROUP,
    TOPIC,
    PARTITION,
)
EXPORTER_OFFSET_SUM: Final = Gauge(
    "kafka_consumergroup_current_offset_sum",
    "Sum of the committed offsets of the group in the topic.",
    CONSUMERGROUP,
    TOPIC,
)
EXPORTER_LAG: Final = Gauge(
    "kafka_consumergroup_lag",
    "Records between the committed offset of the group and the high watermark.",
    CONSUMERGROUP,
    TOPIC,
    PARTITION,
)
EXPORTER_LAG_SUM: Final = Gauge(
    "kafka_consumergroup_lag_sum",
    "Sum of the group's lag in all partitions of the topic.",
    CONSUMERGROUP,
    TOPIC,
)
EXPORTER_MEMBERS: Final = Gauge(
    "kafka_consumergroup_members", "Members of the group.", CONSUMERGROUP
)


class GroupLag:
    def __init__(
        self,
        ends: EndOffsets,
        *,
        shards: Callable[[], Iterable[GroupShard]],
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        """`shards` returns those that this broker coordinates and has loaded."""
        self._ends = ends
        self._shards = shards
        self._config = config
        self._clock = clock
        #: The groups with series of their own; None if all have some.
        self._shown: set[str] | None = None

    def collect_samples(self) -> Iterator[Sample]:
        config = self._config()
        collection = _Collection(
            self._ends,
            self._shown,
            groups_max=config.lograft_metrics_groups_max,
            partitions_max=config.lograft_metrics_partitions_max,
            with_exporter=config.lograft_metrics_kafka_exporter_enable,
            wall_ms=self._clock.wall_ms(),
        )
        yield LAG.sample(0, OTHER)
        yield LAG_UNKNOWN.sample(0)
        yield PROGRESS_GROUPS.sample(0)
        for shard in self._shards():
            for group in list(shard.groups.values()):
                yield from collection.add_group(shard, group)
        self._shown = collection.find_largest()
        self._ends.on_collected()
        yield from self._ends.collect_samples()


class _Collection:
    """One collection: which groups and how many partitions have had series so far."""

    def __init__(
        self,
        ends: EndOffsets,
        shown: set[str] | None,
        *,
        groups_max: int,
        partitions_max: int,
        with_exporter: bool,
        wall_ms: int,
    ) -> None:
        self._ends = ends
        self._shown = shown
        self._groups_max = groups_max
        self._partitions_left = partitions_max
        self._with_exporter = with_exporter
        self._wall_ms = wall_ms
        self._groups_left = groups_max
        self._lag_of: list[tuple[int, str]] = []

    def find_largest(self) -> set[str] | None:
        """Returns the groups with the largest lag; None if there is room for all."""
        if len(self._lag_of) <= self._groups_max:
            return None
        return {group for _, group in nlargest(self._groups_max, self._lag_of, key=itemgetter(0))}

    def add_group(self, shard: GroupShard, group: Group) -> Iterator[Sample]:
        group_id = group.group_id
        positions = shard.offsets.of(group_id)
        is_shown = self._is_shown(group_id)
        label = group_id if is_shown else OTHER
        if is_shown and self._with_exporter:
            yield EXPORTER_MEMBERS.sample(len(group.members), group_id)
        lag = 0
        newest_ms: int | None = None
        for topic, partitions in list(positions.items()):
            committed = list(partitions.items())
            for _, position in committed[:1]:
                if is_progress(position.metadata):
                    newest_ms = max(newest_ms or 0, position.commit_ms)
            has_series = is_shown and self._partitions_left > 0
            for at in range(0, len(committed), PARTITIONS_AT_ONCE):
                chunk = committed[at : at + PARTITIONS_AT_ONCE]
                chunk_lag, samples = self._add_partitions(group_id, topic, chunk, has_series)
                lag += chunk_lag
                yield LAG.sample(chunk_lag, label)
                yield from samples
        self._lag_of.append((lag, group_id))
        if newest_ms is not None:
            yield PROGRESS_GROUPS.sample(1)
            if is_shown:
                yield PROGRESS_AGE.sample(max(0, self._wall_ms - newest_ms) / 1000, group_id)

    def _is_shown(self, group_id: str) -> bool:
        if group_id == OTHER or (self._shown is not None and group_id not in self._shown):
            return False
        if self._groups_left == 0:
            return False
        self._groups_left -= 1
        return True

    def _add_partitions(
        self, group_id: str, topic: str, committed: list[tuple[int, Committed]], has_series: bool
    ) -> tuple[int, list[Sample]]:
        """Returns the lag in these partitions, and their samples."""
        samples: list[Sample] = []
        lag_sum = offset_sum = unknown = 0
        for index, position in committed:
            end = self._ends.find(topic, index)
            # The committed offset may be newer than the high watermark.
            lag = 0 if end is None else max(0, end - position.offset)
            lag_sum += lag
            offset_sum += position.offset
            unknown += end is None
            if not has_series or self._partitions_left == 0:
                continue
            self._partitions_left -= 1
            label = str(index)
            if self._with_exporter:
                samples.append(EXPORTER_OFFSET.sample(position.offset, group_id, topic, label))
            if end is not None:
                samples.append(PARTITION_LAG.sample(lag, group_id, topic, label))
                if self._with_exporter:
                    samples.append(EXPORTER_LAG.sample(lag, group_id, topic, label))
        if has_series and self._with_exporter:
            samples.append(EXPORTER_OFFSET_SUM.sample(offset_sum, group_id, topic))
            samples.append(EXPORTER_LAG_SUM.sample(lag_sum, group_id, topic))
        samples.append(LAG_UNKNOWN.sample(unknown))
        return lag_sum, samples
