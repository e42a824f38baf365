"""The commit rule of a partition, as its leader keeps it.

Invariant of every rule: log start <= high watermark <= log end, and the high watermark never
falls while one leader leads.
"""

from typing import Protocol

from lograft.model.types import Offset


class CommitRule(Protocol):
    """Each call says whether the high watermark moved."""

    #: Records below it are committed: consumers see them, acks=all answers for them.
    high_watermark: Offset

    def on_appended(self, end: Offset) -> bool:
        """The leader's own log now ends at `end`."""

    def on_durable(self, durable: Offset) -> bool:
        """Everything in the leader's own log below `durable` survives a power loss."""

    def require_durable(self, durable_only: bool, *, end: Offset) -> bool:
        """The topic's flush setting changed. What was committed stays committed."""


#: The name that broker/partition.py knows it by.
LeaderRule = CommitRule


class SoleReplica:
    """One replica: what it holds is committed, or what it holds durably when the topic asks for
    a flush before each acknowledgement (flush.messages=1)."""

    __slots__ = ("durable_only", "high_watermark")

    def __init__(self, *, end: Offset, durable: Offset, durable_only: bool) -> None:
        self.durable_only = durable_only
        self.high_watermark = durable if durable_only else end

    def on_appended(self, end: Offset) -> bool:
        if self.durable_only or end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def on_durable(self, durable: Offset) -> bool:
        if durable <= self.high_watermark:
            return False
        self.high_watermark = durable
        return True

    def require_durable(self, durable_only: bool, *, end: Offset) -> bool:
        self.durable_only = durable_only
        return False if durable_only else self.on_appended(end)
