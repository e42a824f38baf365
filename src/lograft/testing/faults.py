"""Faults of requests: the faults of a cluster, and the frame handler that applies them.

Faults apply to requests of clients only. A request with a fault is handled in a coroutine; while
there are no faults, frames are passed on without being parsed.
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
from lograft.testing.error_responses import (
    Match,
    build_error_response,
    has_partition_errors,
    match_partition,
)
from lograft.wire.apis import API_VERSIONS, FETCH_KEY

KEYS: Final = {spec.name.lower(): key for key, spec in API_VERSIONS.items()}


@dataclass(eq=False, kw_only=True)
class Fault:
    """What happens to requests that match: they are delayed, fail with an error, or lose their
    connection."""

    key: int
    #: None matches any.
    node: int | None = None
    topic: str | None = None
    partition: int | None = None
    #: How many more requests it applies to; None: all, until it is removed.
    times: int | None = 1
    delay_seconds: float = 0.0
    code: ErrorCode | None = None
    #: "before" or "after": when the connection is closed relative to the handling of the request.
    closes: str = ""
    #: How many requests it has been applied to.
    hits: int = field(default=0, init=False)


#: For an incremental fetch, whose partitions are not known: the next fetch names all of them.
RESET_SESSION: Final = Fault(key=FETCH_KEY, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def key_of(api: str) -> int:
    """Returns the key of an API by Kafka's name of it, such as Produce or FindCoordinator."""
    key = KEYS.get(api.lower())
    if key is None:
        raise ValueError(f"unknown API {api!r}: use one of {', '.join(sorted(KEYS))}")
    return key


class Faults:
    """The faults of a cluster, whose nodes may run in threads."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, fault: Fault) -> Fault:
        if fault.topic is not None and not has_partition_errors(fault.key):
            raise ValueError(
                f"{API_VERSIONS[fault.key].name} cannot fail for single topics: omit topic"
            )
        with self._lock:
            self._faults += (fault,)
        return fault

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults = tuple(other for other in self._faults if other is not fault)

    def clear(self) -> None:
        with self._lock:
            self._faults = ()

    def take(self, node_id: int, frame: memoryview, router: Router) -> Fault | None:
        """Returns the first fault that matches this request, and counts the hit."""
        key = int.from_bytes(frame[:2], "big")
        with self._lock:
            for fault in self._faults:
                if fault.key != key or fault.node not in (None, node_id):
                    continue
                match = match_partition(frame, router, fault.topic, fault.partition)
                if match is Match.UNKNOWN:
                    return RESET_SESSION
                if match is Match.YES:
                    self._count_hit(fault)
                    return fault
        return None

    def _count_hit(self, fault: Fault) -> None:
        fault.hits += 1
        if fault.times is not None:
            fault.times -= 1
            if not fault.times:
                self._faults = tuple(other for other in self._faults if other is not fault)

    def interpose(
        self, node_id: int, is_client: Callable[[Channel], bool]
    ) -> Callable[[Router], HandlerFactory]:
        """Returns the `interpose` argument of a node, which applies the faults to its clients."""

        def wrap(router: Router) -> HandlerFactory:
            return lambda channel: FaultyHandler(
                self, node_id, router, router.accept(channel), lambda: is_client(channel)
            )

        return wrap


class FailingRequests:
    """Methods of clusters that make requests of clients fail."""

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
        """Makes the next requests of clients fail with this error, without being handled. `api` is
        Kafka's name of the API, such as "Produce". With `topic` (and `partition`), only that topic
        or partition fails."""
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
        """Delays the next requests by this many seconds."""
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
        """Closes the connection of the next requests instead of handling them."""
        return self.faults.add(Fault(key=key_of(api), closes="before", node=node, times=times))

    def lose_response(self, api: str, *, node: int | None = None, times: int | None = 1) -> Fault:
        """Handles the next requests, but closes their connection instead of responding."""
        return self.faults.add(Fault(key=key_of(api), closes="after", node=node, times=times))

    def remove(self, fault: Fault) -> None:
        """Removes a fault, so that it applies to no further requests."""
        self.faults.remove(fault)


class FaultyHandler:
    """The frame handler of a connection, which applies faults before the node's own handler."""

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

    @property
    def received_ns(self) -> int:
        return self._inner.received_ns

    @received_ns.setter
    def received_ns(self, received_ns: int) -> None:
        self._inner.received_ns = received_ns

    def handle_frame(self, frame: memoryview) -> Reply:
        if self._faults and self._is_client():
            fault = self._faults.take(self._node_id, frame, self._router)
            if fault is not None:
                # The frame is valid only during this call.
                return PendingReply(self._apply(fault, memoryview(bytearray(frame))))
        return self._inner.handle_frame(frame)

    def on_frames_handled(self) -> None:
        self._inner.on_frames_handled()

    def on_closed(self) -> None:
        self._inner.on_closed()

    async def _apply(self, fault: Fault, frame: memoryview) -> EncodedResponse | None:
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.closes == "before":
            raise CloseConnection("injected fault: the request is lost")
        if fault.code is None:
            response = await wait_response(self._inner.handle_frame(frame))
        else:
            error = build_error_response(
                frame, self._router, fault.code, fault.topic, fault.partition
            )
            response = error.encode()
            if error.rest is not None:
                handled = await wait_response(self._inner.handle_frame(error.rest))
                response = error.merge(handled)
        if fault.closes == "after":
            raise CloseConnection("injected fault: the response is lost")
        return response


async def wait_response(reply: Reply) -> EncodedResponse | None:
    """Waits for the response of a handler, whatever form its reply has."""
    while isinstance(reply, DelayedReply):
        changed = asyncio.Event()
        reply.begin(changed.set)
        try:
            while (next_reply := reply.try_complete()) is reply:
                await changed.wait()
                changed.clear()
        except asyncio.CancelledError:
            reply.cancel()
            raise
        reply = next_reply
    if isinstance(reply, PendingReply):
        return await reply.response
    return EncodedResponse([reply]) if isinstance(reply, bytes) else reply
