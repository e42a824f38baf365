"""The way of a broker to the active controller, wherever it is.

A request is tried until an active controller has answered it: in this process without a socket, or
at the address that the quorum names. Who is not active answers NOT_CONTROLLER; that, a lost
connection and a refused one lead to a new look at the quorum. A request may therefore reach two
controllers one after the other: what it asks for must be safe to ask twice.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Protocol, TypeVar, cast

from lograft.broker.errors import ControllerUnreachable, NotController, PeerLost, PeerUnreachable
from lograft.broker.links.peers import Peers
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Runtime
from lograft.wire.apis import Versions
from lograft.wire.message import Message

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

#: One attempt; a controller that takes longer may have been stopped by its machine.
ATTEMPT_MS_MAX: Final = 10_000
#: Pauses between attempts at the same place grow from the one to the other.
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
#: How soon a new controller is noticed while something waits for the old one.
LOOK_MS: Final = 25
#: At most one line in this time says that the controller does not answer.
LOG_INTERVAL_MS: Final = 10_000


class QuorumPort(Protocol):
    """What the link asks of the metadata quorum (broker/quorum/raft_driver.py)."""

    @property
    def is_leader(self) -> bool: ...

    def leader_endpoint(self) -> Address | None:
        """Where the leader of the quorum listens for controller requests, if one is known."""


class CallHere(Protocol):
    def __call__(self, message: Message, version: int) -> Awaitable[Message]:
        """The answer of this node's own controller, NOT_CONTROLLER inside it if it has stopped
        being the active one."""


class _Here:
    """In the place of an address: the active controller is in this process."""

    def __repr__(self) -> str:
        return "this process"


HERE: Final = _Here()


class ControllerLink:
    def __init__(
        self,
        runtime: Runtime,
        quorum: QuorumPort,
        peers: Peers,
        *,
        listener: str = "",
        call_here: CallHere | None = None,
    ) -> None:
        """`listener`: the name under which controllers listen; `call_here` may be set later."""
        self._runtime = runtime
        self._quorum = quorum
        self._peers = peers
        self._listener = listener
        self.call_here = call_here
        self._logged_ms = -LOG_INTERVAL_MS
        self._requests = 0
        self._repeats = 0

    @property
    def is_here(self) -> bool:
        """Whether the active controller is in this process."""
        return self._quorum.is_leader and self.call_here is not None

    async def request(
        self,
        message: Message,
        versions: Versions,
        answer: type[R],
        *,
        timeout_ms: int | None = None,
        attempt_ms: int = ATTEMPT_MS_MAX,
        lane: str = "control",
        lograft_only: bool = False,
    ) -> R:
        """The answer of the active controller. Raises ControllerUnreachable when the time is over;
        without a timeout it tries until it is cancelled. `attempt_ms`: how long one controller may
        take to answer before it is asked again. `lograft_only`: see `Peers.request`."""
        clock = self._runtime.clock
        deadline_ms = None if timeout_ms is None else clock.mono_ms() + timeout_ms
        pause_ms = PAUSE_MS_MIN
        self._requests += 1
        while True:
            where = self._where()
            left_ms = attempt_ms if deadline_ms is None else deadline_ms - clock.mono_ms()
            reason = "the quorum has no leader"
            if where is not None and left_ms > 0:
                try:
                    reply = await self._try(
                        where,
                        message,
                        versions,
                        answer,
                        timeout_ms=min(left_ms, attempt_ms),
                        lane=lane,
                        lograft_only=lograft_only,
                    )
                    if not has_error(reply, ErrorCode.not_controller):
                        return reply
                    reason = f"{where} is not the active controller"
                except (PeerUnreachable, PeerLost, NotController) as error:
                    reason = str(error)
            self._repeats += 1
            self._say(message, reason)
            if deadline_ms is not None and clock.mono_ms() + pause_ms >= deadline_ms:
                raise ControllerUnreachable(
                    f"no active controller responded within {timeout_ms} ms: {reason}"
                )
            if await self._pause(where, pause_ms):
                pause_ms = PAUSE_MS_MIN
            else:
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    def _where(self) -> Address | _Here | None:
        return HERE if self.is_here else self._quorum.leader_endpoint()

    async def _try(
        self,
        where: Address | _Here,
        message: Message,
        versions: Versions,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str,
        lograft_only: bool,
    ) -> R:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        moved = False

        def look() -> None:
            nonlocal timer, moved
            if self._has_moved(where):
                moved = True
                limit.reschedule(loop.time())
            else:
                timer = loop.call_later(LOOK_MS / 1000, look)

        try:
            async with asyncio.timeout(timeout_ms / 1000) as limit:
                timer = loop.call_later(LOOK_MS / 1000, look)
                if where is HERE:
                    assert self.call_here is not None
                    return cast(R, await self.call_here(message, versions.newest))
                assert isinstance(where, Address)
                return await self._peers.request(
                    where,
                    message,
                    versions,
                    answer,
                    timeout_ms=timeout_ms,
                    lane=lane,
                    lograft_only=lograft_only,
                    listener=self._listener,
                )
        except TimeoutError:
            why = "another controller took over" if moved else f"none within {timeout_ms} ms"
            raise PeerLost(f"no response from {where}: {why}") from None
        finally:
            if timer is not None:
                timer.cancel()

    def _has_moved(self, tried: Address | _Here | None) -> bool:
        where = self._where()
        return where is not None and where != tried

    async def _pause(self, tried: Address | _Here | None, pause_ms: int) -> bool:
        """Ends early, with True, when the quorum names another place."""
        clock = self._runtime.clock
        until_ms = clock.mono_ms() + pause_ms
        while not self._has_moved(tried):
            left_ms = until_ms - clock.mono_ms()
            if left_ms <= 0:
                return False
            await asyncio.sleep(min(left_ms, LOOK_MS) / 1000)
        return True

    def _say(self, message: Message, reason: str) -> None:
        now_ms = self._runtime.clock.mono_ms()
        if now_ms - self._logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            LOGGER.info("%s is waiting for the controller: %s", type(message).__name__, reason)

    def statistics(self) -> dict[str, int]:
        return {"controller_requests": self._requests, "controller_repeats": self._repeats}


def has_error(message: Message, code: ErrorCode) -> bool:
    """Whether the code stands anywhere in a response: some have one for the whole of it, others
    one for each thing asked for."""
    for field in message.FIELDS:
        value: Any = getattr(message, field.name)
        if field.name == "error_code":
            if value == code:
                return True
        elif field.kind == "array":
            has_structs = isinstance(field.element, type)
            if has_structs and any(has_error(element, code) for element in value or ()):
                return True
        elif field.kind == "struct" and value is not None and has_error(value, code):
            return True
    return False
