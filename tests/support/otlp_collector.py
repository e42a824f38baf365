"""An OpenTelemetry collector: an HTTP server in a thread, which decodes with OpenTelemetry's own
classes."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

SECONDS_MAX: Final = 60.0
REQUESTS: Final[dict[str, Any]] = {
    "/v1/metrics": metrics_service.ExportMetricsServiceRequest,
    "/v1/traces": trace_service.ExportTraceServiceRequest,
}


class Collector:
    """Answers with `statuses`, one for each request, then with 200 and `response`."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.response = b""
        #: Path and header lines of each request, whatever its answer was.
        self.requests: list[tuple[str, dict[str, str]]] = []
        #: Accepted and decoded.
        self.metrics: list[Any] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, response = collector._receive(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(response)))
                self.end_headers()
                self.wfile.write(response)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Collector":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def wait_for(self, *, spans: int = 0, metrics: int = 0, requests: int = 0) -> None:
        """Blocks until at least so many have arrived."""

        def has_arrived() -> bool:
            return (
                len(self.spans) >= spans
                and len(self.metrics) >= metrics
                and len(self.requests) >= requests
            )

        with self._changed:
            assert self._changed.wait_for(has_arrived, SECONDS_MAX), (
                len(self.spans),
                len(self.metrics),
                self.requests,
            )

    def _receive(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        with self._changed:
            self.requests.append((path, headers))
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                self._decode(REQUESTS[path].FromString(body))
            self._changed.notify_all()
        return status, self.response if status == 200 else b"sorry"

    def _decode(self, request: Any) -> None:
        if isinstance(request, REQUESTS["/v1/metrics"]):
            for each in request.resource_metrics:
                self.resources.append(attributes_of(each.resource))
                for scope in each.scope_metrics:
                    assert scope.scope.name == "lograft"
                    self.metrics += scope.metrics
        else:
            for each in request.resource_spans:
                self.resources.append(attributes_of(each.resource))
                for scope in each.scope_spans:
                    assert scope.scope.name == "lograft"
                    self.spans += scope.spans


def attributes_of(message: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in message.attributes
    }
