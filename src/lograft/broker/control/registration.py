"""The life of a broker in its cluster: registers, catches up, is unfenced, hands over, goes.

Heartbeats have a connection of their own: when it closes and nobody listens at the broker's address
any more, the controller knows that the process is gone (broker/control/controller.py).
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
#: Between two tries to take the place of a broker that the controller still hears.
RETRY_MS_MAX: Final = 1_000
LANE: Final = "heartbeat"
#: A stopping broker asks so often whether it has handed over everything.
SHUT_DOWN_PAUSE_MS: Final = 20
#: It does not wait longer for a controller that cannot be found: the others may be stopping too.
SHUT_DOWN_SEARCH_MS: Final = 2_000
#: The controller does not know this registration: it takes a new one.
UNKNOWN_TO_CONTROLLER: Final = frozenset(
    {ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH}
)


class Stage(Enum):
    STARTING = "starting"
    #: The controller knows the broker, but trusts it with nothing.
    REGISTERED = "registered"
    #: It has read the metadata log up to its own registration.
    CAUGHT_UP = "caught up"
    #: It may lead partitions and is shown to clients.
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting down"
    STOPPED = "stopped"


STAGE: Final = Gauge(
    "lograft_broker_stage",
    "1 for the stage of this broker's registration.",
    enum_label("stage", (stage.name.lower() for stage in Stage)),
)
BROKER_EPOCH: Final = Gauge(
    "lograft_broker_epoch", "Epoch of this broker's registration; -1 before it is registered."
)

NEXT_STAGES: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.STARTING: frozenset({Stage.REGISTERED, Stage.STOPPED}),
    Stage.REGISTERED: frozenset({Stage.CAUGHT_UP, Stage.SHUTTING_DOWN}),
    Stage.CAUGHT_UP: frozenset({Stage.UNFENCED, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    # Fenced for its silence it catches up again; unknown to a controller it registers again.
    Stage.UNFENCED: frozenset({Stage.CAUGHT_UP, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    Stage.SHUTTING_DOWN: frozenset({Stage.STOPPED}),
    Stage.STOPPED: frozenset(),
}


class ReportedDirectories(Protocol):
    """What heartbeats say of the log dirs (broker/logs/log_manager.py)."""

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
        """`halt` ends the node."""
        self._runtime = runtime
        self._config = config
        self._link = link
        self._metadata = metadata
        self._halt = halt
        self._cluster_id = cluster_id
        self._directory_ids = list(directory_ids)
        self._directories: ReportedDirectories | None = None
        #: Failed log dirs with replicas that led, which the controller has not heard of: each with
        #: the timer that ends the node.
        self._unreported: dict[UUID, asyncio.TimerHandle] = {}
        self.stage = Stage.STARTING
        self.broker_epoch = BrokerEpoch(-1)
        self._request: BrokerRegistrationRequest | None = None
        #: When the newest request was sent that the controller has taken.
        self._heard_ms = runtime.clock.mono_ms()
        self._unfenced = asyncio.Event()
        self._wake = asyncio.Event()

    def prepare(
        self,
        directories: ReportedDirectories,
        *,
        endpoints: Iterable[Endpoint],
        previous_epoch: int = -1,
    ) -> None:
        """Once, before `register`. `endpoints`: what clients are told, with real ports.
        `previous_epoch`: of the last clean stop, or -1."""
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
        """Until the controller has taken it. Raises Rejected where trying again cannot help, and
        ControllerUnreachable."""
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
                self._heard_ms = sent_ms
                self.broker_epoch = BrokerEpoch(reply.broker_epoch)
                if self._may_register:
                    self._move(Stage.REGISTERED)
                return self.broker_epoch
            code = ErrorCode(reply.error_code)
            # The predecessor's session may still be open: its time runs out.
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
        """Heartbeats for as long as the node lives; a task of the node. Begin it when the broker
        is ready to lead."""
        interval_ms = self._config.broker_heartbeat_interval_ms
        while self.stage not in (Stage.SHUTTING_DOWN, Stage.STOPPED):
            try:
                await self._beat()
            except ControllerUnreachable as error:
                LOGGER.debug("heartbeat not sent, retrying: %s", error)
            except Rejected as refusal:
                LOGGER.warning("%s", refusal)
                if refusal.code in UNKNOWN_TO_CONTROLLER and self._may_register:
                    await self.register()
            self._wake.clear()
            # Until it is unfenced clients wait for it: it asks more often.
            wait_ms = interval_ms if self.stage is Stage.UNFENCED else min(interval_ms, RETRY_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    @property
    def _may_register(self) -> bool:
        return self.stage not in (Stage.SHUTTING_DOWN, Stage.STOPPED)

    def current_epoch(self) -> BrokerEpoch:
        return self.broker_epoch

    def has_lease(self) -> bool:
        """Whether the controller still counts on this broker: it fences nobody whom it has heard
        within the session, which for the controller began after the request was sent."""
        age_ms = self._runtime.clock.mono_ms() - self._heard_ms
        return age_ms < self._config.broker_session_timeout_ms

    async def wait_unfenced(self) -> None:
        await self._unfenced.wait()

    def on_directory_failed(self, directory_id: UUID, path: str, *, has_led: bool) -> None:
        """The controller should hear of it now. Until it has, it believes that this broker leads
        what lay there, and nobody else can: a broker that cannot report it for
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
        """Asks the controller to hand over what this broker leads, and returns when it may go, or
        when time is up. Without controlled.shutdown.enable it only falls silent."""
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

    async def _beat(self) -> None:
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
        # None: the cluster's metadata cannot hold them yet.
        holds_cordoned = image.metadata_version >= CORDONED_LOG_DIRS_SINCE
        cordoned = self._directories.cordoned_ids() if holds_cordoned else None
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
            self._heard_ms = sent_ms
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
    """What a controller tells the quorum about itself."""
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
