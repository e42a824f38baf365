"""Producer ids: handed out from blocks that the controller allocates."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from lograft.broker.links.controller_link import ControllerLink
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Gauge, Sample
from lograft.model.types import NodeId, ProducerId
from lograft.wire.apis import Versions
from lograft.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

VERSIONS: Final = Versions(0, 0)
#: How long a request for an id waits for the controller. Clients retry.
TIMEOUT_MS: Final = 10_000
LANE: Final = "producer-ids"

AVAILABLE: Final = Gauge(
    "lograft_producer_ids_available",
    "Producer ids that this broker can assign before it asks the controller for more.",
)


class ProducerIds:
    """Unused ids in the block of a broker that stops are lost. There are 2^63 of them."""

    __slots__ = ("_asking", "_broker_epoch", "_end", "_link", "_next", "_node_id")

    def __init__(
        self, node_id: NodeId, *, broker_epoch: Callable[[], int], link: ControllerLink
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._link = link
        self._next = 0
        self._end = 0
        self._asking = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Returns an id. Only one call in a thousand waits for the controller."""
        await self.wait_some()
        return self.take()

    async def wait_some(self) -> None:
        """Waits until an id is available to `take`. Raises ControllerUnreachable or Rejected."""
        while self._next >= self._end:
            async with self._asking:
                if self._next >= self._end:
                    await self._fetch()

    def take(self) -> ProducerId:
        """Returns an id without waiting, for commands. Raises Rejected if none is available."""
        if self._next >= self._end:
            raise Rejected(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No producer id is available yet."
            )
        producer_id = ProducerId(self._next)
        self._next += 1
        return producer_id

    async def _fetch(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        reply = await self._link.request(
            request, VERSIONS, AllocateProducerIdsResponse, timeout_ms=TIMEOUT_MS, lane=LANE
        )
        if reply.error_code:
            code = ErrorCode(reply.error_code)
            raise Rejected(code, f"The controller allocated no producer ids: {code.name}.")
        self._next = reply.producer_id_start
        self._end = self._next + reply.producer_id_len

    def collect_samples(self) -> Iterator[Sample]:
        yield AVAILABLE.sample(self._end - self._next)
