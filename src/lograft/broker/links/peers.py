"""Requests from node to node over the Transport seam.

There is one connection for each (listener, address, lane). A server responds to the requests of a
connection in order, so long polls use a separate lane.

A connection to a SASL listener starts with a login (`NodeLogins`), every connection then with
ApiVersions. The caller passes the versions that it supports, and the
newest version that both support is used, so that nodes can be upgraded one by one.
Requests that rely on Lograft's own tagged fields are sent to Lograft nodes only.

`request` is awaited. `send` delivers the response through a callback, in the read that received it.
It is for streams of many responses, whose records are used in the receive buffer.

Nothing is retried: what to do about an unknown outcome is the caller's decision.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from lograft import __version__
from lograft.broker.errors import PeerIncompatible, PeerLost, PeerUnreachable
from lograft.broker.links.logins import NodeLogins
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Address, Clock, Runtime, Transport
from lograft.security.client_sasl import RENEWAL_INTERVAL_MS
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
from lograft.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from lograft.wire.messages.sasl_handshake import SaslHandshakeResponse

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

FRAME_BYTES_MAX: Final = 100 << 20
#: Maximum number of requests in flight on one connection.
IN_FLIGHT_MAX: Final = 1_000
#: Version of ApiVersions: the first with tagged fields, supported by every node that could be in a
#: cluster with this one.
NEGOTIATION_VERSION: Final = 3
#: Version of SaslHandshake and SaslAuthenticate: the first that limits the lifetime of sessions.
SASL_VERSION: Final = 1

CONNECTIONS: Final = Gauge(
    "lograft_peer_connections", "Connections of this node to other nodes, open or being opened."
)


class LaneKey(NamedTuple):
    listener: str
    address: Address
    lane: str


class Peers:
    """Connections of a node to other nodes; one object per node."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        client_id: str,
        transport_of: Callable[[str], Transport] | None = None,
        logins: NodeLogins | None = None,
        ranges: ApiRanges | None = None,
    ) -> None:
        """`transport_of` returns the transport for a listener name of the other node, since some
        listeners use TLS; `logins` logs in to SASL listeners. `ranges` limits the versions that
        callers may use, as in an older build."""
        self._ranges = ranges or {}
        self._runtime = runtime
        self._client_id = client_id
        self._transport_of = transport_of
        self._logins = logins
        self._lanes: dict[LaneKey, Lane] = {}
        self._is_closed = False

    async def request(
        self,
        to: Address,
        message: Message,
        versions: Versions,
        response_type: type[R],
        *,
        timeout_ms: int,
        lane: str = "",
        listener: str = "",
        lograft_only: bool = False,
    ) -> R:
        """Returns the response, with its records as views of its own bytes. Raises PeerUnreachable
        if the request was never sent, PeerLost if no response arrived. `lograft_only`: the request
        is not sent to a node other than Lograft, which would misunderstand it."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            return await found.request(
                message,
                self._narrow(message, versions),
                response_type,
                timeout_ms=timeout_ms,
                lograft_only=lograft_only,
            )
        finally:
            self._remove_if_idle(key, found)

    def send(
        self,
        to: Address,
        message: Message,
        versions: Versions,
        handler: "ResponseHandler[R]",
        *,
        timeout_ms: int,
        lane: str = "",
        listener: str = "",
    ) -> None:
        """Like `request`, but calls the handler once, later, in the iteration of the event loop in
        which the response arrives. Records in it are views that are invalid after the call."""
        key = LaneKey(listener, to, lane)
        lane_of = self._lanes.get(key)
        if lane_of is None or not lane_of.send(
            message, self._narrow(message, versions), handler, timeout_ms=timeout_ms
        ):
            work = self._connect_and_send(key, message, versions, handler, timeout_ms)
            self._runtime.spawn(work, name=f"request to {to}")

    async def _connect_and_send(
        self,
        key: LaneKey,
        message: Message,
        versions: Versions,
        handler: "ResponseHandler[R]",
        timeout_ms: int,
    ) -> None:
        """Connects the lane before it sends the request."""
        try:
            response: R = await self.request(
                key.address,
                message,
                versions,
                handler.response_type,
                timeout_ms=timeout_ms,
                lane=key.lane,
                listener=key.listener,
            )
        except (PeerUnreachable, PeerLost) as error:
            handler.on_failed(error)
        else:
            handler.on_response(response)

    async def connect(
        self, to: Address, *, timeout_ms: int, lane: str = "", listener: str = ""
    ) -> None:
        """Connects the lane if necessary, without a request. Raises PeerUnreachable."""
        key = LaneKey(listener, to, lane)
        found = self._lane(key)
        try:
            await found.connect(timeout_ms)
        finally:
            self._remove_if_idle(key, found)

    def served_by(self, to: Address, *, listener: str = "") -> ApiRanges | None:
        """Returns the API versions of the other node; None without a connection to it."""
        for key, lane in self._lanes.items():
            if key.address == to and key.listener == listener and lane.api_ranges is not None:
                return lane.api_ranges
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
            found = self._lanes[key] = Lane(
                transport,
                key.address,
                client_id=self._client_id,
                session=None
                if self._logins is None
                else Session(self._logins, key.listener, key.address, self._runtime.clock),
            )
        return found

    def _remove_if_idle(self, key: LaneKey, lane: "Lane") -> None:
        """Removes an idle lane, since nodes may change their addresses."""
        if lane.is_idle and self._lanes.get(key) is lane:
            del self._lanes[key]

    def close(self) -> None:
        """Closes all connections. Pending requests raise PeerLost."""
        self._is_closed = True
        for lane in list(self._lanes.values()):
            lane.disconnect()
        self._lanes.clear()

    def collect_samples(self) -> Iterator[Sample]:
        yield CONNECTIONS.sample(len(self._lanes))


class ResponseHandler(Protocol[R]):
    """Receives the result of `Peers.send`."""

    response_type: type[R]

    def on_response(self, response: R) -> None: ...

    def on_failed(self, error: PeerUnreachable | PeerLost) -> None: ...


class NegotiatedConnection:
    """A connection with the API versions that the other node supports."""

    __slots__ = ("_reported", "caller", "is_lograft", "ranges")

    def __init__(self, caller: ClientConnection, response: ApiVersionsResponse) -> None:
        self.caller = caller
        self.is_lograft = response.is_lograft
        self.ranges: ApiRanges = {
            api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys
        }
        #: Unsupported APIs that were logged already.
        self._reported: set[int] = set()

    @property
    def is_usable(self) -> bool:
        return not self.caller.is_closed and self.caller.in_flight < IN_FLIGHT_MAX

    def version_of(self, key: int, versions: Versions) -> int | None:
        """Returns the newest version that both nodes support; None if there is none."""
        served = self.ranges.get(key)
        return None if served is None else versions.common(served)

    def incompatible_error(self, key: int, versions: Versions) -> PeerIncompatible:
        served = self.ranges.get(key)
        name, needed = spec_of(key).name, f"{versions.oldest} to {versions.newest}"
        has = "does not serve it" if served is None else f"serves {served[0]} to {served[1]}"
        return self._report(key, f"this node needs {name} {needed}, the other node {has}")

    def not_lograft_error(self, key: int) -> PeerIncompatible:
        name = spec_of(key).name
        return self._report(
            key,
            f"it is not a Lograft node, and only Lograft nodes support this version of {name}",
        )

    def _report(self, key: int, reason: str) -> PeerIncompatible:
        error = PeerIncompatible(self.caller.address, reason)
        if key not in self._reported:
            self._reported.add(key)
            LOGGER.warning("%s; retrying until that node is upgraded", error)
        return error


class Ask(Protocol):
    async def __call__(self, message: Message, response_type: type[R]) -> R: ...


class Session:
    """The SASL session of a lane's connection; without effect if the listener does not use SASL."""

    def __init__(self, logins: NodeLogins, listener: str, address: Address, clock: Clock) -> None:
        self._logins = logins
        self.listener = listener
        self._address = address
        self._clock = clock
        self._began_ms = 0
        self._renew_at_ms: int | None = None

    @property
    def needs_renewal(self) -> bool:
        return self._renew_at_ms is not None and self._clock.mono_ms() >= self._renew_at_ms

    @property
    def can_be_renewed(self) -> bool:
        """Whether the other node accepts another login on the same connection already."""
        return self._clock.mono_ms() - self._began_ms >= RENEWAL_INTERVAL_MS

    async def log_in(self, ask: Ask) -> None:
        """Raises PeerRejectedLogin, and the errors of `ask`."""
        login = await self._logins.start(self.listener, self._address)
        if login is None:
            return
        step = login.on_handshake(await ask(login.begin(), SaslHandshakeResponse))
        while isinstance(step, SaslAuthenticateRequest):
            step = login.on_response(await ask(step, SaslAuthenticateResponse))
        self._renew_at_ms = self._logins.complete(self.listener, self._address, login, step)
        self._began_ms = self._clock.mono_ms()


