"""A complete node on a simulated machine, with requests to its frame handlers.

Time is virtual, so a long poll takes no time, and a seed always gives the same run.
"""

import logging
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from lograft.api.router import Router, Session
from lograft.broker.broker import Broker
from lograft.broker.quorum.formatting import FormatRequest, Standalone, format_directories
from lograft.metadata.image import MetadataImage
from lograft.model.exchange import EncodedResponse, PendingReply
from lograft.model.seams import Address, Channel, FileSlice
from lograft.model.settings.broker import BrokerConfig, broker_config
from lograft.node import Node
from lograft.simulation.loop import SimulatedLoop
from lograft.simulation.machine import Machine
from lograft.simulation.network import Network
from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from tests.unit.broker.bench import decoded

T = TypeVar("T")
M = TypeVar("M", bound=Message)
LISTENERS = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
CORRELATION_ID = 7


def node_config(**settings: str) -> BrokerConfig:
    return broker_config(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://node:9092,CONTROLLER://node:9093",
            "controller.quorum.bootstrap.servers": "node:9093",
            "log.dirs": "/data",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


class Complaints(logging.Handler):
    """The node's log lines about its own bugs: every traceback, and every line of level ERROR."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._format = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.lines.append(self._format.format(record))

    def __enter__(self) -> "Complaints":
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


class _Peer:
    peer = Address("10.0.0.1", 4711)


class SimulatedNode:
    """Survives its processes: after `stop`, `start` starts the next one on the same disk."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.loop = SimulatedLoop(seed)
        self.machine = Machine(self.loop, Network(self.loop), "node")
        self.config = node_config(**settings)
        self.halted: list[str] = []
        self._node: Node | None = None
        self._formatted = False

    @property
    def broker(self) -> Broker:
        assert self._node is not None, "not started"
        return self._node.broker

    @property
    def image(self) -> MetadataImage:
        return self.broker.image

    def start(self) -> None:
        life = self.machine.boot()
        runtime = life.runtime
        if not self._formatted:
            format_directories(
                runtime.disk,
                self.config,
                FormatRequest.for_new_cluster(runtime.randomness, controllers=Standalone()),
                randomness=runtime.randomness,
                now_ms=runtime.clock.wall_ms(),
            )
            self._formatted = True
        self._node = Node(self.config, runtime, halt=self.halted.append)
        self.run(self._node.start())

    def stop(self) -> None:
        assert self._node is not None
        self.run(self._node.stop())
        self.check()
        self.machine.exit()
        self._node = None

    def kill(self) -> None:
        """Kills the process: data passed to the kernel survives."""
        self.check()
        self.machine.kill()
        self._node = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        life = self.machine.life
        assert life is not None
        return self.loop.run_until_complete(life.run(work, name="fuzz"))

    def check(self) -> None:
        """Checks that no task has failed, no exception was lost, and the node still runs."""
        life = self.machine.life
        assert life is not None
        assert not life.failures, life.failures
        assert not self.loop.unhandled, self.loop.unhandled
        assert not self.halted, self.halted

    def session(self, role: str = "broker") -> Session:
        """Returns the frame handler of a new connection."""
        broker = self.broker if role == "broker" else None
        router = Router(self.broker.shared, broker, listener=LISTENERS[role], role=role)
        return router(cast(Channel, _Peer()))

    async def ask(self, request: Message, version: int, kind: type[M]) -> M:
        frame = frame_request(request, version, correlation_id=CORRELATION_ID, client_id="calm")
        reply = decoded(self.session().handle_frame(memoryview(bytearray(frame[4:]))))
        if isinstance(reply, PendingReply):
            reply = await reply.response
        assert reply is not None
        response = read_response(reply, request.KEY, version, CORRELATION_ID)
        assert isinstance(response, kind)
        return response


def read_response(
    response: EncodedResponse, key: int, version: int, correlation_id: int
) -> Message:
    """Reads the response, and checks that a client could read it, to the last byte."""
    data = b"".join(
        part.file.pread(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in response.parts
    )
    assert int.from_bytes(data[:4]) == len(data) - 4
    data = data[4:]
    answered, position = read_response_header(data, response_header_version(key, version))
    assert answered == correlation_id
    return read_all(response_class(key), version, data, position)
