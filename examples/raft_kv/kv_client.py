"""A client of the store: sends to any server, follows redirections to the leader, and retries.

Each command has a number and is retried under this number until there is a response, so that the
store applies it only once. Without a response in time, `OutcomeUnknown` is raised.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from examples.raft_kv import protocol
from examples.raft_kv.addresses import Peer
from examples.raft_kv.links import Link
from examples.raft_kv.packing import Malformed, Value, content, number, pack, text, unpack_tuple
from examples.raft_kv.packing import values as tuple_of
from examples.raft_kv.store import DONE, delete_command, set_command
from lograft.model.errors import LograftError
from lograft.model.seams import Address, Randomness, Runtime

RETRY_MS: Final = 50
#: Timeout of a request to one server, before another is tried.
ATTEMPT_MS: Final = 3_000


class CommandRejected(LograftError):
    """A server rejected the command; the message is the reason."""


class OutcomeUnknown(LograftError):
    """No response in time: the command may or may not have been applied."""


class _Lost(Exception):
    """This server does not respond: try another."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KvClient:
    """For one command at a time; use several clients for concurrent commands."""

    def __init__(
        self, runtime: Runtime, servers: Sequence[Address], *, timeout_ms: int = 10_000
    ) -> None:
        self._runtime = runtime
        self._servers = list(servers)
        self._timeout_ms = timeout_ms
        self._id = runtime.randomness.bytes(16)
        self._sequence = 0
        self._server = servers[_any(runtime.randomness, len(servers))]
        self._connections: dict[Address, _Connection] = {}
        self._number = 0

    async def get(self, key: bytes) -> bytes | None:
        value = _done(content(await self._ask(protocol.QUERY, key)))
        return None if value is None else content(value)

    async def set(self, key: bytes, value: bytes) -> None:
        self._sequence += 1
        command = set_command(self._id, self._sequence, key, value)
        _done(content(await self._ask(protocol.COMMAND, command)))

    async def delete(self, key: bytes) -> bool:
        """Returns whether the key existed."""
        self._sequence += 1
        command = delete_command(self._id, self._sequence, key)
        return bool(_done(content(await self._ask(protocol.COMMAND, command))))

    async def add_peer(self, peer: Peer) -> None:
        """The new server must be running, because its directory id is requested first."""
        status = await self.status(peer.address)
        if status["id"] != peer.node_id:
            raise CommandRejected(
                f"{peer.address} is server {number(status['id'])}, not {peer.node_id}"
            )
        directory = content(status["directory"])
        host, port = peer.address.host, peer.address.port
        await self._ask(protocol.ADD, (host, port, peer.node_id, directory))

    async def remove_peer(self, node_id: int) -> None:
        await self._ask(protocol.REMOVE, node_id)

    async def status(self, server: Address) -> dict[str, Value]:
        try:
            code, answer = await self._ask_once(server, protocol.STATUS, None, ATTEMPT_MS)
        except _Lost as lost:
            raise OutcomeUnknown(f"{server} does not respond: {lost.reason}") from None
        if code != protocol.OK:
            raise CommandRejected(text(answer))
        pairs = [tuple_of(pair, 2) for pair in tuple_of(answer)]
        return {text(name): value for name, value in pairs}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def _ask(self, what: int, argument: Value) -> Value:
        clock = self._runtime.clock
        deadline_ms = clock.mono_ms() + self._timeout_ms
        reason = "no server was asked"
        while (left_ms := deadline_ms - clock.mono_ms()) > 0:
            try:
                server = self._server
                code, answer = await self._ask_once(
                    server, what, argument, min(left_ms, self._attempt_ms(what))
                )
            except _Lost as lost:
                reason = f"{self._server}: {lost.reason}"
                self._turn_to_another()
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            if code == protocol.OK:
                return answer
            if code == protocol.REFUSED:
                raise CommandRejected(text(answer))
            if code == protocol.REDIRECT and answer is not None:
                host, port = tuple_of(answer, 2)
                self._server = Address(text(host), number(port))
                reason = f"{server} names {self._server} as the leader"
                await asyncio.sleep(RETRY_MS / 10_000)
                continue
            reason = (
                f"{server} does not know a leader"
                if answer is None
                else f"{server}: {text(answer)}"
            )
            self._turn_to_another()
            await asyncio.sleep(RETRY_MS / 1000)
        raise OutcomeUnknown(f"no response within {self._timeout_ms} ms: {reason}")

    def _attempt_ms(self, what: int) -> int:
        """A change of the voters waits until the new server has caught up."""
        is_change = what in (protocol.ADD, protocol.REMOVE)
        return self._timeout_ms if is_change else ATTEMPT_MS

    def _turn_to_another(self) -> None:
        others = [server for server in self._servers if server != self._server]
        if others:
            self._server = others[_any(self._runtime.randomness, len(others))]

    async def _ask_once(
        self, server: Address, what: int, argument: Value, wait_ms: int
    ) -> tuple[int, Value]:
        connection = self._connections.get(server)
        if connection is None:
            connection = self._connections[server] = _Connection(self._runtime, server)
        self._number += 1
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await connection.ask(self._number, what, argument)
        except TimeoutError:
            connection.close()
            self._connections.pop(server, None)
            raise _Lost("does not respond") from None
        except _Lost:
            connection.close()
            self._connections.pop(server, None)
            raise


class _Connection:
    def __init__(self, runtime: Runtime, server: Address) -> None:
        self._link = Link(
            runtime,
            server,
            on_frame=self._on_frame,
            on_refused=lambda: self._fail("refuses the connection"),
            on_lost=lambda: self._fail("the connection broke"),
        )
        self._waiting: dict[int, asyncio.Future[tuple[int, Value]]] = {}

    async def ask(self, question: int, what: int, argument: Value) -> tuple[int, Value]:
        answer: asyncio.Future[tuple[int, Value]] = asyncio.get_running_loop().create_future()
        self._waiting[question] = answer
        self._link.send(protocol.CLIENT + pack((question, what, argument)))
        return await answer

    def close(self) -> None:
        self._link.close()
        self._waiting.clear()

    def _on_frame(self, data: bytes) -> None:
        try:
            question, code, answer = tuple_of(unpack_tuple(data), 3)
            waiting = self._waiting.pop(number(question), None)
            if waiting is not None and not waiting.done():
                waiting.set_result((number(code), answer))
        except Malformed:
            self._fail("sent an invalid response")

    def _fail(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(_Lost(reason))


def _done(answer: bytes) -> Value:
    status, value = tuple_of(unpack_tuple(answer), 2)
    if status != DONE:
        raise CommandRejected(text(value))
    return value


def _any(randomness: Randomness, count: int) -> int:
    return randomness.below(count)
