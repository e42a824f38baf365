"""Periodic work of the active controller: elects preferred leaders
(`auto.leader.rebalance.enable`), elects leaders of partitions without one, uncleanly if their topic
allows it, and moves replicas to a broker that has joined (`auto.rebalance.enable`)."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

from lograft.broker.errors import NotController
from lograft.metadata.elect_leaders import balance_leaders, elect_for_leaderless_partitions
from lograft.metadata.image import MetadataImage
from lograft.metadata.rebalancing import rebalance
from lograft.metadata.types import ControllerResult
from lograft.model.errors import LograftError
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Runtime
from lograft.model.settings.broker import BrokerConfig

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R")

ROUNDS: Final = Counter(
    "lograft_leader_balancer_rounds_total",
    "Number of periodic decisions (preferred leaders, leaderless partitions, replica moves) that"
    " this node made as the active controller.",
)


class PeriodicDecision(Protocol):
    """A decision that does part of the work; its reply tells whether there is more."""

    def __call__(self, image: MetadataImage, *, config: BrokerConfig) -> ControllerResult[bool]: ...


class ActiveController(Protocol):
    @property
    def is_active(self) -> bool: ...

    async def submit(self, decision: Callable[[MetadataImage], ControllerResult[R]]) -> R: ...


class LeaderBalancer:
    """A task of a node with the controller role. It does nothing while another controller is
    active."""

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, controller: ActiveController
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._controller = controller
        self._rounds = 0
        unclean_ms = config.value("unclean.leader.election.interval.ms")
        assert isinstance(unclean_ms, int), unclean_ms
        #: Decisions with their interval in ms.
        self._duties: list[tuple[PeriodicDecision, int]] = [
            (elect_for_leaderless_partitions, unclean_ms)
        ]
        if config.auto_leader_rebalance_enable:
            balance_ms = config.leader_imbalance_check_interval_seconds * 1000
            self._duties.append((balance_leaders, balance_ms))
        if config.auto_rebalance_enable:
            self._duties.append((rebalance, config.auto_rebalance_check_interval_ms))

    async def run(self) -> None:
        clock = self._runtime.clock
        start_ms = clock.mono_ms()
        due_ms = [start_ms + interval_ms for _, interval_ms in self._duties]
        while True:
            await asyncio.sleep(max(0, min(due_ms) - clock.mono_ms()) / 1000)
            for number, (decide, interval_ms) in enumerate(self._duties):
                if due_ms[number] <= clock.mono_ms():
                    if self._controller.is_active:
                        await self._run_decision(decide)
                    due_ms[number] = clock.mono_ms() + interval_ms

    async def _run_decision(self, decide: PeriodicDecision) -> None:
        """Repeats the decision, which does part of the work each time, until all is done; other
        decisions can run in between."""
        decision = partial(decide, config=self._config)
        try:
            while await self._controller.submit(decision):
                self._rounds += 1
            self._rounds += 1
        except NotController:
            return  # The new active controller continues.
        except LograftError as error:
            LOGGER.warning("periodic controller task failed, retrying later: %s", error)

    def collect_samples(self) -> Iterator[Sample]:
        yield ROUNDS.sample(self._rounds)
