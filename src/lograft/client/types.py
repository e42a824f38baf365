"""What clients give and take."""

from dataclasses import dataclass
from typing import NamedTuple

from lograft.model.types import TopicPartition

__all__ = ["Acknowledged", "OffsetRange", "TopicPartition"]


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
