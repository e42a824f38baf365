"""One server: its data directory, its driver, and the port for clients and other servers.

It uses only the seams, so that the simulator can run a cluster of servers in one event loop.
"""

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from examples.raft_kv import folder, protocol
from examples.raft_kv.addresses import PEERS_MAX, Peer
from examples.raft_kv.driver import DriverSettings, RaftDriver, VoterChangeRejected
from examples.raft_kv.links import FRAME_BYTES_MAX, UNSENT_BYTES_MAX, frame
from examples.raft_kv.packing import Malformed, Value, content, number, pack, text, unpack_tuple
from examples.raft_kv.packing import values as tuple_of
from examples.raft_kv.requests import Busy, NotLeader, Uncertain
from examples.raft_kv.store import KeyValueStore, check_command, check_key
from lograft.consensus.messages import AddVoterRequest, RemoveVoterRequest
from lograft.consensus.types import ReplicaKey, Voter, VoterEndpoint, VoterSet
from lograft.model.errors import InvalidInput
from lograft.model.exchange import CloseConnection
from lograft.model.seams import Address, Channel, DirectoryLock, Runtime
from lograft.model.types import NodeId
from lograft.net.connection_limits import ConnectionLimits, ConnectionQuota
from lograft.net.frame_memory import FrameBudget
from lograft.net.server import Server, ServerLimits

ENDPOINT: Final = "KV"
CONNECTIONS_MAX: Final = 1_000
#: Maximum number of requests of a client without a response.
QUESTIONS_MAX: Final = 100


