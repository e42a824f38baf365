"""Requests from node to node over the Transport seam.

One connection for each (listener, address, lane). A server answers the requests of a connection in
order, so whoever asks long polls does so in a lane of its own.

The first request of a connection is preceded by ApiVersions: the caller names the versions it can
write, and the newest that the other node serves too is used, so that nodes can be upgraded one by
one. Requests that rely on Lograft's own tags are sent to nodes of Lograft only.

`request` is awaited. `ask` is told by a call, inside the read that brings the answer: for streams
of many answers, whose records are then used where they were received.

Never retries: what to do about an unknown outcome is the caller's decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from lograft import __version__
from lograft.broker.errors import PeerIncompatible, PeerLost, PeerUnreachable
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Runtime, Transport
from lograft.wire.apis import (
    ApiRanges,
    Versions,
    response_class,
    response_header_version,
    spec_of,
)
from lograft.wire.client_connection import ClientConnection
from lograft.wire.codec import read_all
from lograft.wire.errors import WireError
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

FRAME_BYTES_MAX: Final = 100 << 20
#: Requests of one connection that wait for their answers.
IN_FLIGHT_MAX: Final = 1_000
#: Of ApiVersions: the first with tags, served by every node that could be in a cluster with this.
NEGOTIATION_VERSION: Final = 3

CONNECTIONS: Final = Gauge(
    "lograft_peer_connections", "Connections of this node to other nodes, open or being opened."
)


class LaneKey(NamedTuple):
    listener: str
    address: Address
    lane: str


class Peers:
    """The other nodes as one node reaches them; one object per node."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        client_id: str,
        transport_of: Callable[[str], Transport] | None = None,
        ranges: ApiRanges | None = None,
    ) -> None:
        """`transport_of` gives the transport for the other side's listener, by name: some listeners
        speak TLS. `ranges` narrows the versions that callers may use, as in an older build."""
        self._ranges = ranges or {}
        self._runtime = runtime
        self._client_id = client_id
        self._transport_of = transport_of
        self._lanes: dict[LaneKey, Lane] = {}
        self._is_closed = False

    async def request(
        self,
        to: Address,
        message: Message,
        versions: Versions,
        answer: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        listener: str = "",
        lograft_only: bool = False,
    ) -> R:
        """Raises PeerUnreachable if the request was never sent, PeerLost if no answer came. Records
        in the answer are views of its own bytes. `lograft_only`: a node that is not Lograft would
        misunderstand the request, so it is not sent there."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            return await found.request(
                message,
                self._narrow(message, versions),
                answer,
                timeout_ms=timeout_ms,
                lograft_only=lograft_only,
            )
        finally:
            self._forget_if_idle(key, found)

    def ask(
        self,
        to: Address,
        message: Message,
        versions: Versions,
        asker: "Asker[R]",
        *,
        timeout_ms: int,
        lane: str = "",
        listener: str = "",
    ) -> None:
        """As `request`, but the asker is called: later, once, in the turn of the loop in which the
        answer comes. Records in the answer are views that are void after the call."""
        key = LaneKey(listener, to, lane)
        lane_of = self._lanes.get(key)
        if lane_of is None or not lane_of.ask(
            message, self._narrow(message, versions), asker, timeout_ms=timeout_ms
        ):
            work = self._ask_first(key, message, versions, asker, timeout_ms)
            self._runtime.spawn(work, name=f"ask {to}")

    async def _ask_first(
        self,
        key: LaneKey,
        message: Message,
        versions: Versions,
        asker: "Asker[R]",
        timeout_ms: int,
    ) -> None:
        """The lane has to be connected first."""
        try:
            answer: R = await self.request(
                key.address,
                message,
                versions,
                asker.answer_kind,
                timeout_ms=timeout_ms,
                lane=key.lane,
                listener=key.listener,
            )
        except (PeerUnreachable, PeerLost) as error:
            asker.on_failed(error)
        else:
            asker.on_response(answer)

    async def knock(
        self, to: Address, *, timeout_ms: int, lane: str = "", listener: str = ""
    ) -> None:
        """Connects if the lane is not, and asks nothing. Raises PeerUnreachable."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            await found.knock(timeout_ms)
        finally:
            self._forget_if_idle(key, found)

    def served_by(self, to: Address, *, listener: str = "") -> ApiRanges | None:
        """The versions that the other node serves; None if there is no connection to it."""
        for key, lane in self._lanes.items():
            if key.address == to and key.listener == listener and lane.served is not None:
                return lane.served
        return None

    def _narrow(self, message: Message, versions: Versions) -> Versions:
        own = self._ranges.get(message.KEY)
        return versions if own is None else versions._replace(newest=own.newest)

    def _lane(self, key: LaneKey) -> "Lane":
        if self._is_closed:
            raise PeerUnreachable(key.address, "this node is stopping", refused=False)
        found = self._lanes.get(key)
        if found is None:
            transport = (
                self._runtime.transport
                if self._transport_of is None
                else self._transport_of(key.listener)
            )
            found = self._lanes[key] = Lane(transport, key.address, client_id=self._client_id)
        return found

    def _forget_if_idle(self, key: LaneKey, lane: "Lane") -> None:
        """Addresses come and go with the nodes that had them."""
        if lane.is_idle and self._lanes.get(key) is lane:
            del self._lanes[key]

    def close(self) -> None:
        """Whoever waits for an answer gets PeerLost."""
        self._is_closed = True
        for lane in list(self._lanes.values()):
            lane.disconnect()
        self._lanes.clear()

    def collect_samples(self) -> Iterator[Sample]:
        yield CONNECTIONS.sample(len(self._lanes))


