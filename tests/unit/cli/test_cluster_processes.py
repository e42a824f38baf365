"""Three nodes as processes: another controller becomes active when the active one is killed."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.peers import Lane
from lograft.broker.quorum.formatting import FormatRequest, InitialControllers, format_directories
from lograft.cli.node_runner import read_config
from lograft.model.listeners import Voter
from lograft.model.seams import Address
from lograft.model.types import NodeId
from lograft.model.uuids import uuid_to_text
from lograft.net.sockets import SocketTransport
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
)

LOGRAFT = str(Path(sys.executable).with_name("lograft"))
#: Long timeouts, so that a fast failover cannot be the result of a timeout.
PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={servers}
controller.quorum.election.timeout.ms=2000
controller.quorum.fetch.timeout.ms=60000
log.dirs={folder}
"""
TIMEOUT_S = 30


class Nodes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
        ports = [server.getsockname()[1] for server in servers]
        for server in servers:
            server.close()
        self.ports = dict(enumerate(ports[:3], 1))
        self._controller_ports = dict(enumerate(ports[3:], 1))
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self._format()

    def _format(self) -> None:
        randomness = SystemRandomness()
        cluster_id = uuid_to_text(randomness.uuid())
        voters = tuple(
            Voter(NodeId(node_id), Address("127.0.0.1", port), randomness.uuid())
            for node_id, port in self._controller_ports.items()
        )
        servers = ",".join(str(voter.address) for voter in voters)
        for node_id, port in self.ports.items():
            text = PROPERTIES.format(
                node_id=node_id,
                port=port,
                controller_port=self._controller_ports[node_id],
                servers=servers,
                folder=self._folder / str(node_id),
            )
            self._file(node_id).write_text(text)
            format_directories(
                RealDisk(),
                read_config(str(self._file(node_id))),
                FormatRequest(cluster_id=cluster_id, controllers=InitialControllers(voters)),
                randomness=randomness,
                now_ms=0,
            )

    def _file(self, node_id: int) -> Path:
        return self._folder / f"{node_id}.properties"

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            with (self._folder / f"{node_id}.err").open("a") as log:
                self.processes[node_id] = subprocess.Popen(
                    [LOGRAFT, "server", str(self._file(node_id))],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        for node_id in node_ids:
            stdout = self.processes[node_id].stdout
            assert stdout is not None
            assert "is listening" in stdout.readline(), self.log_of(node_id)

    def log_of(self, node_id: int) -> str:
        return (self._folder / f"{node_id}.err").read_text()

    def end(self, node_id: int, number: signal.Signals) -> int:
        process = self.processes.pop(node_id)
        process.send_signal(number)
        code = process.wait(TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()
        return code


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    try:
        yield nodes
    finally:
        for node_id in list(nodes.processes):
            nodes.end(node_id, signal.SIGKILL)


async def quorum(port: int) -> DescribeQuorumResponsePartitionData:
    """Describes the quorum through a broker, which forwards the request to the controller."""
    lane = Lane(SocketTransport(), Address("127.0.0.1", port), client_id="test")
    topic = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata",
        partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
    )
    request = DescribeQuorumRequest(topics=[topic])
    try:
        response = await lane.request_in(request, 2, DescribeQuorumResponse, timeout_ms=5_000)
    finally:
        lane.disconnect()
    if not response.topics:
        raise PeerLost(f"error {response.error_code}")
    return response.topics[0].partitions[0]


async def create(port: int, name: str) -> int:
    lane = Lane(SocketTransport(), Address("127.0.0.1", port), client_id="test")
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    try:
        response = await lane.request_in(request, 7, CreateTopicsResponse, timeout_ms=10_000)
    finally:
        lane.disconnect()
    return response.topics[0].error_code


def wait_until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Returns how many seconds it took until the condition was true."""

    async def main() -> float:
        start = time.monotonic()
        while time.monotonic() - start < TIMEOUT_S:
            try:
                if await condition():
                    break
            except (PeerLost, PeerUnreachable):
                pass
            await asyncio.sleep(0.01)
        return time.monotonic() - start

    return asyncio.run(main())


def test_another_controller_becomes_active_when_the_active_one_is_killed(nodes: Nodes) -> None:
    nodes.start(1, 2, 3)
    initial = asyncio.run(quorum(nodes.ports[1]))
    old = initial.leader_id

    async def all_caught_up() -> bool:
        state = await quorum(nodes.ports[1])
        ends = {each.replica_id: each.log_end_offset for each in state.current_voters}
        return sorted(ends) == [1, 2, 3] and min(ends.values()) >= initial.high_watermark

    assert wait_until(all_caught_up) < TIMEOUT_S

    other = next(node_id for node_id in (1, 2, 3) if node_id != old)
    nodes.end(old, signal.SIGKILL)

    async def created() -> bool:
        return await create(nodes.ports[other], "after") == 0

    # Neither the election timeout nor the fetch timeout was waited for.
    assert wait_until(created) < 5
    state = asyncio.run(quorum(nodes.ports[other]))
    assert state.leader_id != old
    assert state.leader_epoch == initial.leader_epoch + 1

    nodes.start(old)

    async def is_back() -> bool:
        state = await quorum(nodes.ports[old])
        ends = {each.replica_id: each.log_end_offset for each in state.current_voters}
        return state.leader_id != old and ends[old] >= state.high_watermark

    assert wait_until(is_back) < TIMEOUT_S
    # A controlled shutdown hands over leadership; the others do not have to detect a failure.
    assert nodes.end(state.leader_id, signal.SIGTERM) == 0, nodes.log_of(state.leader_id)
    assert asyncio.run(create(nodes.ports[old], "last")) == 0
