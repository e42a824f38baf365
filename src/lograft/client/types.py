"""What clients give and take."""

from dataclasses import dataclass
from typing import NamedTuple

from lograft.model.types import TopicPartition

__all__ = ["Acknowledged", "GroupMetadata", "OffsetAndMetadata", "OffsetRange", "TopicPartition"]


class Acknowledged(NamedTuple):
    """Where a record is, and what the broker's acknowledgement promises."""

    topic: str
    partition: int
    #: -1 with acks=0: nobody has said anything.
    offset: int
    #: The record's own time, or the broker's where the topic says LogAppendTime.
    timestamp_ms: int
    #: 0, 1 or -1 (all).
    acks: int

    @property
    def meaning(self) -> str:
        return {
            0: "sent; nobody has said that it arrived",
            1: "in the leader's log; lost if the leader is lost before others have it",
        }.get(self.acks, "in the log of every replica in sync")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Where records are that follow each other."""

    topic: str
    partition: int
    #: -1 with acks=0: nobody has said anything.
    first_offset: int
    count: int


class OffsetAndMetadata(NamedTuple):
    """What a group has committed for a partition: the next record to read, and a note."""

    offset: int
    metadata: str = ""
    #: Of the record before `offset`; -1 where that is not known.
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group: with it a producer commits the consumer's offsets in a
    transaction, and a member that the group has gone on without is refused."""

    group_id: str
    #: Generation of a classic group, member epoch of the new protocol; -1: not a member.
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