class Asker(Protocol[R]):
    """Whoever is told by a call."""

    answer_kind: type[R]

    def on_response(self, answer: R) -> None: ...

    def on_failed(self, error: PeerUnreachable | PeerLost) -> None: ...


class Negotiated:
    """A connection whose other side has said which versions it serves."""

    __slots__ = ("_reported", "caller", "is_lograft", "ranges")

    def __init__(self, caller: ClientConnection, answer: ApiVersionsResponse) -> None:
        self.caller = caller
        self.is_lograft = answer.is_lograft
        self.ranges: ApiRanges = {
            each.api_key: Versions(each.min_version, each.max_version) for each in answer.api_keys
        }
        #: APIs of which the log says already that the other side lacks them.
        self._reported: set[int] = set()

    @property
    def is_usable(self) -> bool:
        return not self.caller.is_closed and self.caller.in_flight < IN_FLIGHT_MAX

    def version_of(self, key: int, versions: Versions) -> int | None:
        """The newest version that both sides can use; None: there is none."""
        served = self.ranges.get(key)
        return None if served is None else versions.common(served)

    def incompatibility(self, key: int, versions: Versions) -> PeerIncompatible:
        served = self.ranges.get(key)
        name, needed = spec_of(key).name, f"{versions.oldest} to {versions.newest}"
        has = "does not serve it" if served is None else f"serves {served[0]} to {served[1]}"
        return self._report(key, f"this node needs {name} {needed}, the other node {has}")

    def foreignness(self, key: int) -> PeerIncompatible:
        name = spec_of(key).name
        return self._report(key, f"it is not a Lograft node, and only Lograft serves this {name}")

    def _report(self, key: int, reason: str) -> PeerIncompatible:
        error = PeerIncompatible(self.caller.address, reason)
        if key not in self._reported:
            self._reported.add(key)
            LOGGER.warning("%s; retrying until that node is upgraded", error)
        return error


