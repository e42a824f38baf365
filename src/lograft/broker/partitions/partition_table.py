"""The partitions of this broker, found by topic id or by topic name.

Invariant: both maps hold the same partitions. A topic that was deleted and created again under
its old name has a new id, and only the new one is in the table.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from lograft.broker.partitions.lifecycle import PartitionState
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.topic_traffic import TopicTrafficTable
from lograft.broker.partitions.waits import DELAYED
from lograft.model.metrics import Gauge, Sample, enum_label
from lograft.model.types import ReplicationMode
from lograft.storage.log import LogTotals

PARTITIONS: Final = Gauge(
    "lograft_partitions",
    "Partitions that this broker has a replica of.",
    enum_label("role", ("leader", "follower", "none")),
)
PARTITION_STATES: Final = Gauge(
    "lograft_partitions_by_state",
    "Partitions that this broker has a replica of, by the state of their log.",
    enum_label("state", (state.name.lower() for state in PartitionState)),
)
UNDER_REPLICATED: Final = Gauge(
    "lograft_partitions_under_replicated",
    "Under-replicated partitions led by this broker.",
)
UNDER_MIN_ISR: Final = Gauge(
    "lograft_partitions_under_min_isr",
    "Partitions led by this broker that reject acks=all, since they have fewer in-sync replicas"
    " than min.insync.replicas.",
)
AT_MIN_ISR: Final = Gauge(
    "lograft_partitions_at_min_isr",
    "Partitions led by this broker with exactly min.insync.replicas in-sync replicas.",
)
REASSIGNING: Final = Gauge(
    "lograft_partitions_reassigning",
    "Partitions led by this broker whose replicas are being reassigned.",
)
SWITCHING_MODE: Final = Gauge(
    "lograft_partitions_switching_mode",
    "Partitions led by this broker that are changing between the replication modes.",
)
#: In the order of `_Totals.led`.
LED_GAUGES: Final = (UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, REASSIGNING, SWITCHING_MODE)
#: Partitions that are added up between two samples: some tenths of a millisecond.
PARTITIONS_AT_ONCE: Final = 50


class PartitionTable:
    def __init__(self, traffic: TopicTrafficTable) -> None:
        self.traffic = traffic
        #: For the hot path: one look-up per topic, then a plain dict of its partitions.
        self.by_id: dict[UUID, dict[int, Partition]] = {}
        self.by_name: dict[str, dict[int, Partition]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.by_id.values())

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self.by_id.values()):
            yield from list(partitions.values())

    def collect_samples(self) -> Iterator[Sample]:
        partitions = iter(self)
        while True:
            chunk = list(islice(partitions, PARTITIONS_AT_ONCE))
            yield from _Totals(chunk).collect_samples()
            if len(chunk) < PARTITIONS_AT_ONCE:
                break
        yield from self.traffic.collect_samples()

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def get_by_id(self, topic_id: UUID, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        return None if partitions is None else partitions.get(index)

    def add(self, partition: Partition) -> None:
        partitions = self.by_id.setdefault(partition.topic_id, {})
        assert partition.index not in partitions, partition
        partitions[partition.index] = partition
        self.by_name[partition.topic] = partitions

    def remove(self, topic_id: UUID, index: int) -> Partition | None:
        partitions = self.by_id.get(topic_id)
        partition = None if partitions is None else partitions.pop(index, None)
        if partition is not None and not partitions:
            del self.by_id[topic_id]
            if self.by_name.get(partition.topic) is partitions:
                del self.by_name[partition.topic]
                self.traffic.remove(partition.topic)
        return partition

    def of_topic(self, topic_id: UUID) -> list[Partition]:
        return list(self.by_id.get(topic_id, {}).values())


class _Totals:
    """The sums over some partitions."""

    __slots__ = ("delayed", "led", "log", "roles", "states")

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.roles = {"leader": 0, "follower": 0, "none": 0}
        self.states = dict.fromkeys(PartitionState, 0)
        self.led = [0] * len(LED_GAUGES)
        self.delayed = {"produce": 0, "fetch": 0, "delete_records": 0}
        self.log = LogTotals()
        for partition in partitions:
            self.states[partition.state] += 1
            if partition.log is not None:
                self.log.add(partition.log)
            produces, fetches, deletions = partition.count_delayed()
            self.delayed["produce"] += produces
            self.delayed["fetch"] += fetches
            self.delayed["delete_records"] += deletions
            if partition.leader is not None:
                self.roles["leader"] += 1
                self._add_led(partition)
            else:
                self.roles["none" if partition.follower is None else "follower"] += 1

    def _add_led(self, partition: Partition) -> None:
        replicas, isr, _, _, _, _, mode, _, _, adding, removing = partition.assignment
        isr_min = min(partition.config.min_insync_replicas, len(replicas))
        led = self.led
        led[0] += len(isr) < len(replicas) and any(
            replica not in isr and replica not in adding for replica in replicas
        )
        led[1] += len(isr) < isr_min
        led[2] += len(isr) == isr_min
        led[3] += bool(adding or removing)
        led[4] += mode is ReplicationMode.ENTERING or mode is ReplicationMode.LEAVING

    def collect_samples(self) -> Iterator[Sample]:
        for role, count in self.roles.items():
            yield PARTITIONS.sample(count, role)
        for state, count in self.states.items():
            yield PARTITION_STATES.sample(count, state.name.lower())
        for gauge, count in zip(LED_GAUGES, self.led, strict=True):
            yield gauge.sample(count)
        for operation, count in self.delayed.items():
            yield DELAYED.sample(count, operation)
        yield from self.log.collect_samples()