class Lane:
    """One connection to one address, opened when needed."""

    def __init__(
        self,
        transport: Transport,
        address: Address,
        *,
        client_id: str,
        session: "Session | None" = None,
    ) -> None:
        """`session`: of the lane's connection, if the listener may use SASL."""
        self._transport = transport
        self._address = address
        self._client_id = client_id
        self._session = session
        self._connection: ClientConnection | None = None
        #: Set once the versions of the connection are negotiated.
        self._negotiated: NegotiatedConnection | None = None
        self._connecting = asyncio.Lock()
        self._users = 0
        self._correlation_id = 0

    @property
    def is_idle(self) -> bool:
        """Whether the lane is neither connected nor connecting."""
        connection = self._connection
        return not self._users and (connection is None or connection.is_closed)

    @property
    def api_ranges(self) -> ApiRanges | None:
        """API versions that the other node supports; None without a connection."""
        negotiated = self._negotiated
        return None if negotiated is None or negotiated.caller.is_closed else negotiated.ranges

    async def request(
        self,
        message: Message,
        versions: Versions,
        response_type: type[R],
        *,
        timeout_ms: int,
        lograft_only: bool = False,
    ) -> R:
        async def negotiate() -> tuple[ClientConnection, int]:
            connection = await self._negotiate(timeout_ms)
            version = connection.version_of(message.KEY, versions)
            if version is None:
                raise connection.incompatible_error(message.KEY, versions)
            if lograft_only and not connection.is_lograft:
                raise connection.not_lograft_error(message.KEY)
            return connection.caller, version

        return await self._exchange(message, response_type, negotiate, timeout_ms=timeout_ms)

    async def request_in(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        """Sends the request in this version, without negotiation."""

        async def negotiate() -> tuple[ClientConnection, int]:
            async with self._connecting:
                return await self._connect(timeout_ms), version

        return await self._exchange(message, response_type, negotiate, timeout_ms=timeout_ms)

    async def _exchange(
        self,
        message: Message,
        response_type: type[R],
        negotiate: Callable[[], Awaitable[tuple[ClientConnection, int]]],
        *,
        timeout_ms: int,
    ) -> R:
        """Sends the request and returns the response; `negotiate` connects and selects a
        version."""
        assert response_class(message.KEY) is response_type, (message, response_type)
        sent_on: ClientConnection | None = None
        self._users += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                sent_on, version = await negotiate()
                data = await self._request_bytes(sent_on, message, version)
        except TimeoutError:
            if sent_on is None:
                raise PeerUnreachable(self._address, "timed out while connecting") from None
            # The responses behind this one would be late, too.
            sent_on.abort()
            raise PeerLost(f"{self._address} sent no response within {timeout_ms} ms") from None
        finally:
            self._users -= 1
        try:
            return read_response(response_type, version, data)
        except WireError as error:
            sent_on.abort()
            raise unreadable(self._address, error) from None

    def send(
        self, message: Message, versions: Versions, handler: ResponseHandler[R], *, timeout_ms: int
    ) -> bool:
        """Sends the request. Returns False, without any effect, if no connection can take it."""
        connection = self._negotiated
        if connection is None or not connection.is_usable:
            return False
        if self._session is not None and self._session.needs_renewal:
            return False
        version = connection.version_of(message.KEY, versions)
        if version is None:
            return False
        number, frame = self._frame(message, version)
        call = _CallbackHandler(connection.caller, self._address, version, handler)
        call.begin(timeout_ms)
        connection.caller.send(number, [frame], call)
        return True

    async def _request_bytes(
        self, connection: ClientConnection, message: Message, version: int
    ) -> bytes:
        number, frame = self._frame(message, version)
        waiter = _FutureHandler(self._address)
        try:
            connection.send(number, [frame], waiter)
            return await waiter.future
        finally:
            connection.forget(number)

    def _frame(self, message: Message, version: int) -> tuple[int, bytes]:
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFF_FFFF
        return number, frame_request(
            message, version, correlation_id=number, client_id=self._client_id
        )

    async def connect(self, timeout_ms: int) -> None:
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
        """Returns the open connection, or connects. The caller holds `_connecting`."""
        connection = self._connection
        if connection is not None and not connection.is_closed:
            if connection.in_flight >= IN_FLIGHT_MAX:
                raise PeerUnreachable(self._address, "too many requests in flight")
            session = self._session
            if session is None or not session.needs_renewal:
                return connection
            if session.can_be_renewed:
                await self._log_in(connection, session)
                return connection
            if not connection.in_flight:
                connection.abort("its session ends")
        self._negotiated = None
        try:
            channel = await self._transport.connect(self._address, timeout_ms=timeout_ms)
        except ConnectionRefusedError:
            raise PeerUnreachable(self._address, "connection refused", refused=True) from None
        except OSError as error:
            raise PeerUnreachable(self._address, str(error)) from None
        connection = ClientConnection(channel, self._address, frame_bytes_max=FRAME_BYTES_MAX)
        self._connection = connection
        if self._session is not None:
            await self._log_in(connection, self._session)
        return connection

    async def _log_in(self, connection: ClientConnection, session: "Session") -> None:
        """Begins or renews the session of the connection. The caller holds `_connecting`, and no
        other request is sent until this returns."""

        async def ask(message: Message, response_type: type[R]) -> R:
            data = await self._request_bytes(connection, message, SASL_VERSION)
            return read_response(response_type, SASL_VERSION, data)

        try:
            await session.log_in(ask)
        except (PeerLost, WireError) as error:
            connection.abort()
            reason = f"no login at listener {session.listener}: {error}"
            raise PeerUnreachable(self._address, reason) from None
        except BaseException:
            connection.abort()
            raise

    async def _negotiate(self, timeout_ms: int) -> NegotiatedConnection:
        """Returns a connection with negotiated versions."""
        async with self._connecting:
            caller = await self._connect(timeout_ms)
            negotiated = self._negotiated
            if negotiated is None:
                try:
                    negotiated = self._negotiated = await self._request_versions(caller)
                except BaseException:
                    # Its versions stay unknown: the next request opens a new connection.
                    caller.abort()
                    raise
            return negotiated

    async def _request_versions(self, caller: ClientConnection) -> NegotiatedConnection:
        request = ApiVersionsRequest(
            client_software_name="lograft", client_software_version=__version__, is_lograft=True
        )
        data = await self._request_bytes(caller, request, NEGOTIATION_VERSION)
        try:
            response = read_response(ApiVersionsResponse, NEGOTIATION_VERSION, data)
        except WireError as error:
            raise unreadable(self._address, error) from None
        if response.error_code:
            raise PeerUnreachable(self._address, f"ApiVersions: error {response.error_code}")
        return NegotiatedConnection(caller, response)

    def disconnect(self) -> None:
        self._negotiated = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()


def read_response(response_type: type[R], version: int, data: bytes | memoryview) -> R:
    _, position = read_response_header(data, response_header_version(response_type.KEY, version))
    return read_all(response_type, version, data, position)


def unreadable(address: Address, error: WireError) -> PeerLost:
    return PeerLost(f"{address} sent a response that cannot be decoded: {error}")


def connection_lost(address: Address, reason: str) -> PeerLost:
    return PeerLost(f"connection to {address} lost: {reason}")


class _FutureHandler:
    __slots__ = ("_address", "future")

    def __init__(self, address: Address) -> None:
        self._address = address
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_frame(self, frame: memoryview) -> None:
        # Done already if the waiting task was cancelled.
        if not self.future.done():
            self.future.set_result(bytes(frame))

    def on_lost(self, reason: str) -> None:
        if not self.future.done():
            self.future.set_exception(connection_lost(self._address, reason))


class _CallbackHandler:
    __slots__ = ("_address", "_connection", "_handler", "_timer", "_version")

    def __init__(
        self,
        connection: ClientConnection,
        address: Address,
        version: int,
        handler: ResponseHandler[Any],
    ) -> None:
        self._connection = connection
        self._address = address
        self._version = version
        self._handler = handler
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_ms / 1000, self._on_time, timeout_ms)

    def on_frame(self, frame: memoryview) -> None:
        self._stop_timer()
        try:
            response = read_response(self._handler.response_type, self._version, frame)
        except WireError as error:
            self._connection.abort()
            self._handler.on_failed(unreadable(self._address, error))
            return
        self._handler.on_response(response)

    def on_lost(self, reason: str) -> None:
        self._stop_timer()
        self._handler.on_failed(connection_lost(self._address, reason))

    def _on_time(self, timeout_ms: int) -> None:
        # The responses behind this one would be late, too.
        self._connection.abort(f"no response within {timeout_ms} ms")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
