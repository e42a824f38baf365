"""The high watermarks of partitions, for the lag of groups coordinated by this broker.

Those of partitions that this broker leads are read directly. The others are requested from their
leaders, with ListOffsets, after a collection of metrics that asked for them; nothing is requested
if metrics are not collected. So such an offset is as old as the interval between two collections,
at least `REFRESH_MS_MIN`, and older if its leader does not respond, up to `AGE_MS_MAX`.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Runtime, Task
from lograft.model.types import NO_NODE, NodeId, Offset, TopicPartition
from lograft.wire.apis import Versions
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LOGGER: Final = logging.getLogger(__name__)

VERSIONS: Final = Versions(2, 9)
LANE: Final = "metrics"
TIMEOUT_MS: Final = 5_000
#: Timestamp that stands for the high watermark.
LATEST: Final = -1
#: A consumer's request.
NO_REPLICA: Final = -1
#: Offsets are requested at most this often.
REFRESH_MS_MIN: Final = 5_000
#: Older offsets are not used.
AGE_MS_MAX: Final = 120_000
#: Partitions of other leaders whose offsets are requested, and those of one request.
PARTITIONS_MAX: Final = 20_000
KNOWN_MAX: Final = 2 * PARTITIONS_MAX
PARTITIONS_PER_REQUEST: Final = 1_000

REQUESTS: Final = Counter(
    "lograft_end_offset_requests_total",
    "Requests to other brokers for the ends of partitions, to compute the lag of groups.",
)


class Known(NamedTuple):
    offset: Offset
    read_ms: int


class EndOffsets:
    def __init__(
        self,
        runtime: Runtime,
        *,
        metadata: ClusterMetadata,
        partitions: PartitionTable,
        link: BrokerLink,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._partitions = partitions
        self._link = link
        self._known: dict[TopicPartition, Known] = {}
        #: Partitions that `find` was asked for since the last refresh and that are led elsewhere.
        self._wanted: dict[TopicPartition, None] = {}
        self._refreshed_ms = runtime.clock.mono_ms() - REFRESH_MS_MIN
        self._task: Task | None = None
        self._requests = 0

    def find(self, topic: str, index: int) -> Offset | None:
        """Returns the high watermark; None if it is not known (yet)."""
        partition = self._partitions.get(topic, index)
        if partition is not None and partition.leader is not None:
            return partition.high_watermark
        key = TopicPartition(topic, index)
        if len(self._wanted) < PARTITIONS_MAX:
            self._wanted[key] = None
        known = self._known.get(key)
        if known is None or self._runtime.clock.mono_ms() - known.read_ms > AGE_MS_MAX:
            return None
        return known.offset

    def on_collected(self) -> None:
        """All offsets of a collection were asked for: requests those of other leaders for the next
        one."""
        now_ms = self._runtime.clock.mono_ms()
        if self._task is not None or now_ms - self._refreshed_ms < REFRESH_MS_MIN:
            return
        wanted, self._wanted = self._wanted, {}
        if wanted:
            self._refreshed_ms = now_ms
            self._known = {
                key: known
                for key, known in self._known.items()
                if now_ms - known.read_ms <= AGE_MS_MAX
            }
            self._task = self._runtime.spawn(self._refresh(list(wanted)), name="end offsets")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _refresh(self, wanted: list[TopicPartition]) -> None:
        try:
            for leader, partitions in self._by_leader(wanted).items():
                for at in range(0, len(partitions), PARTITIONS_PER_REQUEST):
                    if not await self._request(
                        leader, partitions[at : at + PARTITIONS_PER_REQUEST]
                    ):
                        break
        finally:
            self._task = None

    def _by_leader(self, wanted: list[TopicPartition]) -> dict[NodeId, list[TopicPartition]]:
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        image = self._metadata.image
        for key in wanted:
            topic = image.topic(key.topic)
            state = None if topic is None else topic.partitions.get(key.partition)
            if state is not None and state.leader not in (NO_NODE, self._link.me):
                by_leader.setdefault(NodeId(state.leader), []).append(key)
        return by_leader

    async def _request(self, leader: NodeId, partitions: list[TopicPartition]) -> bool:
        """Returns whether the leader responded."""
        self._requests += 1
        try:
            response = await self._link.request(
                leader,
                _build_request(partitions),
                VERSIONS,
                ListOffsetsResponse,
                timeout_ms=TIMEOUT_MS,
                lane=LANE,
            )
        except (PeerUnreachable, PeerLost) as error:
            LOGGER.debug("could not request the ends of partitions from %d: %s", leader, error)
            return False
        now_ms = self._runtime.clock.mono_ms()
        for topic in response.topics:
            for partition in topic.partitions:
                if not partition.error_code and len(self._known) < KNOWN_MAX:
                    key = TopicPartition(topic.name, partition.partition_index)
                    self._known[key] = Known(Offset(partition.offset), now_ms)
        return True

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)


def _build_request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=index, timestamp=LATEST)
        )
    return ListOffsetsRequest(
        replica_id=NO_REPLICA,
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
    )
