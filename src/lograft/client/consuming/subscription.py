"""Which partitions a consumer has, and where it is in each. Values only; others do the asking.

A partition goes through these states; `version` counts how often its position was set from outside,
so that answers to earlier questions can be told from answers to the last one.

    UNKNOWN ──committed offset── VALIDATING ──── FETCHING
       └────────── none ──────── RESETTING ─────────┘
"""

from collections import deque
from collections.abc import Iterable, Iterator, KeysView, Mapping
from enum import Enum
from typing import Final, NamedTuple

from lograft.client.arguments import as_iterable, partition_of
from lograft.client.consuming.completed_fetches import CompletedFetch
from lograft.client.consuming.reset_policy import ResetPolicy
from lograft.client.errors import WrongUse
from lograft.client.types import TopicPartition
from lograft.model.errors import LograftError
from lograft.model.types import NO_EPOCH, NO_NODE

#: Slices of a partition that are held ready: one is read while the next is on its way.
SLICES_AHEAD: Final = 2


class Position(NamedTuple):
    #: Of the next record.
    offset: int
    #: Of the record before it; NO_EPOCH where that is not known.
    epoch: int = NO_EPOCH


class Status(Enum):
    #: Nobody has said where to begin: the group's committed offset is to be asked for.
    UNKNOWN = "unknown"
    #: The offset that the policy names is to be asked for.
    RESETTING = "resetting"
    #: The leader has changed: its log may have parted from what we read.
    VALIDATING = "validating"
    FETCHING = "fetching"


class PartitionState:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.status = Status.UNKNOWN
        #: Of the next record for the program.
        self.position = Position(-1)
        #: Of the next record to fetch; ahead of `position` by what is in `slices`.
        self.fetch_position = Position(-1)
        #: Of the leader that has validated `fetch_position`.
        self.leader_epoch: int = NO_EPOCH
        self.reset: ResetPolicy | None = None
        self.is_paused = False
        #: While the listener is told of the new partition: it may seek.
        self.is_held = False
        #: Whether brokers let the group read it: asked where the program assigns partitions itself.
        self.is_admitted = True
        self.version = 0
        #: CompletedFetch and not yet given to the program, in order.
        self.slices: deque[CompletedFetch] = deque()
        self.retry_at_ms = 0
        self.preferred_replica: int = NO_NODE
        self.preferred_until_ms = 0
        #: For the program, when it has got what comes before; nothing is fetched until then.
        self.error: LograftError | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def seek(self, position: Position) -> None:
        """To a place that the program or the group names."""
        self._forget_fetched()
        self.position = self.fetch_position = position
        self.status = Status.FETCHING if position.epoch == NO_EPOCH else Status.VALIDATING
        self.leader_epoch = NO_EPOCH

    def request_reset(self, policy: ResetPolicy) -> None:
        self._forget_fetched()
        self.reset = policy
        self.status = Status.RESETTING

    def validate(self) -> None:
        """The leader has changed. Slices that were fetched were committed, so they stay."""
        assert self.status is Status.FETCHING, self.status
        self.status = Status.VALIDATING

    def validated(self, leader_epoch: int) -> None:
        self.status = Status.FETCHING
        self.leader_epoch = leader_epoch

    def fetched(self, one: CompletedFetch) -> None:
        self.fetch_position = Position(one.next_offset, one.last_epoch)
        self.slices.append(one)

    def drop_slices(self) -> None:
        """They will be fetched again."""
        self._forget_fetched()
        self.fetch_position = self.position

    def has_room(self) -> bool:
        return len(self.slices) < SLICES_AHEAD

    def may_fetch(self, now_ms: int) -> bool:
        """If there is room."""
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

    @property
    def buffered_bytes(self) -> int:
        return sum(one.size_bytes for one in self.slices)

    def _forget_fetched(self) -> None:
        self.version += 1
        self.slices.clear()
        self.error = None
        self.retry_at_ms = 0


class Subscription:
    """The assigned partitions."""

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
        """Raises WrongUse."""
        state = self._states.get(partition_of(partition))
        if state is None:
            raise WrongUse(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return state

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these; those that stay keep their positions."""
        wanted = dict.fromkeys(map(partition_of, as_iterable(partitions)))
        for gone in self._states.keys() - wanted.keys():
            # Slices and answers on their way are void.
            self._states.pop(gone)._forget_fetched()
        self._states = {one: self._states.get(one) or PartitionState(one) for one in wanted}

    def rotate(self, state: PartitionState) -> None:
        """The partition goes to the end of the line."""
        self._states[state.partition] = self._states.pop(state.partition)

    def positions(self) -> Mapping[TopicPartition, Position]:
        """Of what the program has got, where that is known."""
        return {one.partition: one.position for one in self if one.has_position}
