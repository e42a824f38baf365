"""Listening sockets: one Listener may have several, for a name with several addresses."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from lograft.model.seams import Address, Channel
from lograft.net.channels import BufferSizes, SocketChannel, address_of, prepare
from lograft.net.name_resolution import find_addresses
from lograft.net.priority_reads import PriorityReads

#: Default length of the queue of connections that wait to be accepted.
BACKLOG: Final = 1024
#: Limits how long a storm of new connections delays the existing ones.
_ACCEPTS_PER_WAKE: Final = 64
#: If descriptors or memory are exhausted, the pending connection stays readable, so retrying
#: immediately would spin. It waits in the backlog instead.
_ACCEPT_PAUSE_S: Final = 0.5
_WARNING_PAUSE_S: Final = 10.0
_GONE_BEFORE_ACCEPT: Final = frozenset(
    {errno.ECONNABORTED, errno.EINTR, errno.ECONNRESET, errno.EPROTO, errno.EPERM}
)
_PORT_TRIES: Final = 10

LOGGER: Final = logging.getLogger(__name__)


class SocketListener:
    __slots__ = (
        "_buffers",
        "_is_paused",
        "_loop",
        "_on_channel",
        "_pauses",
        "_priority_reads",
        "_sockets",
        "_warned_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        on_channel: Callable[[Channel], None],
        buffers: BufferSizes,
        priority_reads: PriorityReads,
    ) -> None:
        self._loop = loop
        self._priority_reads = priority_reads
        self._buffers = buffers
        self._sockets = sockets
        self._on_channel = on_channel
        self._is_paused = False
        self._warned_at: float | None = None
        #: Timers of sockets that could not accept because descriptors or memory were exhausted.
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        for listening in sockets:
            self._watch(listening)

    @classmethod
    async def open(
        cls,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        on_channel: Callable[[Channel], None],
        buffers: BufferSizes,
        priority_reads: PriorityReads,
        *,
        backlog: int = BACKLOG,
    ) -> "SocketListener":
        if address.host in ("", "::"):
            bound = _bind_everywhere(address, backlog)
            return cls(loop, [bound], on_channel, buffers, priority_reads)
        addresses = await find_addresses(address.host, address.port)
        # A name may have addresses of both families. IPv4 first, because it must work.
        targets = sorted({(family, raw) for family, _, _, _, raw in addresses}, key=_ipv4_first)
        return cls(loop, _bind_all(targets, backlog), on_channel, buffers, priority_reads)

    @property
    def address(self) -> Address:
        return address_of(self._sockets[0].getsockname())

    def pause_accepting(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            for listening in self._sockets:
                if listening.fileno() not in self._pauses:
                    self._loop.remove_reader(listening.fileno())

    def resume_accepting(self) -> None:
        if self._is_paused:
            self._is_paused = False
            for listening in self._sockets:
                if listening.fileno() not in self._pauses:
                    self._watch(listening)

    def close(self) -> None:
        for pause in self._pauses.values():
            pause.cancel()
        for listening in self._sockets:
            if listening.fileno() not in self._pauses and not self._is_paused:
                self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets = self._sockets[:0]
        self._pauses.clear()

    def _watch(self, listening: socket.socket) -> None:
        self._pauses.pop(listening.fileno(), None)
        if self._is_paused:
            return
        self._loop.add_reader(listening.fileno(), self._on_acceptable, listening)

    def _on_acceptable(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                accepted, raw = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_BEFORE_ACCEPT:
                    continue
                self._pause(listening, error)
                return
            try:
                prepare(accepted, self._buffers)
                channel = SocketChannel(self._loop, accepted, address_of(raw), self._priority_reads)
            except OSError:
                # The peer has disconnected before the accept.
                accepted.close()
                continue
            self._on_channel(channel)
            if listening.fileno() < 0 or self._is_paused:
                return

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        now = self._loop.time()
        if self._warned_at is None or now - self._warned_at >= _WARNING_PAUSE_S:
            self._warned_at = now
            LOGGER.warning(
                "%s cannot accept connections, retrying every %.1f s: %s",
                address_of(listening.getsockname()),
                _ACCEPT_PAUSE_S,
                error,
            )
        descriptor = listening.fileno()
        self._loop.remove_reader(descriptor)
        self._pauses[descriptor] = self._loop.call_later(_ACCEPT_PAUSE_S, self._watch, listening)


def _ipv4_first(target: tuple[int, Any]) -> tuple[bool, Any]:
    return (target[0] != socket.AF_INET, target[1])


def _bind_everywhere(address: Address, backlog: int) -> socket.socket:
    """Binds all interfaces, with one socket for both families if the machine has IPv6."""
    try:
        return _bind(socket.AF_INET6, ("::", address.port), backlog, both_families=True)
    except OSError as error:
        if address.host == "::" or error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
        return _bind(socket.AF_INET, ("0.0.0.0", address.port), backlog)


def _bind_all(targets: Sequence[tuple[int, Any]], backlog: int) -> list[socket.socket]:
    """Binds every address to the same port. If the port may be chosen, the first socket's choice
    may be in use on the next address: then all addresses are tried with another port."""
    any_port = targets[0][1][1] == 0
    for last_try in range(_PORT_TRIES - 1, -1, -1):
        sockets: list[socket.socket] = []
        try:
            for family, raw in targets:
                port = sockets[0].getsockname()[1] if sockets else raw[1]
                try:
                    sockets.append(_bind(family, (raw[0], port, *raw[2:]), backlog))
                except OSError as error:
                    # The name has an IPv6 address, but the machine has none.
                    if not sockets or error.errno not in (
                        errno.EADDRNOTAVAIL,
                        errno.EAFNOSUPPORT,
                    ):
                        raise
        except OSError as error:
            for bound in sockets:
                bound.close()
            if not (any_port and error.errno == errno.EADDRINUSE and last_try):
                raise
        else:
            return sockets
    raise AssertionError("the last try returns or raises")


def _bind(
    family: int, raw: tuple[Any, ...], backlog: int, *, both_families: bool = False
) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not both_families))
        listening.setblocking(False)
        listening.bind(raw)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        error.filename = error.filename or str(address_of(raw))
        raise
    return listening
