"""Requests that fail: a table of faults, and the handler that looks into it before a node does.

Only requests of clients meet faults. Those that do pass through here as coroutines; while the table
is empty nothing is looked at.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lograft.api.router import Router
from lograft.model.errors import ErrorCode
from lograft.model.exchange import (
    CloseConnection,
    DelayedReply,
    EncodedResponse,
    FrameHandler,
    HandlerFactory,
    PendingReply,
    Reply,
)
from lograft.model.seams import Channel
from lograft.testing.refusals import Asked, fails_by_partition, is_asked_for, refused
from lograft.wire.apis import API_VERSIONS, FETCH_KEY

KEYS: Final = {spec.name.lower(): key for key, spec in API_VERSIONS.items()}


@dataclass(eq=False, kw_only=True)
class Fault:
    """What happens to the requests that match: first they are delayed, then the answer is an error,
    or is lost with its connection."""

    key: int
    #: None: any.
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    #: How many requests it will still meet; None: all, until it is removed.
    times: int | None = 1
    delay_seconds: float = 0.0
    code: ErrorCode | None = None
    #: The connection breaks before the request is handled, or when it has been.
    breaks: str = ""
    #: How many requests it has met.
    hits: int = field(default=0, init=False)


#: For a fetch of a session that may be meant: the next one names all that it is for.
SAY_AGAIN: Final = Fault(key=FETCH_KEY, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def key_of(api: str) -> int:
    """By Kafka's name of the API, such as Produce or FindCoordinator."""
    key = KEYS.get(api.lower())
    if key is None:
        raise ValueError(f"there is no API {api!r}: {', '.join(sorted(KEYS))}")
    return key


class Faults:
    """Of a whole cluster; nodes may live in threads."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> Fault:
        if fault.topic is not None and not fails_by_partition(fault.key):
            raise ValueError(f"{API_VERSIONS[fault.key].name} has no faults of single topics")
        with self._lock:
            self._faults += (fault,)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults = tuple(one for one in self._faults if one is not fault)

    def clear(self) -> None:
        with self._lock:
            self._faults = ()

    def meet(self, node_id: int, frame: memoryview, router: Router) -> Fault | None:
        """The first fault that this request is for; it has struck once more then."""
        key = int.from_bytes(frame[:2], "big")
        with self._lock:
            for fault in self._faults:
                if fault.key != key or fault.node not in (None, node_id):
                    continue
                asked = is_asked_for(frame, router, fault.topic, fault.partition)
                if asked is Asked.UNSAID:
                    return SAY_AGAIN
                if asked is Asked.YES:
                    self._strike(fault)
                    return fault
        return None

    def _strike(self, fault: Fault) -> None:
        fault.hits += 1
        if fault.times is not None:
            fault.times -= 1
            if not fault.times:
                self._faults = tuple(one for one in self._faults if one is not fault)

    def interpose(
        self, node_id: int, is_client: Callable[[Channel], bool]
    ) -> Callable[[Router], HandlerFactory]:
        """For `Node`: every connection of a client meets the faults."""

        def between(router: Router) -> HandlerFactory:
            return lambda channel: FaultyHandler(
                self, node_id, router, router(channel), lambda: is_client(channel)
            )

        return between


class FailingRequests:
    """What clusters for tests offer: the requests of clients fail as the test wants."""

    def __init__(self) -> None:
        self.faults = Faults()

    def fail(
        self,
        api: str,
        code: ErrorCode,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        times: int | None = 1,
    ) -> Fault:
        """The next requests of clients get this error as their answer, and nothing else happens.
        `api` is Kafka's name, such as "Produce". With a topic: only that topic, or partition."""
        return self.faults.add(
            Fault(
                key=key_of(api),
                code=ErrorCode(code),
                topic=topic,
                partition=partition,
                node=node,
                times=times,
            )
        )

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
        times: int | None = 1,
    ) -> Fault:
        """The next requests are handled so much later."""
        return self.faults.add(
            Fault(
                key=key_of(api),
                delay_seconds=seconds,
                topic=topic,
                partition=partition,
                node=node,
                times=times,
            )
        )

    def lose_request(self, api: str, *, node: int | None = None, times: int | None = 1) -> Fault:
        """The next requests break their connection, and nothing else happens."""
        return self.faults.add(Fault(key=key_of(api), breaks="before", node=node, times=times))

    def lose_answer(self, api: str, *, node: int | None = None, times: int | None = 1) -> Fault:
        """The next requests are handled, but their connection breaks instead of an answer."""
        return self.faults.add(Fault(key=key_of(api), breaks="after", node=node, times=times))

    def remove(self, fault: Fault) -> None:
        """The fault strikes no more."""
        self.faults.remove(fault)


class FaultyHandler:
    """The frame handler of one connection, with the faults before it."""

    def __init__(
        self,
        faults: Faults,
        node_id: int,
        router: Router,
        inner: FrameHandler,
        is_client: Callable[[], bool],
    ) -> None:
        self._faults = faults
        self._node_id = node_id
        self._router = router
        self._inner = inner
        self._is_client = is_client

    @property
    def frame_bytes_max(self) -> int:
        return self._inner.frame_bytes_max

    @frame_bytes_max.setter
    def frame_bytes_max(self, limit: int) -> None:
        self._inner.frame_bytes_max = limit

    def handle_frame(self, frame: memoryview) -> Reply:
        if self._faults and self._is_client():
            fault = self._faults.meet(self._node_id, frame, self._router)
            if fault is not None:
                # The frame is ours only during this call.
                return PendingReply(self._fail(fault, memoryview(bytearray(frame))))
        return self._inner.handle_frame(frame)

    def on_frames_handled(self) -> None:
        self._inner.on_frames_handled()

    def on_closed(self) -> None:
        self._inner.on_closed()

    async def _fail(self, fault: Fault, frame: memoryview) -> EncodedResponse | None:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.breaks == "before":
            raise CloseConnection("a fault that the test asked for: the request is lost")
        if fault.code is None:
            answer = await settled(self._inner.handle_frame(frame))
        else:
            refusal = refused(frame, self._router, fault.code, fault.topic, fault.partition)
            answer = refusal.answer
            if refusal.rest is not None:
                answer = refusal.merged(await settled(self._inner.handle_frame(refusal.rest)))
        if fault.breaks == "after":
            raise CloseConnection("a fault that the test asked for: the answer is lost")
        return answer


async def settled(reply: Reply) -> EncodedResponse | None:
    """Waits for whatever a handler says it will answer."""
    while isinstance(reply, DelayedReply):
        looked = asyncio.Event()
        reply.begin(looked.set)
        try:
            while (then := reply.try_complete()) is reply:
                await looked.wait()
                looked.clear()
        except asyncio.CancelledError:
            reply.cancel()
            raise
        reply = then
    if isinstance(reply, PendingReply):
        return await reply.response
    return EncodedResponse([reply]) if isinstance(reply, bytes) else reply
