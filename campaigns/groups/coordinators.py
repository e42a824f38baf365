"""Sends requests to a coordinator: finds it through any node, and again after an error."""

from typing import Final, TypeVar

from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.routing import ClusterClient
from lograft.wire.message import Message
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

R = TypeVar("R", bound=Message)

GROUP: Final = 0
TRANSACTION: Final = 1
VERSION: Final = 4
TIMEOUT_MS: Final = 2_000
#: Error codes of requests that had no effect and must be retried with another coordinator.
MOVED: Final = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip


class CoordinatorRoute:
    """Implements `routing.Requests` for the coordinator of a key."""

    leader_epoch: Final = -1

    def __init__(self, cluster: ClusterClient, key: str, key_type: int) -> None:
        self.cluster = cluster
        self.key = key
        self._key_type = key_type
        self._address: Address | None = None

    async def request(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        if self._address is None:
            self._address = await self._find()
        try:
            return await self.cluster.request_to(
                self._address, message, version, response_type, timeout_ms=timeout_ms
            )
        except (NotSent, OutcomeUnknown):
            self._address = None
            raise

    def mark_stale(self) -> None:
        self._address = None

    def handle_error(self, code: int) -> None:
        """Forgets the coordinator if the error code shows that it has moved."""
        if code in MOVED:
            self._address = None

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self.key])
        try:
            response = await self.cluster.request(
                request, VERSION, FindCoordinatorResponse, timeout_ms=TIMEOUT_MS
            )
        except (NotSent, OutcomeUnknown) as error:
            self.cluster.mark_stale()
            raise NotSent(f"no node returned the coordinator of {self.key}: {error}") from None
        coordinator = response.coordinators[0]
        if coordinator.error_code:
            self.cluster.mark_stale()
            raise NotSent(f"{self.key} has no coordinator: {coordinator.error_code}")
        return Address(coordinator.host, coordinator.port)
