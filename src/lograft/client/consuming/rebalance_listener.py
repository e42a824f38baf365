"""Changes of the assignment and the application's listener for them, which runs inside its own call
for records."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from lograft.client.consuming.group_metrics import GroupMetrics
from lograft.client.consuming.subscription import Subscription
from lograft.client.errors import ClientError
from lograft.client.metering.declarations import Distribution
from lograft.client.types import TopicPartition

LOGGER: Final = logging.getLogger(__name__)

Partitions = Collection[TopicPartition]


class ListenerFailed(ClientError):
    """A rebalance listener raised an exception, which is the cause of this one. The rebalance
    itself has completed.

    try:
        await consumer.poll(timeout_ms=0)
    except ListenerFailed as error:
        print(error.__cause__)
    """


class RebalanceListener:
    """Base class of rebalance listeners. Override the methods you need; they may be plain or
    `async`. They run only while the application waits for records, so they may seek and commit.

    class Tables(RebalanceListener):
        async def on_assigned(self, partitions):
            await load(partitions)
    """

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called after partitions were assigned to this consumer, before any of their records is
        returned."""
        return None

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called before partitions are revoked. They still belong to this consumer, so offsets can
        be committed."""
        return None

    def on_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """Called when partitions may already belong to other members: offsets can no longer be
        committed. Calls `on_revoked` by default."""
        return self.on_revoked(partitions)


class AssignmentUpdater:
    """Changes the assignment of a group member, and calls the rebalance listener."""

    def __init__(
        self,
        subscription: Subscription,
        metrics: GroupMetrics,
        *,
        commit: Callable[[int | None], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """`commit` commits the positions before partitions are revoked. Its argument is a timeout
        in milliseconds, or None."""
        self._subscription = subscription
        self._metrics = metrics
        self._commit = commit
        self._on_change = on_change
        self.listener: RebalanceListener | None = None
        self._failure: ListenerFailed | None = None

    @property
    def owned_partitions(self) -> set[TopicPartition]:
        return set(self._subscription.partitions)

    async def commit(self, timeout_ms: int | None = None) -> None:
        await self._commit(timeout_ms)

    async def revoke(self, revoked: Partitions) -> None:
        """Removes partitions while they still belong to this member."""
        if revoked and self.listener is not None:
            await self._call(self.listener.on_revoked, revoked, self._metrics.revoked_ms)
        self._assign(self.owned_partitions.difference(revoked))

    async def lose(self) -> None:
        """Removes all partitions, which may already belong to other members."""
        lost = self.owned_partitions
        if lost and self.listener is not None:
            await self._call(self.listener.on_lost, lost, self._metrics.lost_ms)
        self._assign(())

    async def assign(self, partitions: Partitions) -> None:
        """Replaces the assignment. New partitions are not fetched before the listener returns."""
        before = self.owned_partitions
        self._assign(partitions)
        added = [state for state in self._subscription if state.partition not in before]
        for state in added:
            state.is_held = True
        try:
            if self.listener is not None:
                await self._call(
                    self.listener.on_assigned,
                    [state.partition for state in added],
                    self._metrics.assigned_ms,
                )
        finally:
            for state in added:
                state.is_held = False
            self._on_change()

    def raise_failure(self) -> None:
        """Raises the error of the listener. Called when the rebalance has completed."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _assign(self, partitions: Partitions) -> None:
        self._subscription.assign(sorted(partitions))
        self._on_change()

    async def _call(
        self,
        method: Callable[[Partitions], Awaitable[None] | None],
        partitions: Partitions,
        times_ms: Distribution,
    ) -> None:
        try:
            with self._metrics.measure(times_ms):
                result = method(sorted(partitions))
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            LOGGER.exception("the rebalance listener failed in %s", method.__name__)
            if self._failure is None:
                self._failure = ListenerFailed(
                    f"the rebalance listener failed in {method.__name__}: {error}"
                )
                self._failure.__cause__ = error
