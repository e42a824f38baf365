"""Hostile connections against a node process, while a well-behaved client works.

Each siege ends with the same checks (`BesiegedNode.siege`): the node runs, uses no more memory than
before, has served the other client in time, and has no sign of a bug in its log.
"""

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.batches import Record, build_batch
from lograft.wire.compression import Codec
from lograft.wire.headers import frame_request
from lograft.wire.messages.api_versions import ApiVersionsRequest
from lograft.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.compatibility.readiness import receive_exactly
from tests.fuzz.besieged_node import (
    FETCH_VERSION,
    BesiegedNode,
    Client,
    fetch_request,
    is_closed_by_peer,
)
from tests.fuzz.hostile_batches import bomb, one_record_bomb

pytestmark = pytest.mark.fuzz

MIB = 1 << 20
GIB_2 = struct.pack(">i", 2**31 - 1)
#: socket.request.max.bytes
FRAME_BYTES_MAX = 100 * MIB
API_VERSIONS = frame_request(ApiVersionsRequest(), 0, correlation_id=1, client_id="slow")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BesiegedNode]:
    with BesiegedNode(tmp_path_factory.mktemp("siege")).started() as node:
        yield node


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1)


def test_garbage_before_the_first_request(node: BesiegedNode) -> None:
    chance = random.Random(1)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(64)
    words = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", hello, b"\0" * 100, b"\xff" * 100, b"\n" * 9]
    words += [framed(chance.randbytes(chance.randrange(100))) for _ in range(60)]
    with node.siege():
        for word in words:
            with node.connect() as connection:
                connection.sendall(word)
                connection.shutdown(socket.SHUT_WR)
                assert is_closed_by_peer(connection), word


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_impossible_sizes_close_at_once(node: BesiegedNode, size: int) -> None:
    with node.siege(), node.connect() as connection:
        connection.sendall(struct.pack(">i", size) + b"more")
        assert is_closed_by_peer(connection)


def test_slow_frames_get_a_response(node: BesiegedNode) -> None:
    with node.siege(), ExitStack() as stack:
        slow = [stack.enter_context(node.connect()) for _ in range(100)]
        for byte in API_VERSIONS:
            for connection in slow:
                connection.send(bytes([byte]))
            time.sleep(0.02)
        for connection in slow:
            (size,) = struct.unpack(">i", receive_exactly(connection, 4))
            assert receive_exactly(connection, size)[:4] == b"\0\0\0\1"


def test_disconnects_in_the_middle_of_a_frame(node: BesiegedNode) -> None:
    with node.siege():
        for turn in range(300):
            with node.connect() as connection:
                connection.sendall((API_VERSIONS * 2)[: 1 + turn % (2 * len(API_VERSIONS) - 1)])
                if turn % 2:
                    # A reset instead of a regular end.
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@pytest.mark.parametrize("declared", [2**31 - 1, FRAME_BYTES_MAX])
def test_five_hundred_large_announced_sizes(node: BesiegedNode, declared: int) -> None:
    with node.siege(), ExitStack() as stack:
        for _ in range(500):
            connection = stack.enter_context(node.connect())
            try:
                connection.sendall(struct.pack(">i", declared) + bytes(2000))
            except ConnectionError:
                assert declared > FRAME_BYTES_MAX
        time.sleep(0.5)


def test_connection_storm(node: BesiegedNode) -> None:
    with node.siege():
        for _ in range(4):
            with ExitStack() as stack:
                for _ in range(400):
                    stack.enter_context(node.connect())


def test_clients_that_do_not_read_responses(node: BesiegedNode) -> None:
    records = [Record(0, -1, None, bytes(900_000))]
    with Client(node.port) as client:
        client.create_topic("big")
        for _ in range(40):
            assert client.produce("big", build_batch(records))[0] == ErrorCode.NONE
    request = fetch_request("big", 0, bytes_max=32 * MIB)
    frame = frame_request(request, FETCH_VERSION, correlation_id=1, client_id="lazy")
    with node.siege(), ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(node.connect())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(frame * 20)
        time.sleep(1.0)


