"""The interface between a consumer and its group membership, which is the same for both group
protocols.

Every poll (`poll`, `fetch_arrow`, a step of `async for`) serves the membership: partitions are
assigned and revoked only in `serve`. A task sends the heartbeats.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from lograft.client.consuming.committed_offsets import CommitIdentity
from lograft.client.consuming.group_metrics import GroupMetrics
from lograft.client.consuming.rebalance_listener import AssignmentUpdater
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.coordinators import Coordinator
from lograft.client.core import ClientCore

#: The part of the timeout of `leave` that is kept for the request that leaves the group.
_LEAVE_MS: Final = 5_000


def commit_timeout_ms(timeout_ms: int) -> int:
    """Returns how much of the timeout of `leave` the commit before it may use."""
    return timeout_ms - min(timeout_ms // 2, _LEAVE_MS)


class TopicSelection(NamedTuple):
    """The topics that the application has subscribed to: names, or a pattern."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def match(self, names: frozenset[str]) -> frozenset[str]:
        """Returns the subscribed names, or those of `names` that the whole pattern matches."""
        if self.pattern is None:
            return self.topics
        pattern = re.compile(self.pattern)
        return frozenset(name for name in names if pattern.fullmatch(name))


class PollTimer:
    """Measures max.poll.interval.ms from the end of one poll to the start of the next."""

    def __init__(self, limit_ms: int, now_ms: Callable[[], int]) -> None:
        self.limit_ms = limit_ms
        self._now_ms = now_ms
        #: When the last poll ended; None: a poll is in progress.
        self._last_poll_ms: int | None = now_ms()

    @property
    def is_polling(self) -> bool:
        return self._last_poll_ms is None

    def start_poll(self) -> None:
        self._last_poll_ms = None

    def end_poll(self) -> None:
        self._last_poll_ms = self._now_ms()

    @property
    def has_expired(self) -> bool:
        return self._remaining_ms() < 0

    def next_check_ms(self, interval_ms: int) -> int:
        """Returns how long to wait until `has_expired` is checked again: at most `interval_ms`, and
        not longer than until the timer expires, even if that is much earlier than the next
        heartbeat."""
        remaining_ms = self._remaining_ms()
        return interval_ms if remaining_ms < 0 else min(interval_ms, remaining_ms + 1)

    def _remaining_ms(self) -> int:
        last_ms = self._last_poll_ms
        return self.limit_ms - (0 if last_ms is None else self._now_ms() - last_ms)


class MembershipContext(NamedTuple):
    """What a membership needs from its consumer."""

    core: ClientCore[ConsumerSettings]
    coordinator: Coordinator
    assignment: AssignmentUpdater
    #: Called when `needs_serving` may have become true.
    on_change: Callable[[], None]
    poll_timer: PollTimer
    metrics: GroupMetrics


class Membership(Protocol):
    def commit_identity(self) -> CommitIdentity:
        """Returns the member id and epoch for commits."""

    def start(self) -> None: ...

    def subscribe(self, selection: TopicSelection) -> None:
        """Replaces the subscribed topics."""

    def rejoin(self, reason: str) -> None:
        """Triggers a rebalance. Raises WrongUse if only the coordinator can do that."""

    def needs_serving(self) -> bool:
        """Checked in every poll."""

    async def serve(self) -> None:
        """Applies changes to the assignment. Runs during a poll, when the application processes no
        records. Raises the error that keeps the consumer out of the group."""

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Commits, revokes all partitions and leaves the group, all within the timeout."""
