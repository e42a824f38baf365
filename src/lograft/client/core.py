"""The part that producers, consumers and admin clients share: seams, connections and metadata.

Simulations pass their own seams; otherwise those of the machine are used.
"""

import logging
import ssl
from dataclasses import replace
from typing import Final, Generic, TypeVar

from lograft.client.client_settings import ClientSettings
from lograft.client.errors import Closed
from lograft.client.metadata_updates import NEVER_IDLE_MS, Metadata
from lograft.client.metering.declarations import Level
from lograft.client.metering.registry import MetricRegistry
from lograft.client.network import Network
from lograft.client.telemetry import TelemetryPusher, resource_of
from lograft.client.tls import tls_context
from lograft.model.seams import Runtime, Transport
from lograft.net.channels import BufferSizes
from lograft.net.sockets import SocketTransport
from lograft.net.tls import TlsTransport
from lograft.runtime.clock import SystemClock
from lograft.runtime.disk import RealDisk
from lograft.runtime.randomness import SystemRandomness
from lograft.runtime.tasks import OwnedSpawn
from lograft.runtime.workers import ThreadWorkers

LOGGER: Final = logging.getLogger(__name__)

S = TypeVar("S", bound=ClientSettings)


class ClientCore(Generic[S]):
    """Created inside a running event loop; all of its state belongs to that loop."""

    def __init__(
        self,
        settings: S,
        *,
        creates_topics: bool = False,
        metadata_max_idle_ms: int = NEVER_IDLE_MS,
        runtime: Runtime | None = None,
    ) -> None:
        self.settings = settings
        #: Unexpected exception of a task of this client: a bug. Raised by the next call.
        self.failure: BaseException | None = None
        self._tasks = OwnedSpawn(self.fail)
        self._workers: ThreadWorkers | None = None
        #: The client always owns its tasks, even with the clock and network of a simulation.
        self.runtime = replace(runtime or self._system_runtime(), spawn=self._tasks)
        self.network = Network(self.runtime, settings, transport=self._transport())
        self.metadata = Metadata(
            self.runtime,
            self.network,
            settings,
            creates_topics=creates_topics,
            max_idle_ms=metadata_max_idle_ms,
        )
        self.metrics = MetricRegistry(
            self.runtime.clock,
            kind=settings.kind,
            client_id=settings.client_id,
            samples=settings.metrics_num_samples,
            window_ms=settings.metrics_sample_window_ms,
            level=Level[settings.metrics_recording_level],
            reporters=settings.metric_reporters,
        )
        self.metrics.add_source(self.network.metrics.collect_readings)
        #: Pending work is being completed, and new calls are rejected.
        self.is_closing = False
        self.is_closed = False
        self._telemetry: TelemetryPusher | None = None
        if settings.enable_metrics_push:
            self._telemetry = TelemetryPusher(
                self.runtime,
                self.network,
                self.metrics,
                resource=resource_of(settings),
                request_timeout_ms=settings.request_timeout_ms,
            )
            self._telemetry.start()
        self.metadata.start()
        self.metrics.start()

    def now_ms(self) -> int:
        return self.runtime.clock.mono_ms()

    def check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_closed or self.is_closing:
            raise Closed("the client is closed")

    async def close(self) -> None:
        """Cancels every task of the client. Pending work must have been completed before."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._telemetry is not None:
            await self._telemetry.close()
        self.metrics.close()
        self.metadata.close()
        self.network.close()
        await self._tasks.close()
        if self._workers is not None:
            self._workers.close()

    def _system_runtime(self) -> Runtime:
        self._workers = ThreadWorkers()
        settings = self.settings
        return Runtime(
            clock=SystemClock(),
            randomness=SystemRandomness(),
            disk=RealDisk(),
            workers=self._workers,
            transport=SocketTransport(
                BufferSizes(settings.send_buffer_bytes, settings.receive_buffer_bytes)
            ),
            spawn=self._tasks,
        )

    def _transport(self) -> Transport:
        if not self.settings.uses_tls:
            return self.runtime.transport
        context: ssl.SSLContext = tls_context(self.settings)
        return TlsTransport(self.runtime.transport, client=context)

    def fail(self, error: BaseException) -> None:
        """Records an unexpected exception of a task, which makes the client unusable."""
        self.failure = error
        LOGGER.error("unexpected error in a client task; the client must be closed", exc_info=error)
