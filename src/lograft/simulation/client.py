"""A small Kafka client over the simulated network: one connection, many requests in flight.

It never retries: what to do about an unknown outcome is the workload's decision, and the history
has to know of it.
"""

from typing import TypeVar

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.peers import Lane
from lograft.model.seams import Address, Transport
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)


class NotSent(Exception):
    """The request never left: it certainly did not happen."""


class OutcomeUnknown(Exception):
    """The request left, and no answer came."""


class SimulatedClient:
    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._lane = Lane(transport, address, client_id=client_id)

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        try:
            return await self._lane.request(message, version, answer, timeout_ms=timeout_ms)
        except PeerUnreachable as error:
            raise NotSent(str(error)) from None
        except PeerLost as error:
            raise OutcomeUnknown(str(error)) from None

    def disconnect(self) -> None:
        self._lane.disconnect()
