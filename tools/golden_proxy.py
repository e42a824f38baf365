"""A TCP proxy that records Kafka frames."""

import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from typing import Final

from tests.golden.frames_file import Frame

FRAME_BYTES_MAX: Final = 24_000
#: Limit per API, version and direction for one client, which is enough to show their variants.
KEPT_PER_SOURCE: Final = 6
KEPT_IN_ALL: Final = 16


class Recorder:
    """Records a few distinct frames of every kind; `source` is the name of the current client."""

    def __init__(self) -> None:
        self.source = "none"
        self.frames: list[Frame] = []
        self._seen: set[tuple[int, int, str, bytes]] = set()
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._lock = threading.Lock()

    def keep(self, api_key: int, version: int, is_request: bool, data: bytes) -> None:
        direction: Final = "request" if is_request else "response"
        without_correlation = data[:4] + data[8:] if is_request else data[4:]
        kind = (api_key, version, direction)
        with self._lock:
            seen = (*kind, without_correlation)
            if len(data) > FRAME_BYTES_MAX or seen in self._seen:
                return
            by_source = (*kind, self.source)
            if self._counts[by_source] >= KEPT_PER_SOURCE or self._counts[kind] >= KEPT_IN_ALL:
                return
            self._seen.add(seen)
            self._counts[by_source] += 1
            self._counts[kind] += 1
            self.frames.append(Frame(api_key, version, direction, self.source, data))


class Proxy:
    """Listens on a port and forwards every connection to another one."""

    def __init__(self, target_port: int, port: int, recorder: Recorder) -> None:
        self._target_port = target_port
        self._recorder = recorder
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _address = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target_port))
                except OSError:
                    client.close()
                    continue
                #: Requests in flight on this connection: correlation id to API key and version.
                asked: dict[int, tuple[int, int]] = {}
                for ends in ((client, server, True), (server, client, False)):
                    arguments = (*ends, asked)
                    threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        is_request: bool,
        asked: dict[int, tuple[int, int]],
    ) -> None:
        buffer = bytearray()
        with suppress(OSError):
            while data := source.recv(65536):
                buffer += data
                # Recorded before the request is forwarded, since the response needs it.
                self._take_frames(buffer, is_request, asked)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _take_frames(
        self, buffer: bytearray, is_request: bool, asked: dict[int, tuple[int, int]]
    ) -> None:
        while len(buffer) >= 4:
            (size,) = struct.unpack_from(">i", buffer)
            if len(buffer) < 4 + size:
                return
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            if is_request:
                api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
                asked[correlation_id] = (api_key, version)
                self._recorder.keep(api_key, version, True, frame)
            else:
                (correlation_id,) = struct.unpack_from(">i", frame)
                api_key, version = asked.pop(correlation_id)
                self._recorder.keep(api_key, version, False, frame)
