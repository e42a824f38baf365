"""What a consumer asks of its membership in a group, whichever protocol that speaks.

The program's call for records serves the membership (`serve`): only there does it get and lose
partitions. Beside it a task keeps the membership alive.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from lograft.client.consuming.committed_offsets import Identity
from lograft.client.consuming.rebalance_listener import Handover
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.coordinators import Coordinator
from lograft.client.core import ClientCore


class Interest(NamedTuple):
    """What the program has subscribed to: names, or a pattern."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    def matching(self, names: frozenset[str]) -> frozenset[str]:
        """Of all topics there are, those that the pattern names as a whole."""
        if self.pattern is None:
            return self.topics
        wanted = re.compile(self.pattern)
        return frozenset(name for name in names if wanted.fullmatch(name))


class Patience:
    """How long a member may be silent: max.poll.interval.ms from the end of the program's last call
    for records to the next."""

    def __init__(self, limit_ms: int, now_ms: Callable[[], int]) -> None:
        self.limit_ms = limit_ms
        self._now_ms = now_ms
        #: None: the program waits for records at this moment.
        self._silent_since_ms: int | None = now_ms()

    @property
    def is_called(self) -> bool:
        return self._silent_since_ms is None

    def call_begins(self) -> None:
        self._silent_since_ms = None

    def call_ends(self) -> None:
        self._silent_since_ms = self._now_ms()

    @property
    def is_over(self) -> bool:
        return self._left_ms() < 0

    def time_to_look_ms(self, at_most_ms: int) -> int:
        """So long, or less: who looks then misses no end of it, however short it is beside the
        pauses between heartbeats."""
        left_ms = self._left_ms()
        return at_most_ms if left_ms < 0 else min(at_most_ms, left_ms + 1)

    def _left_ms(self) -> int:
        since_ms = self._silent_since_ms
        return self.limit_ms - (0 if since_ms is None else self._now_ms() - since_ms)


class MembershipContext(NamedTuple):
    """Of a membership."""

    core: ClientCore[ConsumerSettings]
    coordinator: Coordinator
    handover: Handover
    #: There is something to serve.
    on_news: Callable[[], None]
    patience: Patience


class Membership(Protocol):
    def identity(self) -> Identity:
        """Who commits."""

    def start(self) -> None: ...

    def subscribe(self, interest: Interest) -> None:
        """From now on."""

    def rejoin(self, reason: str) -> None:
        """Makes the group share out its partitions again. Raises WrongUse where that is not a
        member's to decide."""

    def needs_serving(self) -> bool:
        """Asked whenever the program calls for records."""

    async def serve(self) -> None:
        """Does what needs the program to stand still. Raises what keeps it out of the group."""

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Commits, gives everything back and goes, all of it within the timeout."""
