"""Commands as clients: requests to a running cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.peers import Peers
from lograft.model.errors import InvalidInput, LograftError
from lograft.model.listeners import parse_address
from lograft.model.seams import Address
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")

TIMEOUT_MS: Final = 30_000


class Asks(Protocol):
    async def __call__(
        self, message: Message, version: int, answer: type[R], *, at: Address | None = None
    ) -> R: ...


class ClusterUnreachable(LograftError):
    """None of the servers that were named answered."""


class Cluster:
    """Asks the first of the named servers that answers, or a certain one."""

    def __init__(self, peers: Peers, servers: Sequence[Address]) -> None:
        self._peers = peers
        self._servers = list(servers)

    async def ask(
        self, message: Message, version: int, answer: type[R], *, at: Address | None = None
    ) -> R:
        problem = ""
        for server in [at] if at is not None else list(self._servers):
            try:
                response = await self._peers.request(
                    server, message, version, answer, timeout_ms=TIMEOUT_MS
                )
            except (PeerUnreachable, PeerLost) as error:
                problem = str(error)
                continue
            if at is None:
                # The next question goes to the one that is there.
                self._servers.remove(server)
                self._servers.insert(0, server)
            return response
        raise ClusterUnreachable(f"no server answers: {problem}")


def with_cluster(servers: str, work: Callable[[Asks], Awaitable[T]]) -> T:
    """`servers`: as in --bootstrap-server."""
    from lograft.net.sockets import SocketTransport
    from lograft.runtime.system import system_runtime
    from lograft.runtime.workers import ThreadWorkers

    addresses = [
        parse_address("--bootstrap-server", one.strip())
        for one in servers.split(",")
        if one.strip()
    ]
    if not addresses:
        raise InvalidInput("--bootstrap-server names no server: write host:port,…")
    workers = ThreadWorkers()

    async def main() -> T:
        async with asyncio.TaskGroup() as group:
            runtime = system_runtime(transport=SocketTransport(), workers=workers, task_group=group)
            peers = Peers(runtime, client_id="lograft")
            try:
                return await work(Cluster(peers, addresses).ask)
            finally:
                peers.close()
        raise AssertionError("unreachable")

    try:
        return asyncio.run(main())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        workers.close()