class Lane:
    """One connection to one address, made when it is needed."""

    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._transport = transport
        self._address = address
        self._client_id = client_id
        self._connection: ClientConnection | None = None
        #: Once the connection's other side has said which versions it serves.
        self._negotiated: Negotiated | None = None
        self._connecting = asyncio.Lock()
        self._users = 0
        self._correlation_id = 0

    @property
    def is_idle(self) -> bool:
        """Not connected, and nobody tries to be."""
        connection = self._connection
        return not self._users and (connection is None or connection.is_closed)

    @property
    def served(self) -> ApiRanges | None:
        """The versions that the other side serves; None while there is no connection."""
        negotiated = self._negotiated
        return None if negotiated is None or negotiated.caller.is_closed else negotiated.ranges

    async def request(
        self,
        message: Message,
        versions: Versions,
        answer: type[R],
        *,
        timeout_ms: int,
        lograft_only: bool = False,
    ) -> R:
        async def agree() -> tuple[ClientConnection, int]:
            connection = await self._negotiate(timeout_ms)
            version = connection.version_of(message.KEY, versions)
            if version is None:
                raise connection.incompatibility(message.KEY, versions)
            if lograft_only and not connection.is_lograft:
                raise connection.foreignness(message.KEY)
            return connection.caller, version

        return await self._exchange(message, answer, agree, timeout_ms=timeout_ms)

    async def request_in(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        """In this version, whatever the other side says that it serves."""

        async def agree() -> tuple[ClientConnection, int]:
            async with self._connecting:
                return await self._connect(timeout_ms), version

        return await self._exchange(message, answer, agree, timeout_ms=timeout_ms)

    async def _exchange(
        self,
        message: Message,
        answer: type[R],
        agree: Callable[[], Awaitable[tuple[ClientConnection, int]]],
        *,
        timeout_ms: int,
    ) -> R:
        """`agree` connects and chooses the version."""
        assert response_class(message.KEY) is answer, (message, answer)
        sent_on: ClientConnection | None = None
        self._users += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                sent_on, version = await agree()
                data = await self._answer_of(sent_on, message, version)
        except TimeoutError:
            if sent_on is None:
                raise PeerUnreachable(self._address, "timed out while connecting") from None
            # The answers behind this one would be late too.
            sent_on.abort()
            raise PeerLost(f"{self._address} sent no response within {timeout_ms} ms") from None
        finally:
            self._users -= 1
        try:
            return read_answer(answer, version, data)
        except WireError as error:
            sent_on.abort()
            raise unreadable(self._address, error) from None

    def ask(
        self, message: Message, versions: Versions, asker: Asker[R], *, timeout_ms: int
    ) -> bool:
        """False: there is no connection that takes it, and nothing has happened."""
        connection = self._negotiated
        if connection is None or not connection.is_usable:
            return False
        version = connection.version_of(message.KEY, versions)
        if version is None:
            return False
        number, frame = self._frame(message, version)
        call = _Call(connection.caller, self._address, version, asker)
        call.begin(timeout_ms)
        connection.caller.ask(number, [frame], call)
        return True

    async def _answer_of(
        self, connection: ClientConnection, message: Message, version: int
    ) -> bytes:
        number, frame = self._frame(message, version)
        waiter = _Awaited(self._address)
        try:
            connection.ask(number, [frame], waiter)
            return await waiter.future
        finally:
            connection.forget(number)

    def _frame(self, message: Message, version: int) -> tuple[int, bytes]:
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFF_FFFF
        return number, frame_request(
            message, version, correlation_id=number, client_id=self._client_id
        )

    async def knock(self, timeout_ms: int) -> None:
        self._users += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                async with self._connecting:
                    await self._connect(timeout_ms)
        except TimeoutError:
            raise PeerUnreachable(self._address, "timed out while connecting") from None
        finally:
            self._users -= 1

    async def _connect(self, timeout_ms: int) -> ClientConnection:
        """While `_connecting` is held."""
        connection = self._connection
        if connection is not None and not connection.is_closed:
            if connection.in_flight >= IN_FLIGHT_MAX:
                raise PeerUnreachable(self._address, "too many requests in flight")
            return connection
        self._negotiated = None
        try:
            channel = await self._transport.connect(self._address, timeout_ms=timeout_ms)
        except ConnectionRefusedError:
            raise PeerUnreachable(self._address, "connection refused", refused=True) from None
        except OSError as error:
            raise PeerUnreachable(self._address, str(error)) from None
        connection = ClientConnection(channel, self._address, frame_bytes_max=FRAME_BYTES_MAX)
        self._connection = connection
        return connection

    async def _negotiate(self, timeout_ms: int) -> Negotiated:
        """A connection of which is known what the other side serves."""
        async with self._connecting:
            caller = await self._connect(timeout_ms)
            negotiated = self._negotiated
            if negotiated is None:
                try:
                    negotiated = self._negotiated = await self._ask_versions(caller)
                except BaseException:
                    # Nobody knows what it would take: the next request begins with a new one.
                    caller.abort()
                    raise
            return negotiated

    async def _ask_versions(self, caller: ClientConnection) -> Negotiated:
        request = ApiVersionsRequest(
            client_software_name="lograft", client_software_version=__version__, is_lograft=True
        )
        data = await self._answer_of(caller, request, NEGOTIATION_VERSION)
        try:
            answer = read_answer(ApiVersionsResponse, NEGOTIATION_VERSION, data)
        except WireError as error:
            raise unreadable(self._address, error) from None
        if answer.error_code:
            raise PeerUnreachable(self._address, f"ApiVersions: error {answer.error_code}")
        return Negotiated(caller, answer)

    def disconnect(self) -> None:
        self._negotiated = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


def read_answer(answer: type[R], version: int, data: bytes | memoryview) -> R:
    _, position = read_response_header(data, response_header_version(answer.KEY, version))
    return read_all(answer, version, data, position)


def unreadable(address: Address, error: WireError) -> PeerLost:
    return PeerLost(f"{address} sent a response that cannot be decoded: {error}")


def lost(address: Address, reason: str) -> PeerLost:
    return PeerLost(f"connection to {address} lost: {reason}")


class _Awaited:
    __slots__ = ("_address", "future")

    def __init__(self, address: Address) -> None:
        self._address = address
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: memoryview) -> None:
        # Nobody waits: whoever did was cancelled.
        if not self.future.done():
            self.future.set_result(bytes(frame))

    def on_lost(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(lost(self._address, reason))


class _Call:
    __slots__ = ("_address", "_asker", "_connection", "_timer", "_version")

    def __init__(
        self, connection: ClientConnection, address: Address, version: int, asker: Asker[Any]
    ) -> None:
        self._connection = connection
        self._address = address
        self._version = version
        self._asker = asker
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_ms / 1000, self._on_time, timeout_ms)

    def on_frame(self, frame: memoryview) -> None:
        self._stop_timer()
        try:
            answer = read_answer(self._asker.answer_kind, self._version, frame)
        except WireError as error:
            self._connection.abort()
            self._asker.on_failed(unreadable(self._address, error))
            return
        self._asker.on_response(answer)

    def on_lost(self, reason: str) -> None:
        self._stop_timer()
        self._asker.on_failed(lost(self._address, reason))

    def _on_time(self, timeout_ms: int) -> None:
        # The answers behind this one would be late too.
        self._connection.abort(f"no response within {timeout_ms} ms")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
