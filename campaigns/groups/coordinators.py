"""The way to a coordinator: asks any node who it is, and asks again when that turns out wrong."""

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
#: Somebody else coordinates, or nobody knows yet: to be asked again, nothing has happened.
ELSEWHERE: Final = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip


class CoordinatorRoute:
    """A `routing.Requests`."""

    leader_epoch: Final = -1

    def __init__(self, cluster: ClusterClient, key: str, key_type: int) -> None:
        self.cluster = cluster
        self.key = key
        self._key_type = key_type
        self._address: Address | None = None

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        if self._address is None:
            self._address = await self._find()
        try:
            return await self.cluster.request_to(
                self._address, message, version, answer, timeout_ms=timeout_ms
            )
        except (NotSent, OutcomeUnknown):
            self._address = None
            raise

    def look_again(self) -> None:
        self._address = None

    def heed(self, code: int) -> None:
        """An answer's error may say that somebody else is to be asked."""
        if code in ELSEWHERE:
            self._address = None

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self.key])
        try:
            answer = await self.cluster.request(
                request, VERSION, FindCoordinatorResponse, timeout_ms=TIMEOUT_MS
            )
        except (NotSent, OutcomeUnknown) as error:
            self.cluster.look_again()
            raise NotSent(f"nobody tells who coordinates {self.key}: {error}") from None
        found = answer.coordinators[0]
        if found.error_code:
            self.cluster.look_again()
            raise NotSent(f"nobody coordinates {self.key}: {found.error_code}")
        return Address(found.host, found.port)