def tags(count: int) -> bytes:
    """Returns a count of tagged fields, and as many empty ones in order."""
    return uvarint(count) + b"".join(uvarint(tag) + b"\0" for tag in range(count))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(header(18, 3) + tags(1_000_000), id="header tags"),
        pytest.param(header(18, 3) + uvarint(2**31 - 1), id="header tags that are not there"),
        pytest.param(header(18, 3) + b"\0" + b"\2a\2a" + tags(1_000_000), id="body tags"),
        pytest.param(header(3, 1) + b"\x7f\xff\xff\xff", id="topics that are not there"),
        pytest.param(header(3, 9) + b"\0" + uvarint(2**32 - 1), id="compact topics"),
        pytest.param(header(3, 9) + b"\0" + uvarint(5_000_001) + b"\1\0" * 5_000_000, id="structs"),
        pytest.param(header(74, 1) + b"\0" + uvarint(8_000_001) + bytes(8_000_001), id="numbers"),
        pytest.param(
            header(32, 4) + b"\0\2\2\2a" + uvarint(8_000_001) + b"\1" * 8_000_000 + b"\0\0\0\0",
            id="strings",
        ),
        pytest.param(header(1, 4) + bytes(17) + b"\x7f\xff\xff\xff", id="fetched topics"),
        pytest.param(header(3, 9) + b"\0" + uvarint(100_001) + b"\3aa\0" * 100_000, id="topics"),
    ],
)
def test_invalid_and_amplifying_counts(node: BesiegedNode, spoilt: bytes) -> None:
    # The frame itself is in memory, and its content may occupy some for a moment.
    with node.siege(peak_growth_bytes_max=160 * MIB), node.connect() as connection:
        connection.sendall(framed(spoilt))
        connection.shutdown(socket.SHUT_WR)
        assert is_closed_by_peer(connection)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compression_bombs(node: BesiegedNode, codec: Codec) -> None:
    """In topics that need validation (compacted, with another codec) and in lookups by time."""
    now_ms = int(time.time() * 1000)
    names = {"plain": {}, "compacted": {"cleanup_policy": "compact"}, "packed": {}}
    names["packed"] = {"compression_type": "gzip" if codec == Codec.ZSTD else "zstd"}
    with Client(node.port) as client:
        for name, settings in names.items():
            client.create_topic(f"{name}-{codec.text}", **settings)
    bombs = [
        bomb(codec, unpacked_bytes=8 * MIB, timestamp=now_ms),
        one_record_bomb(codec, value_bytes=15 * MIB, timestamp=now_ms),
        one_record_bomb(codec, value_bytes=300 * MIB, timestamp=now_ms)
        if codec != Codec.SNAPPY
        else one_record_bomb(codec, value_bytes=20 * MIB, timestamp=now_ms),
    ]
    # The allocator keeps some of the buffers of 32 MiB for reuse.
    bounds = {"growth_bytes_max": 128 * MIB, "peak_growth_bytes_max": 160 * MIB}
    with node.siege(**bounds), Client(node.port) as client:
        for name in names:
            topic = f"{name}-{codec.text}"
            for batch in bombs:
                client.produce(topic, batch)
            asked = ListOffsetsPartition(partition_index=0, timestamp=now_ms)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
            )
            client.ask(request, 7, ListOffsetsResponse)


def test_no_records_are_lost_afterwards(node: BesiegedNode) -> None:
    """The last test: a clean stop, and a start on the same directory."""
    assert len(node.acknowledged) > 1
    node.check_nothing_lost()
    node.server.stop()
    node.server.start()
    node.check_nothing_lost()
    log = node.server.log_path.read_text(errors="replace")
    assert "was not shut down cleanly" not in log
    assert "Traceback" not in log
