"""Checks whether a node accepts requests, with a Metadata request that is encoded by hand."""

import socket
import struct
from typing import Final

METADATA_KEY: Final = 3
METADATA_VERSION: Final = 1
ANSWER_SECONDS_MAX: Final = 5.0
#: Header version 1 (key, version, correlation id, client id "probe"), then no topics.
REQUEST: Final = struct.pack(">hhih5si", METADATA_KEY, METADATA_VERSION, 1, 5, b"probe", 0)


def broker_ids(host: str, port: int) -> list[int]:
    """Returns the brokers in the node's metadata; none if it is unreachable or has no metadata
    yet."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS_MAX) as connection:
            connection.sendall(struct.pack(">i", len(REQUEST)) + REQUEST)
            (size,) = struct.unpack(">i", receive_exactly(connection, 4))
            answer = receive_exactly(connection, size)
    except OSError:
        return []
    return ids_in(answer)


def ids_in(answer: bytes) -> list[int]:
    """Parses the brokers of a Metadata v1 response: id, host, port, nullable rack."""
    (count,) = struct.unpack_from(">i", answer, 4)
    position = 8
    ids = []
    for _broker in range(count):
        node_id, host_size = struct.unpack_from(">ih", answer, position)
        position += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(rack_size, 0)
        ids.append(node_id)
    return ids


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            raise ConnectionError("closed in the middle of an answer")
        received += more
    return bytes(received)