class KvNode:
    #: The parts that tests replace.
    driver_type: type[RaftDriver] = RaftDriver

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        me: Peer,
        peers: Sequence[Peer],
        settings: DriverSettings | None = None,
    ) -> None:
        """If `peers` contains `me`, they are the initial voters; otherwise they are the servers to
        contact until this server is added."""
        self._runtime = runtime
        self._path = path
        self._me = me
        self._peers = peers
        self.settings = settings or DriverSettings()
        self.store = KeyValueStore()
        self._lock: DirectoryLock | None = None
        self._server: Server | None = None
        self._driver: RaftDriver | None = None

    @property
    def driver(self) -> RaftDriver:
        assert self._driver is not None, "not started"
        return self._driver

    async def start(self) -> None:
        load = partial(
            folder.load,
            self._runtime.disk,
            self._path,
            self._me.node_id,
            segment_bytes=self.settings.segment_bytes,
            randomness=self._runtime.randomness,
            now_ms=self._runtime.clock.wall_ms(),
        )
        await self._runtime.workers.run(self._take_folder)
        loaded = await self._runtime.workers.run(load)
        self._driver = self.driver_type(
            self._runtime,
            self._path,
            loaded,
            self.store,
            settings=self.settings,
            voters=self._founders(),
            known={peer.node_id: peer.address for peer in self._peers},
        )
        self._server = Server(
            ENDPOINT,
            partial(Session, self),
            runtime=self._runtime,
            quota=ConnectionQuota(ConnectionLimits(connections_max=CONNECTIONS_MAX)),
            budget=FrameBudget(256 << 20),
            limits=ServerLimits(),
        )
        await self._server.start(self._me.address)
        self._driver.start()
        self._server.serve()

    async def stop(self) -> None:
        if self._driver is not None:
            await self._driver.stop()
        if self._server is not None:
            await self._server.stop()
        if self._lock is not None:
            self._lock.release()

    def _take_folder(self) -> None:
        disk = self._runtime.disk
        try:
            if not disk.is_dir(self._path):
                disk.make_dir(self._path)
                disk.fsync_dir(self._path.rpartition("/")[0] or "/")
            self._lock = disk.lock(f"{self._path}/{folder.LOCK}")
        except BlockingIOError:
            raise InvalidInput(f"{self._path} is in use by another server") from None
        except OSError as error:
            raise InvalidInput(f"{self._path} cannot be used: {error.strerror}") from None

    def _founders(self) -> VoterSet:
        """The command line does not contain their directory ids: their node ids identify them."""
        if self._me not in self._peers:
            return VoterSet(())
        return VoterSet(
            tuple(
                Voter(ReplicaKey(peer.node_id), (_endpoint(peer.address),)) for peer in self._peers
            )
        )

    # ── what a client asks ───────────────────────────────────────────────────────────────────

    async def answer(self, what: int, argument: Value) -> tuple[int, Value]:
        """Returns the code and the content of the response."""
        try:
            return protocol.OK, await self._answer(what, argument)
        except NotLeader:
            address = self.driver.address_of(self.driver.core.leader)
            if address is None or self.driver.core.leader == self._me.node_id:
                return protocol.REDIRECT, None
            return protocol.REDIRECT, (address.host, address.port)
        except Uncertain as error:
            return protocol.UNCERTAIN, str(error)
        except Busy as error:
            return protocol.BUSY, str(error)
        except (VoterChangeRejected, Malformed, InvalidInput) as error:
            return protocol.REFUSED, str(error)

    async def _answer(self, what: int, argument: Value) -> Value:
        if what == protocol.COMMAND:
            command = content(argument)
            if len(command) > self.settings.batch_bytes_max:
                raise Malformed(
                    f"a command of {len(command)} bytes; {self.settings.batch_bytes_max} fit into"
                    " a segment here"
                )
            check_command(command)
            return await self.driver.propose(command)
        if what == protocol.QUERY:
            return await self.driver.query(check_key(content(argument)))
        if what == protocol.STATUS:
            return self._status()
        if what == protocol.ADD:
            await self._add(argument)
            return None
        if what == protocol.REMOVE:
            await self._remove(NodeId(number(argument)))
            return None
        raise Malformed(f"unknown request type {what}")

    async def _add(self, argument: Value) -> None:
        host, port, node_id, directory = tuple_of(argument, 4)
        raw = content(directory)
        if not 0 < number(port) < 65_536 or not 0 <= number(node_id) < 2**31 or len(raw) != 16:
            raise Malformed("expected host, port, id and directory id of a server")
        if len(self.driver.core.voters.voters) >= PEERS_MAX:
            raise Malformed(f"the maximum is {PEERS_MAX} servers")
        voter = Voter(
            ReplicaKey(NodeId(number(node_id)), UUID(bytes=raw)),
            (_endpoint(Address(text(host), number(port))),),
        )
        await self.driver.change_voters(AddVoterRequest(voter=voter))

    async def _remove(self, node_id: NodeId) -> None:
        voter = self.driver.core.voters.find(node_id)
        key = ReplicaKey(node_id) if voter is None else voter.key
        await self.driver.change_voters(RemoveVoterRequest(key=key))

    def _status(self) -> Value:
        core, log = self.driver.core, self.driver.log
        snapshot = core.log.snapshot
        return (
            ("id", self._me.node_id),
            ("directory", core.me.directory_id.bytes),
            ("role", core.role.value if core.is_voter else "observer"),
            ("epoch", core.epoch),
            ("leader", core.leader),
            ("log start", core.log.start.offset),
            ("log end", log.end_offset),
            ("segments", len(log.segments)),
            ("high watermark", core.high_watermark),
            ("applied", self.driver.applied),
            ("snapshot end", 0 if snapshot is None else snapshot.end_offset),
            ("snapshots installed", self.driver.installs),
            ("keys", len(self.store)),
            (
                "voters",
                tuple(
                    f"{self.driver.address_of(voter.key.node_id)}:{voter.key.node_id}"
                    for voter in core.voters.voters
                ),
            ),
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._runtime.spawn(work, name="question")


def _endpoint(address: Address) -> VoterEndpoint:
    return VoterEndpoint(ENDPOINT, address.host, address.port)


class Session:
    """A connection of a client or of another server. A `FrameHandler` that sends its own responses,
    because they may be out of order: the leader delays the response to a fetch until there are new
    records."""

    frame_bytes_max = FRAME_BYTES_MAX
    received_ns = 0

    def __init__(self, node: KvNode, channel: Channel) -> None:
        self._node = node
        self._channel = channel
        self._under_way = 0
        self._is_closed = False

    def handle_frame(self, data: memoryview) -> None:
        """An invalid frame closes the connection, because its request has no number to respond
        to."""
        speaker, body = bytes(data[:1]), bytes(data[1:])
        try:
            if speaker == protocol.PEER:
                self._node.driver.take(body, self._send)
            elif speaker == protocol.CLIENT:
                question = tuple_of(unpack_tuple(body), 3)
                self._begin(number(question[0]), number(question[1]), question[2])
            else:
                raise Malformed("unknown frame type")
        except Malformed as error:
            raise CloseConnection(str(error)) from None

    def on_frames_handled(self) -> None: ...

    def on_closed(self) -> None:
        self._is_closed = True

    def _begin(self, question: int, what: int, argument: Value) -> None:
        if self._under_way >= QUESTIONS_MAX:
            refusal = f"{QUESTIONS_MAX} requests of this connection are already in flight"
            self._send(pack((question, protocol.BUSY, refusal)))
            return
        self._under_way += 1
        self._node.spawn(self._answer(question, what, argument))

    async def _answer(self, question: int, what: int, argument: Value) -> None:
        code, answer = await self._node.answer(what, argument)
        self._under_way -= 1
        self._send(pack((question, code, answer)))

    def _send(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._channel.unsent_bytes > UNSENT_BYTES_MAX:
            self._channel.abort()
            return
        self._channel.send([frame(data)])
