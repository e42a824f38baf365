"""The broker that coordinates a group or a transactional id: found when it is needed, forgotten
when it is silent or says that it is another."""

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
    Coordinator as Told,
)
from lograft.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

R = TypeVar("R", bound=Message)

#: Coordinators are asked on connections of their own: answers there may wait for others' logs.
LANE: Final = "coordinator"
#: Answers to JoinGroup and SyncGroup wait for the other members, heartbeats must not wait for them.
JOIN_LANE: Final = "join"
#: Since then a question names several keys.
_MANY_KEYS_SINCE: Final = 4
_MOVED: Final = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class Kind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """Of one key."""

    def __init__(self, core: ClientCore[Any], kind: Kind, key: str) -> None:
        self._core = core
        self.kind = kind
        self.key = key
        self._node: int | None = None

    async def link(self, lane: str = LANE) -> BrokerConnection:
        """A connection to it; raises ClientError, mostly of those that pass."""
        if self._node is None:
            self._node = await self._find()
        try:
            return await self._core.network.link(self._node, lane)
        except ClientError:
            self.forget()
            raise

    async def ask(
        self,
        request: Request,
        answer: type[R],
        *,
        at_least: int = 0,
        at_most: int | None = None,
        lane: str = LANE,
        timeout_ms: int | None = None,
    ) -> R:
        """Asks it once; `timeout_ms`: where that is not request.timeout.ms."""
        link = await self.link(lane)
        try:
            return await link.ask(
                request,
                answer,
                version=link.version_of(answer.KEY, at_least=at_least, at_most=at_most),
                timeout_ms=timeout_ms or self._core.settings.request_timeout_ms,
            )
        except ClientError:
            self.forget()
            raise

    def forget(self) -> None:
        self._node = None

    def heard(self, code: int) -> None:
        """Of an error in its answer: a coordinator that has moved is forgotten."""
        if code in _MOVED:
            self.forget()

    def raise_for(self, code: int, what: str, message: str | None = None) -> None:
        """Raises the error of a code in its answer; a coordinator that has moved is forgotten."""
        self.heard(code)
        if code:
            raise broker_error(code, what, message)

    async def _find(self) -> int:
        what = f"the coordinator of {self.kind.name.lower()} {self.key!r}"
        answer = await self._core.network.ask(self._question, FindCoordinatorResponse)
        told = answer.coordinators[0] if answer.coordinators else _of_old(answer)
        if told.error_code:
            raise broker_error(told.error_code, what, told.error_message)
        broker = Broker(told.node_id, Address(told.host, told.port))
        known = self._core.network.brokers.get(broker.id)
        if known is None or known.address != broker.address:
            self._core.network.learn_broker(broker)
        return broker.id

    def _question(self, version: int) -> FindCoordinatorRequest:
        if version >= _MANY_KEYS_SINCE:
            return FindCoordinatorRequest(key_type=self.kind, coordinator_keys=[self.key])
        return FindCoordinatorRequest(key=self.key, key_type=self.kind)


def _of_old(answer: FindCoordinatorResponse) -> Told:
    return Told(
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )
