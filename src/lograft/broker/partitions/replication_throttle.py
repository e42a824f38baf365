"""Throttles of reassignments (KIP-73): limits on the bytes per second that are sent or fetched.

The rates are broker settings, and the throttled replicas are topic settings. An in-sync replica is
never throttled, since it could fall out of the ISR.
"""

from collections import deque
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.partitions.partition import Partition
from lograft.model.types import NodeId

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
#: Interval after which a throttled replica is checked again.
PAUSE_MS: Final = 100
WHOLE_TOPIC: Final = "*"
#: Settings with the number of samples and their length, over which a rate is measured.
REPLICATION_WINDOW: Final = (
    "replication.quota.window.num",
    "replication.quota.window.size.seconds",
)


class ReplicationThrottle:
    """Throttle of one direction on one broker: compares the bytes of the last seconds to the
    rate."""

    __slots__ = (
        "_metadata",
        "_sample_ms",
        "_samples",
        "_setting",
        "_total",
        "_window_ms",
        "exceeded",
    )

    def __init__(
        self,
        setting: str,
        metadata: ClusterMetadata,
        *,
        window: tuple[str, str] = REPLICATION_WINDOW,
    ) -> None:
        self._setting = setting
        self._metadata = metadata
        sample_count, sample_seconds = (int(metadata.config.text(name) or 1) for name in window)
        self._sample_ms = sample_seconds * 1000
        self._window_ms = sample_count * self._sample_ms
        #: (start, bytes), oldest first.
        self._samples: deque[list[int]] = deque()
        self._total = 0
        #: How often the rate was exceeded at a check.
        self.exceeded = 0

    @property
    def rate(self) -> int | None:
        """Bytes per second; None without a limit. A dynamic setting of all brokers or of one."""
        config = self._metadata.config
        text = config.dynamic_broker.get(self._setting, config.dynamic_default.get(self._setting))
        return None if text is None else int(text)

    def record(self, count: int, *, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= self._sample_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += count
        self._total += count
        self._forget(now_ms)

    def is_exceeded(self, *, now_ms: int) -> bool:
        rate = self.rate
        if rate is None:
            return False
        self._forget(now_ms)
        if not self._samples:
            return rate == 0
        # A window shorter than a sample counts as a whole one, so that an initial burst does not
        # appear as a high rate.
        age_ms = max(self._sample_ms, now_ms - self._samples[0][0])
        is_exceeded = self._total * 1000 >= rate * age_ms
        self.exceeded += is_exceeded
        return is_exceeded

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] > self._window_ms:
            self._total -= self._samples.popleft()[1]


def is_throttled(replicas: tuple[str, ...], partition: Partition, node_id: NodeId) -> bool:
    """Whether a `…replication.throttled.replicas` setting includes the replica."""
    return bool(replicas) and (
        WHOLE_TOPIC in replicas or f"{partition.index}:{node_id}" in replicas
    )
