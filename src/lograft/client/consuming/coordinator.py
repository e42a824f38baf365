"""The broker that coordinates a group: found when it is needed, looked for again when it is not."""

import asyncio
from typing import Any, Final, TypeVar

from lograft.client.backoff import backoff_ms
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, TimedOut, broker_error, raise_for
from lograft.client.link import Link, Request
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

GROUP: Final = 0
#: Of FindCoordinator, from which on it is asked for many keys at once.
_MANY_KEYS_SINCE: Final = 4
GROUP_LANE: Final = "group"
#: A broker answers the requests of a connection in order, and a JoinGroup may wait for minutes.
JOIN_LANE: Final = "join"
#: Answers after which somebody else is to be asked.
MOVED: Final = frozenset((ErrorCode.not_coordinator, ErrorCode.coordinator_not_available))


class Coordinator:
    def __init__(self, core: ClientCore[Any], group_id: str) -> None:
        self._core = core
        self.group_id = group_id
        self._node: int | None = None
        self._finding = asyncio.Lock()
        self._failures = 0

    @property
    def node(self) -> int | None:
        return self._node

    async def ask(
        self,
        request: Request,
        answer: type[R],
        *,
        lane: str = GROUP_LANE,
        timeout_ms: int | None = None,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> R:
        """Asks the coordinator, once. Raises ConnectionFailed, OutcomeUnknown, BrokerError (where
        there is no coordinator) or UnsupportedByBroker."""
        link = await self.link(lane)
        try:
            return await link.ask(
                request,
                answer,
                version=link.version_of(answer.KEY, at_least=at_least, at_most=at_most),
                timeout_ms=timeout_ms or self._core.settings.request_timeout_ms,
            )
        except ClientError:
            if link.is_closed:
                self.moved()
            raise

    async def link(self, lane: str = GROUP_LANE) -> Link:
        node = await self._find()
        try:
            return await self._core.network.link(node, lane)
        except ClientError:
            self.moved()
            raise

    def moved(self) -> None:
        """It is looked for again before the next question."""
        self._node = None

    def heard(self, code: int) -> None:
        """Of every error in an answer."""
        if code in MOVED:
            self.moved()

    async def back_off(self, failures: int, deadline_ms: int, error: ClientError) -> None:
        """Before the next attempt; TimedOut when there is no time for one."""
        settings = self._core.settings
        wait_ms = backoff_ms(
            settings.retry_backoff_ms,
            settings.retry_backoff_max_ms,
            failures,
            self._core.runtime.randomness,
        )
        if self._core.now_ms() + wait_ms >= deadline_ms:
            raise TimedOut(
                f"group {self.group_id!r} did not answer in time; the last: {error}"
            ) from error
        await asyncio.sleep(wait_ms / 1000)

    async def _find(self) -> int:
        async with self._finding:
            if self._node is not None and self._node in self._core.network.brokers:
                return self._node
            answer = await self._core.network.ask(self._question, FindCoordinatorResponse)
            found = _found(answer)
            raise_for(
                found.error_code, f"the coordinator of group {self.group_id!r}", found.error_message
            )
            if found.node_id not in self._core.network.brokers:
                address = Address(found.host, found.port)
                self._core.network.learn_broker(Broker(found.node_id, address))
            self._node = found.node_id
            return found.node_id

    def _question(self, version: int) -> FindCoordinatorRequest:
        if version >= _MANY_KEYS_SINCE:
            return FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[self.group_id])
        return FindCoordinatorRequest(key=self.group_id, key_type=GROUP)


def _found(answer: FindCoordinatorResponse) -> FoundCoordinator:
    if answer.coordinators:
        return answer.coordinators[0]
    if not answer.error_code and answer.node_id < 0:
        raise broker_error(ErrorCode.coordinator_not_available, "find a coordinator")
    return FoundCoordinator(
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )
