"""Elections that the active controller holds from time to time: leaders go back to the preferred
replicas (`auto.leader.rebalance.enable`), and partitions that nobody leads get a leader, uncleanly
where their topic allows it."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from lograft.broker.errors import NotController
from lograft.metadata.elect_leaders import balance_leaders, elect_where_nobody_leads
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import Outcome
from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import LograftError
from lograft.model.seams import Runtime

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R")


class Elects(Protocol):
    """A decision that holds some elections; its reply says whether there may be more."""

    def __call__(self, image: MetadataImage, *, config: BrokerConfig) -> Outcome[bool]: ...


class ActiveController(Protocol):
    @property
    def is_active(self) -> bool: ...

    async def submit(self, decision: Callable[[MetadataImage], Outcome[R]]) -> R: ...


class LeaderBalancer:
    """A task of a node with the controller's role; it rests while another controller leads."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, controller: ActiveController
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._controller = controller
        self._rounds = 0
        unclean_ms = config.value("unclean.leader.election.interval.ms")
        assert isinstance(unclean_ms, int), unclean_ms
        #: What is to be held, and how often.
        self._elections: list[tuple[Elects, int]] = [(elect_where_nobody_leads, unclean_ms)]
        if config.auto_leader_rebalance_enable:
            balance_ms = config.leader_imbalance_check_interval_seconds * 1000
            self._elections.append((balance_leaders, balance_ms))

    async def run(self) -> None:
        clock = self._runtime.clock
        start_ms = clock.mono_ms()
        due_ms = [start_ms + interval_ms for _, interval_ms in self._elections]
        while True:
            await asyncio.sleep(max(0, min(due_ms) - clock.mono_ms()) / 1000)
            for number, (elect, interval_ms) in enumerate(self._elections):
                if due_ms[number] <= clock.mono_ms():
                    if self._controller.is_active:
                        await self._elect(elect)
                    due_ms[number] = clock.mono_ms() + interval_ms

    async def _elect(self, elect: Elects) -> None:
        """Round by round, so that other decisions come in between."""
        decision = partial(elect, config=self._config)
        try:
            while await self._controller.submit(decision):
                self._rounds += 1
            self._rounds += 1
        except NotController:
            return  # another one goes on
        except LograftError as error:
            LOGGER.warning("the controller's own elections failed, and come again: %s", error)

    def statistics(self) -> dict[str, int]:
        return {"rounds": self._rounds}
