"""The partitions that are assigned to a consumer, and its position in each. Values only; other
modules send the requests.

A partition has one of these states. Its `version` changes whenever the position is set from
outside, so that responses to requests of an earlier version can be discarded.

    UNKNOWN ── committed offset ── VALIDATING ──── FETCHING
       └──── no committed offset ── RESETTING ────────┘
"""

from collections import deque
from collections.abc import Iterable, Iterator, KeysView, Mapping
from enum import Enum
from typing import Final, NamedTuple

from lograft.client.arguments import as_iterable, partition_of
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.reset_policy import ResetPolicy
from lograft.client.errors import WrongUse
from lograft.client.metering.declarations import Distribution
from lograft.client.types import TopicPartition
from lograft.model.errors import LograftError
from lograft.model.types import NO_EPOCH, NO_NODE

#: Slices of a partition that are buffered: one is consumed while the next is being fetched.
SLICES_AHEAD: Final = 2


class Position(NamedTuple):
    #: Offset of the next record.
    offset: int
    #: Leader epoch of the record before it; NO_EPOCH if it is not known.
    epoch: int = NO_EPOCH


class Status(Enum):
    #: The consumer has no position yet; the group's committed offset has to be fetched.
    UNKNOWN = "unknown"
    #: The offset of the reset policy has to be looked up.
    RESETTING = "resetting"
    #: The leader has changed: its log may have diverged from what was fetched.
    VALIDATING = "validating"
    FETCHING = "fetching"


class PartitionState:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.status = Status.UNKNOWN
        #: Position of the next record to return to the application.
        self.position = Position(-1)
        #: Position of the next record to fetch, after the buffered slices.
        self.fetch_position = Position(-1)
        #: Epoch of the leader against whose log `fetch_position` was validated.
        self.leader_epoch: int = NO_EPOCH
        self.reset: ResetPolicy | None = None
        self.is_paused = False
        #: Set while the rebalance listener runs for a new partition, because it may seek.
        self.is_held = False
        #: Whether the brokers let the group read the topic. False until that is checked, if the
        #: application has assigned the partition itself.
        self.is_admitted = True
        self.version = 0
        #: The buffered slices, in order.
        self.slices: deque[CompletedFetch] = deque()
        self.retry_at_ms = 0
        self.preferred_replica: int = NO_NODE
        self.preferred_until_ms = 0
        #: Raised to the application when it has consumed the buffered slices. The partition is not
        #: fetched until then.
        self.error: LograftError | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: Lag and lead when records were returned, for metrics.
        self.lags = Distribution()
        self.leads = Distribution()

    def seek(self, position: Position) -> None:
        """Sets the position to one from the application or to a committed offset."""
        self._discard_slices()
        self.position = self.fetch_position = position
        self.status = Status.FETCHING if position.epoch == NO_EPOCH else Status.VALIDATING
        self.leader_epoch = NO_EPOCH

    def request_reset(self, policy: ResetPolicy) -> None:
        self._discard_slices()
        self.reset = policy
        self.status = Status.RESETTING

    def start_validation(self) -> None:
        """Called when the leader has changed. The buffered slices stay, because they were
        committed."""
        assert self.status is Status.FETCHING, self.status
        self.status = Status.VALIDATING

    def complete_validation(self, leader_epoch: int) -> None:
        self.status = Status.FETCHING
        self.leader_epoch = leader_epoch

    def add_slice(self, fetched: CompletedFetch) -> None:
        self.fetch_position = Position(fetched.next_offset, fetched.last_epoch)
        self.slices.append(fetched)

    def drop_slices(self) -> None:
        """Discards the buffered slices, which are fetched again."""
        self._discard_slices()
        self.fetch_position = self.position

    def can_buffer_slice(self) -> bool:
        return len(self.slices) < SLICES_AHEAD

    def can_fetch(self, now_ms: int) -> bool:
        """Whether it may be fetched, if `can_buffer_slice`."""
        return (
            self.status is Status.FETCHING
            and not self.is_paused
            and not self.is_held
            and self.is_admitted
            and self.error is None
            and self.retry_at_ms <= now_ms
        )

    @property
    def has_position(self) -> bool:
        return self.status in (Status.FETCHING, Status.VALIDATING)

    def lag(self, *, is_read_committed: bool) -> int | None:
        """Returns the number of records between the position and the end offset of the last fetch
        response. None if either is unknown."""
        end = self.last_stable_offset if is_read_committed else self.high_watermark
        return max(0, end - self.position.offset) if self.has_position and end >= 0 else None

    @property
    def lead(self) -> int | None:
        """Returns the number of records between the first offset of the log, as of the last fetch
        response, and the position. None if either is unknown."""
        start = self.log_start_offset
        return max(0, self.position.offset - start) if self.has_position and start >= 0 else None

    @property
    def buffered_bytes(self) -> int:
        return sum(fetched.size_bytes for fetched in self.slices)

    def _discard_slices(self) -> None:
        self.version += 1
        self.slices.clear()
        self.error = None
        self.retry_at_ms = 0


class Subscription:
    """The states of the assigned partitions."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    @property
    def partitions(self) -> KeysView[TopicPartition]:
        return self._states.keys()

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self._states}

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def state(self, partition: TopicPartition) -> PartitionState:
        """Raises WrongUse if the partition is not assigned."""
        state = self._states.get(partition_of(partition))
        if state is None:
            raise WrongUse(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return state

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment. Partitions that were assigned before keep their positions."""
        assignment = dict.fromkeys(map(partition_of, as_iterable(partitions)))
        for removed in self._states.keys() - assignment.keys():
            # Responses in flight are discarded because the version changes.
            self._states.pop(removed)._discard_slices()
        self._states = {
            partition: self._states.get(partition) or PartitionState(partition)
            for partition in assignment
        }

    def rotate(self, state: PartitionState) -> None:
        """Moves the partition to the end of the order in which partitions are read."""
        self._states[state.partition] = self._states.pop(state.partition)

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Returns the positions of the application, of the partitions that have one."""
        return {state.partition: state.position for state in self if state.has_position}
