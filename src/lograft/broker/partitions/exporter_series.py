"""The series of topics and partitions that kafka_exporter has, under its names and with its labels.

kafka_exporter reports the whole cluster from one process. Here each broker reports the partitions
that it leads, so that all brokers together report each partition once.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.broker.partitions.topic_traffic import TOPIC
from lograft.model.metrics import Gauge, Label, Sample
from lograft.model.settings.broker import BrokerConfig

#: The upper limit of lograft.metrics.partitions.max.
PARTITIONS_MAX: Final = 100_000
PARTITION: Final = Label("partition", PARTITIONS_MAX)

TOPIC_PARTITIONS: Final = Gauge(
    "kafka_topic_partitions",
    "Partitions of the topic; reported by the leader of the first.",
    TOPIC,
)
CURRENT_OFFSET: Final = Gauge(
    "kafka_topic_partition_current_offset", "High watermark of the partition.", TOPIC, PARTITION
)
OLDEST_OFFSET: Final = Gauge(
    "kafka_topic_partition_oldest_offset", "Log start offset of the partition.", TOPIC, PARTITION
)
IN_SYNC_REPLICAS: Final = Gauge(
    "kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition.", TOPIC, PARTITION
)
LEADER: Final = Gauge(
    "kafka_topic_partition_leader", "Node id of the partition's leader.", TOPIC, PARTITION
)
LEADER_IS_PREFERRED: Final = Gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 if the partition is led by its preferred leader, else 0.",
    TOPIC,
    PARTITION,
)
REPLICAS: Final = Gauge(
    "kafka_topic_partition_replicas", "Replicas of the partition.", TOPIC, PARTITION
)
UNDER_REPLICATED: Final = Gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 if the partition has fewer in-sync replicas than replicas, else 0.",
    TOPIC,
    PARTITION,
)


class ExporterSeries:
    def __init__(
        self,
        partitions: PartitionTable,
        config: Callable[[], BrokerConfig],
        partition_count: Callable[[str], int],
    ) -> None:
        """`partition_count` returns the number of partitions of a topic in the cluster."""
        self._partitions = partitions
        self._config = config
        self._partition_count = partition_count

    def collect_samples(self) -> Iterator[Sample]:
        config = self._config()
        if not config.lograft_metrics_kafka_exporter_enable:
            return
        led = self._led_partitions()
        for partition in islice(led, config.lograft_metrics_partitions_max):
            topic = partition.topic
            if partition.index == 0:
                yield TOPIC_PARTITIONS.sample(self._partition_count(topic), topic)
            yield from _series_of(partition)

    def _led_partitions(self) -> Iterator[Partition]:
        """Yields the open partitions that this broker leads, of topics with series of their own."""
        for topic in self._partitions.traffic.shown_topics():
            for partition in list(self._partitions.by_name.get(topic, {}).values()):
                if partition.leader is not None and partition.log is not None:
                    yield partition


def _series_of(partition: Partition) -> Iterator[Sample]:
    log, topic, index = partition.log, partition.topic, str(partition.index)
    assert log is not None, partition
    assignment = partition.assignment
    leader, replicas, in_sync = assignment.leader, assignment.replicas, len(assignment.isr)
    yield CURRENT_OFFSET.sample(partition.high_watermark, topic, index)
    yield OLDEST_OFFSET.sample(log.log_start_offset, topic, index)
    yield IN_SYNC_REPLICAS.sample(in_sync, topic, index)
    yield LEADER.sample(leader, topic, index)
    yield LEADER_IS_PREFERRED.sample(int(leader == replicas[0]), topic, index)
    yield REPLICAS.sample(len(replicas), topic, index)
    yield UNDER_REPLICATED.sample(int(in_sync < len(replicas)), topic, index)
