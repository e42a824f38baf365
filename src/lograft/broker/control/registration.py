"""Registration of a broker: it registers, catches up, is unfenced, hands over and shuts down.

Heartbeats use a separate connection: when it is closed and connections to the broker's address are
refused, the controller knows that the process has terminated (broker/control/controller.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.errors import ControllerUnreachable
from lograft.broker.links.controller_link import ControllerLink
from lograft.metadata.brokers import CORDONED_LOG_DIRS_SINCE
from lograft.metadata.features import SUPPORTED
from lograft.metadata.types import Endpoint
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Gauge, Sample, enum_label
from lograft.model.seams import Runtime
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_OFFSET, BrokerEpoch
from lograft.wire.apis import Versions
from lograft.wire.messages import broker_registration, controller_registration
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from lograft.wire.messages.controller_registration import ControllerRegistrationRequest

LOGGER: Final = logging.getLogger(__name__)

REGISTRATION_VERSIONS: Final = Versions(4, 4)
HEARTBEAT_VERSIONS: Final = Versions(1, 2)
CONTROLLER_REGISTRATION_VERSIONS: Final = Versions(0, 0)
RETRY_MS: Final = 100
#: Maximum backoff while another broker with the same id is still registered.
RETRY_MS_MAX: Final = 1_000
LANE: Final = "heartbeat"
#: Interval of heartbeats during a controlled shutdown.
SHUT_DOWN_PAUSE_MS: Final = 20
#: How long a controlled shutdown searches for a controller: all nodes may be shutting down.
SHUT_DOWN_SEARCH_MS: Final = 2_000
#: The controller does not know this registration: the broker registers again.
UNKNOWN_TO_CONTROLLER: Final = frozenset(
    {ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH}
)


class Stage(Enum):
    STARTING = "starting"
    #: Known to the controller, but fenced.
    REGISTERED = "registered"
    #: It has read the metadata log up to its own registration.
    CAUGHT_UP = "caught up"
    #: It can lead partitions and is visible to clients.
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting down"
    STOPPED = "stopped"


STAGE: Final = Gauge(
    "lograft_broker_stage",
    "1 for the current stage of this broker's registration, 0 for the others.",
    enum_label("stage", (stage.name.lower() for stage in Stage)),
)
BROKER_EPOCH: Final = Gauge(
    "lograft_broker_epoch", "Epoch of this broker's registration; -1 before it is registered."
)

NEXT_STAGES: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.STARTING: frozenset({Stage.REGISTERED, Stage.STOPPED}),
    Stage.REGISTERED: frozenset({Stage.CAUGHT_UP, Stage.SHUTTING_DOWN}),
    Stage.CAUGHT_UP: frozenset({Stage.UNFENCED, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    # After it was fenced it catches up again; unknown to the controller it registers again.
    Stage.UNFENCED: frozenset({Stage.CAUGHT_UP, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    Stage.SHUTTING_DOWN: frozenset({Stage.STOPPED}),
    Stage.STOPPED: frozenset(),
}


class ReportedDirectories(Protocol):
    """The log dirs that heartbeats report (broker/logs/log_manager.py)."""

    def offline_ids(self) -> list[UUID]: ...

    def cordoned_ids(self) -> list[UUID]: ...


class BrokerRegistration:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        link: ControllerLink,
        *,
        cluster_id: str,
        directory_ids: Iterable[UUID],
        metadata: ClusterMetadata,
        halt: Callable[[str], None],
    ) -> None:
        """`halt` stops the node."""
        self._runtime = runtime
        self._config = config
        self._link = link
        self._metadata = metadata
        self._halt = halt
        self._cluster_id = cluster_id
        self._directory_ids = list(directory_ids)
        self._directories: ReportedDirectories | None = None
        #: Failed log dirs with leader replicas that are not reported to the controller yet, each
        #: with the timer that stops the node.
        self._unreported: dict[UUID, asyncio.TimerHandle] = {}
        self.stage = Stage.STARTING
        self.broker_epoch = BrokerEpoch(-1)
        self._request: BrokerRegistrationRequest | None = None
        #: When the last request that the controller accepted was sent.
        self._accepted_ms = runtime.clock.mono_ms()
        self._unfenced = asyncio.Event()
        self._wake = asyncio.Event()

    def prepare(
        self,
        directories: ReportedDirectories,
        *,
        endpoints: Iterable[Endpoint],
        previous_epoch: int = -1,
    ) -> None:
        """Builds the registration request; called once, before `register`. `endpoints` are the
        advertised ones with actual ports, `previous_epoch` is the broker epoch of the last clean
        shutdown, or -1."""
        self._directories = directories
        self._request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._runtime.randomness.uuid(),
            listeners=[
                broker_registration.Listener(
                    name=end.name,
                    host=end.host,
                    port=end.port,
                    security_protocol=end.security_protocol,
                )
                for end in endpoints
            ],
            features=[
                broker_registration.Feature(
                    name=name,
                    min_supported_version=versions.min_version,
                    max_supported_version=versions.max_version,
                )
                for name, versions in SUPPORTED.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=self._directory_ids,
            previous_broker_epoch=previous_epoch,
        )

    async def register(self, *, timeout_ms: int | None = None) -> BrokerEpoch:
        """Registers the broker, with retries. Raises Rejected if a retry cannot help, and
        ControllerUnreachable after the timeout."""
        assert self._request is not None, "not prepared"
        pause_ms = RETRY_MS
        while True:
            sent_ms = self._runtime.clock.mono_ms()
            reply = await self._link.request(
                self._request,
                REGISTRATION_VERSIONS,
                BrokerRegistrationResponse,
                timeout_ms=timeout_ms,
                lane=LANE,
            )
            if not reply.error_code:
                self._accepted_ms = sent_ms
                self.broker_epoch = BrokerEpoch(reply.broker_epoch)
                if self._can_register:
                    self._move(Stage.REGISTERED)
                return self.broker_epoch
            code = ErrorCode(reply.error_code)
            # The session of the previous process may still be open, and will expire.
            if code != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise Rejected(
                    code,
                    f"The controller rejected the registration of broker {self._config.node_id}:"
                    f" {code.name} (see the controller's log for the reason).",
                )
            if pause_ms == RETRY_MS:
                LOGGER.warning(
                    "retrying the registration: another broker with id %d is still registered",
                    self._config.node_id,
                )
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)

    async def run(self) -> None:
        """Sends heartbeats; runs as a task of the node from the time when the broker is ready to
        lead."""
        interval_ms = self._config.broker_heartbeat_interval_ms
        while self.stage not in (Stage.SHUTTING_DOWN, Stage.STOPPED):
            try:
                await self._heartbeat()
            except ControllerUnreachable as error:
                LOGGER.debug("heartbeat not sent, retrying: %s", error)
            except Rejected as error:
                LOGGER.warning("%s", error)
                if error.code in UNKNOWN_TO_CONTROLLER and self._can_register:
                    await self.register()
            self._wake.clear()
            # More often until it is unfenced, since clients are waiting for it.
            wait_ms = interval_ms if self.stage is Stage.UNFENCED else min(interval_ms, RETRY_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    @property
    def _can_register(self) -> bool:
        return self.stage not in (Stage.SHUTTING_DOWN, Stage.STOPPED)

    def current_epoch(self) -> BrokerEpoch:
        return self.broker_epoch

    def has_lease(self) -> bool:
        """Whether the controller cannot have fenced this broker: its session has not expired,
        counted from the time when the last accepted request was sent."""
        age_ms = self._runtime.clock.mono_ms() - self._accepted_ms
        return age_ms < self._config.broker_session_timeout_ms

    async def wait_unfenced(self) -> None:
        await self._unfenced.wait()

    def on_directory_failed(self, directory_id: UUID, path: str, *, has_led: bool) -> None:
        """Reports a failed log dir to the controller. Until that has succeeded, no other broker can
        become leader of the partitions in it: a broker that cannot report the failure within
        log.dir.failure.timeout.ms stops, so that it is fenced."""
        self._wake.set()
        if has_led and directory_id not in self._unreported:
            timeout_ms = self._config.log_dir_failure_timeout_ms
            reason = (
                f"log dir {path} with leader replicas has failed, and the broker could not report"
                f" it to the controller within {timeout_ms} ms (log.dir.failure.timeout.ms)"
            )
            self._unreported[directory_id] = asyncio.get_running_loop().call_later(
                timeout_ms / 1000, self._halt, reason
            )

    def _on_reported(self, directory_ids: Iterable[UUID]) -> None:
        for directory_id in directory_ids:
            timer = self._unreported.pop(directory_id, None)
            if timer is not None:
                timer.cancel()

    async def shut_down(self) -> None:
        """Performs a controlled shutdown: requests that the controller move the leadership of all
        partitions, and returns when that is done or has timed out. Without
        controlled.shutdown.enable it only stops sending heartbeats."""
        self._on_reported(list(self._unreported))
        if self.stage is Stage.STARTING:
            self._move(Stage.STOPPED)
            return
        self._move(Stage.SHUTTING_DOWN)
        self._wake.set()
        if not self._config.controlled_shutdown_enable:
            self._move(Stage.STOPPED)
            return
        timeout_ms = self._config.broker_session_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (await self._send(SHUT_DOWN_SEARCH_MS, shut_down=True)).should_shut_down:
                    await asyncio.sleep(SHUT_DOWN_PAUSE_MS / 1000)
        except (ControllerUnreachable, Rejected, TimeoutError) as error:
            LOGGER.warning("controlled shutdown did not complete: %s", error or "timed out")
        self._move(Stage.STOPPED)

    async def _heartbeat(self) -> None:
        reply = await self._send(2 * self._config.broker_heartbeat_interval_ms)
        if self.stage is Stage.SHUTTING_DOWN:
            return
        if reply.is_caught_up and self.stage is Stage.REGISTERED:
            self._move(Stage.CAUGHT_UP)
        if not reply.is_fenced and self.stage is Stage.CAUGHT_UP:
            self._move(Stage.UNFENCED)
            self._unfenced.set()
        elif reply.is_fenced and self.stage is Stage.UNFENCED:
            self._move(Stage.CAUGHT_UP)
            self._unfenced.clear()

    async def _send(self, timeout_ms: int, *, shut_down: bool = False) -> BrokerHeartbeatResponse:
        assert self._directories is not None, "not prepared"
        image = self._metadata.image
        offset = image.offset
        epoch = self.broker_epoch
        sent_ms = self._runtime.clock.mono_ms()
        offline = self._directories.offline_ids()
        # None if the metadata version does not support them.
        has_cordoned = image.metadata_version >= CORDONED_LOG_DIRS_SINCE
        cordoned = self._directories.cordoned_ids() if has_cordoned else None
        reply = await self._link.request(
            BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=epoch,
                current_metadata_offset=NO_OFFSET if offset < epoch else offset,
                want_shut_down=shut_down,
                offline_log_dirs=offline,
                cordoned_log_dirs=cordoned,
            ),
            HEARTBEAT_VERSIONS,
            BrokerHeartbeatResponse,
            timeout_ms=timeout_ms,
            lane=LANE,
        )
        if reply.error_code:
            code = ErrorCode(reply.error_code)
            raise Rejected(
                code, f"The controller rejected a heartbeat in epoch {epoch}: {code.name}"
            )
        if not reply.is_fenced:
            self._accepted_ms = sent_ms
        self._on_reported(offline)
        return reply

    def _move(self, stage: Stage) -> None:
        if stage is self.stage:
            return
        assert stage in NEXT_STAGES[self.stage], (self.stage, stage)
        LOGGER.info("broker %d is %s", self._config.node_id, stage.value)
        self.stage = stage

    def collect_samples(self) -> Iterator[Sample]:
        yield from STAGE.sample_states(self.stage.name.lower())
        yield BROKER_EPOCH.sample(self.broker_epoch)


def controller_registration_request(
    config: BrokerConfig, *, incarnation_id: UUID, endpoints: Iterable[Endpoint]
) -> ControllerRegistrationRequest:
    """Returns the request with which a controller registers."""
    return ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            controller_registration.Listener(
                name=end.name, host=end.host, port=end.port, security_protocol=end.security_protocol
            )
            for end in endpoints
        ],
        features=[
            controller_registration.Feature(
                name=name,
                min_supported_version=versions.min_version,
                max_supported_version=versions.max_version,
            )
            for name, versions in SUPPORTED.items()
        ],
    )
