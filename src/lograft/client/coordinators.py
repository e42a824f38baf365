"""The coordinator of a group or a transactional id. It is looked up when it is needed, and again
after it did not respond or is no longer the coordinator."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from lograft.client.broker_connection import BrokerConnection, Request
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, broker_error
from lograft.client.network import Broker
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address
from lograft.wire.message import Message
from lograft.wire.messages.find_coordinator import (
    Coordinator as FoundCoordinator,
)
from lograft.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

R = TypeVar("R", bound=Message)

#: Coordinator requests have their own connections: their responses may wait for replication.
LANE: Final = "coordinator"
#: Responses to JoinGroup and SyncGroup wait for other members; heartbeats must not.
JOIN_LANE: Final = "join"
#: Since this version a FindCoordinator request contains several keys.
_MANY_KEYS_SINCE: Final = 4
_MOVED: Final = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
#: The meaning of error codes in responses about groups that contain no message.
ERROR_REASONS: Final[Mapping[int, str]] = {
    ErrorCode.POLICY_VIOLATION: "another group reads it point to point (subscription.mode=ptp)",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group no longer exists, or it is not a consumer group"
    " (`lograft groups list` shows its type)",
}


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """The coordinator of one key."""

    def __init__(self, core: ClientCore[Any], type: CoordinatorType, key: str) -> None:
        self._core = core
        self.type = type
        self.key = key
        self._node: int | None = None

    async def connect(self, lane: str = LANE) -> BrokerConnection:
        """Returns a connection to the coordinator. Raises ClientError, usually retriable."""
        if self._node is None:
            self._node = await self._find()
        try:
            return await self._core.network.connect(self._node, lane)
        except ClientError:
            self.forget()
            raise

    async def request(
        self,
        request: Request,
        response_type: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        lane: str = LANE,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends a request once and returns its response. `timeout_ms` defaults to
        request.timeout.ms."""
        connection = await self.connect(lane)
        try:
            return await connection.request(
                request,
                response_type,
                version=connection.version_of(
                    response_type.KEY, at_least=at_least, at_most=at_most
                ),
                timeout_ms=timeout_ms or self._core.settings.request_timeout_ms,
            )
        except ClientError:
            self.forget()
            raise

    def forget(self) -> None:
        """The next request looks up the coordinator again."""
        self._node = None

    def forget_if_moved(self, code: int) -> None:
        """Forgets the coordinator if its error code means that it has moved."""
        if code in _MOVED:
            self.forget()

    def raise_for(self, code: int, what: str, message: str | None = None) -> None:
        """Raises the error for a code in a response. Forgets a coordinator that has moved."""
        self.forget_if_moved(code)
        if code:
            raise broker_error(code, what, message)

    async def _find(self) -> int:
        what = f"the coordinator of {self.type.name.lower()} {self.key!r}"
        response = await self._core.network.request(self._find_request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else _first_format(response)
        if found.error_code:
            raise broker_error(found.error_code, what, found.error_message)
        broker = Broker(found.node_id, Address(found.host, found.port))
        known = self._core.network.brokers.get(broker.id)
        if known is None or known.address != broker.address:
            self._core.network.update_broker(broker)
        return broker.id

    def _find_request(self, version: int) -> FindCoordinatorRequest:
        if version >= _MANY_KEYS_SINCE:
            return FindCoordinatorRequest(key_type=self.type, coordinator_keys=[self.key])
        return FindCoordinatorRequest(key=self.key, key_type=self.type)


def _first_format(response: FindCoordinatorResponse) -> FoundCoordinator:
    """Returns the coordinator from a response of version 3 or earlier."""
    return FoundCoordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
