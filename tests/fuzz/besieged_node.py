"""A real node process under attack, and the well-behaved client that must not be affected."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import psutil

from lograft.wire.apis import response_class, response_header_version
from lograft.wire.batches import Record, build_batch, check_crc, iterate_headers, read_records
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from lograft.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lograft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lograft.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import HOST, Server

M = TypeVar("M", bound=Message)

#: Limits for a siege: memory growth afterwards and in between, relative to the idle node.
RSS_GROWTH_BYTES_MAX: Final = 50 << 20
#: Generous, because the test machine may be busy.
LATENCY_S_MAX: Final = 5.0
ANSWER_S_MAX: Final = 20.0
CALM_TOPIC: Final = "calm"
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12


class Client:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=ANSWER_S_MAX)
        self._correlation_id = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int, kind: type[M]) -> M:
        self._correlation_id += 1
        frame = frame_request(
            request, version, correlation_id=self._correlation_id, client_id="calm"
        )
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", receive_exactly(self._socket, 4))
        data = receive_exactly(self._socket, size)
        header = response_header_version(request.KEY, version)
        correlation_id, position = read_response_header(data, header)
        assert correlation_id == self._correlation_id
        assert response_class(request.KEY) is kind
        return read_all(kind, version, data, position)

    def create_topic(self, name: str, **configs: str) -> None:
        settings = [
            CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
        ]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=settings)
        response = self.ask(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
        assert not response.topics[0].error_code, response

    def produce(self, topic: str, batch: bytes) -> tuple[int, int]:
        """Returns error code and base offset."""
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        response = self.ask(request, PRODUCE_VERSION, ProduceResponse)
        (partition,) = response.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    def fetch(self, topic: str, offset: int) -> bytes:
        response = self.ask(fetch_request(topic, offset), FETCH_VERSION, FetchResponse)
        (partition,) = response.responses[0].partitions
        assert not partition.error_code, response
        assert isinstance(partition.records, bytes | memoryview)
        return bytes(partition.records)


def fetch_request(topic: str, offset: int, *, bytes_max: int = 1 << 20) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(
        max_wait_ms=0,
        max_bytes=bytes_max,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


class CalmClient(threading.Thread):
    """Produces and fetches all the time; records errors and the longest duration."""

    def __init__(self, port: int) -> None:
        super().__init__(name="calm client", daemon=True)
        self._port = port
        self._over = threading.Event()
        self.errors: list[str] = []
        self.slowest_s = 0.0
        self.rounds = 0
        #: Acknowledged values, by offset.
        self.written: dict[int, bytes] = {}

    def run(self) -> None:
        try:
            with Client(self._port) as client:
                while not self._over.wait(0.01):
                    self._round(client)
        except (OSError, AssertionError) as error:
            self.errors.append(repr(error))

    def _round(self, client: Client) -> None:
        value = b"%d" % self.rounds
        started = time.monotonic()
        code, offset = client.produce(CALM_TOPIC, build_batch([Record(0, -1, None, value)]))
        assert not code, f"produce: {code}"
        self.written[offset] = value
        data = client.fetch(CALM_TOPIC, offset)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        (_, header), *_ = iterate_headers(data)
        assert header.base_offset == offset
        assert value in data
        self.rounds += 1

    def end(self) -> None:
        """Ends after at least one more round, because the attack may have been short."""
        rounds, deadline = self.rounds, time.monotonic() + ANSWER_S_MAX
        while self.rounds == rounds and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._over.set()
        self.join(ANSWER_S_MAX)


class BesiegedNode:
    def __init__(self, folder: Path) -> None:
        self.server = Server.of("lograft", folder)
        #: Values that calm clients have written in all sieges, by offset.
        self.acknowledged: dict[int, bytes] = {}

    @contextmanager
    def started(self) -> Iterator["BesiegedNode"]:
        with self.server.started():
            with Client(self.port) as client:
                client.create_topic(CALM_TOPIC)
            # Imports and compilations of the first requests are not caused by the attack.
            with self.siege():
                time.sleep(0.2)
            yield self

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def rss_bytes(self) -> int:
        return int(psutil.Process(self.server.pid).memory_info().rss)

    @property
    def peak_bytes(self) -> int:
        """Returns the maximum since `forget_peak`."""
        for line in Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError("the kernel does not report the peak")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")

    @contextmanager
    def siege(
        self,
        *,
        growth_bytes_max: int = RSS_GROWTH_BYTES_MAX,
        peak_growth_bytes_max: int = RSS_GROWTH_BYTES_MAX,
    ) -> Iterator[CalmClient]:
        """Runs a client during the attack; checks afterwards that everything is as before."""
        before = self.rss_bytes
        self.forget_peak()
        calm = CalmClient(self.port)
        calm.start()
        try:
            yield calm
        finally:
            calm.end()
            self.acknowledged |= calm.written
        assert self.server.process is not None
        assert self.server.process.poll() is None, f"the node died\n{self.server.log_tail()}"
        assert not calm.errors, (calm.errors, self.server.log_tail())
        assert calm.rounds, "the calm client had no turn"
        assert calm.slowest_s < LATENCY_S_MAX, f"{calm.slowest_s:.1f} s"
        log = self.server.log_path.read_text(errors="replace")
        assert "Traceback" not in log, self.server.log_tail()
        grown, peak = self.rss_bytes - before, self.peak_bytes - before
        assert grown < growth_bytes_max, f"{grown >> 20} MiB stay"
        assert peak < peak_growth_bytes_max, f"{peak >> 20} MiB at the peak"

    def check_nothing_lost(self) -> None:
        found: dict[int, bytes] = {}
        with Client(self.port) as client:
            while data := client.fetch(CALM_TOPIC, len(found)):
                for position, header in iterate_headers(data):
                    assert header.base_offset == len(found), "the log has a gap"
                    assert check_crc(data, position, header.size_bytes)
                    batch = data[position : position + header.size_bytes]
                    (record,) = read_records(batch, bytes_max=1000)
                    found[record.offset] = record.value or b""
        assert found == self.acknowledged

    def connect(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=ANSWER_S_MAX)


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Waits for the end of the stream, ignoring remaining data."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
