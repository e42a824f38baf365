"""What a consumer asks of its membership in a group, whichever protocol that speaks.

The program's call for records serves the membership (`serve`): only there does it get and lose
partitions. Beside it a task keeps the membership alive.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from lograft.client.consuming.commits import Identity
from lograft.client.consuming.listeners import Handover
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


class Surroundings(NamedTuple):
    """Of a membership."""

    core: ClientCore[ConsumerSettings]
    coordinator: Coordinator
    handover: Handover
    #: There is something to serve.
    on_news: Callable[[], None]
    #: Whether the program waits for records at this moment.
    is_polled: Callable[[], bool]


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
        """Asked whenever the program calls for records, which shows that it is alive."""

    async def serve(self) -> None:
        """Does what needs the program to stand still. Raises what keeps it out of the group."""

    async def leave(self, reason: str, timeout_ms: int) -> None:
        """Gives everything back and goes."""
