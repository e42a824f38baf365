"""What a program is told of a rebalance, inside its own call for records."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from lograft.client.consuming.subscription import Subscription
from lograft.client.errors import ClientError
from lograft.client.types import TopicPartition

LOGGER: Final = logging.getLogger(__name__)

Partitions = Collection[TopicPartition]


class ListenerFailed(ClientError):
    """A rebalance listener raised; its error is the cause. The rebalance itself is done.

    try:
        await consumer.poll(timeout_ms=0)
    except ListenerFailed as error:
        print(error.__cause__)
    """


class RebalanceListener:
    """Override what you want to know; the methods may be plain or `async`. They run while the
    program waits for records, never beside it, so they may seek and commit.

    class Tables(RebalanceListener):
        async def on_assigned(self, partitions):
            await load(partitions)
    """

    def on_assigned(self, partitions: Partitions) -> Awaitable[None] | None:
        """These are this consumer's from now on. Nothing of them has been read yet."""
        return None

    def on_revoked(self, partitions: Partitions) -> Awaitable[None] | None:
        """These go to others. They are still this consumer's: its work can be committed."""
        return None

    def on_lost(self, partitions: Partitions) -> Awaitable[None] | None:
        """These may have been others' for a while: nothing can be committed any more."""
        return self.on_revoked(partitions)


class Handover:
    """Takes partitions from the program and gives it new ones, telling its listener."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        commit: Callable[[int | None], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """`commit`: what the program has got, before it loses partitions; within so many
        milliseconds, where there is a limit."""
        self._subscription = subscription
        self._commit = commit
        self._on_change = on_change
        self.listener: RebalanceListener | None = None
        self._failure: ListenerFailed | None = None

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self._subscription.partitions)

    async def commit(self, budget_ms: int | None = None) -> None:
        await self._commit(budget_ms)

    async def revoke(self, gone: Partitions) -> None:
        """Others get these."""
        if gone and self.listener is not None:
            await self._call(self.listener.on_revoked, gone)
        self._keep(self.owned.difference(gone))

    async def lose(self) -> None:
        """Others have got everything already."""
        gone = self.owned
        if gone and self.listener is not None:
            await self._call(self.listener.on_lost, gone)
        self._keep(())

    async def give(self, all_of: Partitions) -> None:
        """What the program has from now on."""
        before = self.owned
        self._keep(all_of)
        fresh = [state for state in self._subscription if state.partition not in before]
        for state in fresh:
            state.is_held = True
        try:
            if self.listener is not None:
                await self._call(self.listener.on_assigned, [state.partition for state in fresh])
        finally:
            for state in fresh:
                state.is_held = False
            self._on_change()

    def raise_failure(self) -> None:
        """What a listener has raised, once everything is in order."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _keep(self, partitions: Partitions) -> None:
        self._subscription.assign(sorted(partitions))
        self._on_change()

    async def _call(
        self, method: Callable[[Partitions], Awaitable[None] | None], partitions: Partitions
    ) -> None:
        try:
            waiting = method(sorted(partitions))
            if inspect.isawaitable(waiting):
                await waiting
        except Exception as error:
            LOGGER.exception("the rebalance listener failed in %s", method.__name__)
            if self._failure is None:
                self._failure = ListenerFailed(
                    f"the rebalance listener failed in {method.__name__}: {error}"
                )
                self._failure.__cause__ = error
