"""Sends single requests over a plain socket, with fields that no client library exposes."""

import socket

from lograft.wire.apis import response_class, response_header_version
from lograft.wire.codec import read_all
from lograft.wire.headers import frame_request, read_response_header
from lograft.wire.message import Message
from tests.compatibility.readiness import receive_exactly
from tests.compatibility.servers import HOST, Server

ANSWER_SECONDS_MAX = 30


def connect(server: Server, *, port: int | None = None) -> socket.socket:
    return socket.create_connection((HOST, port or server.port), ANSWER_SECONDS_MAX)


def connect_to(bootstrap: str) -> socket.socket:
    """Sends the request to the first of the given addresses."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    return socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX)


def ask(
    connection: socket.socket, request: Message, version: int, *, client_id: str = "same"
) -> Message:
    frame = frame_request(request, version, correlation_id=5, client_id=client_id)
    connection.sendall(frame)
    size = int.from_bytes(receive_exactly(connection, 4), "big")
    answer = receive_exactly(connection, size)
    _id, position = read_response_header(answer, response_header_version(request.KEY, version))
    return read_all(response_class(request.KEY), version, answer, position)
