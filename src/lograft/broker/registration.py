"""The life of a broker in its cluster: registers, catches up, is unfenced, hands over, goes.

`ControllerLink` is how it talks to the active controller: in the same process now, over the
network when nodes are many.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from lograft.broker.errors import NotController
from lograft.metadata.errors import Refused
from lograft.metadata.features import SUPPORTED
from lograft.metadata.types import Endpoint
from lograft.model.broker_configs import BrokerConfig
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime
from lograft.model.types import NO_OFFSET, BrokerEpoch, Offset
from lograft.wire.messages import broker_registration, controller_registration
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from lograft.wire.messages.controller_registration import ControllerRegistrationRequest

LOGGER: Final = logging.getLogger(__name__)

RETRY_MS: Final = 100


class ControllerLink(Protocol):
    async def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse: ...

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse: ...


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


NEXT_STAGES: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.STARTING: frozenset({Stage.REGISTERED, Stage.STOPPED}),
    Stage.REGISTERED: frozenset({Stage.CAUGHT_UP, Stage.SHUTTING_DOWN}),
    Stage.CAUGHT_UP: frozenset({Stage.UNFENCED, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    # Fenced for its silence it catches up again; unknown to a controller it registers again.
    Stage.UNFENCED: frozenset({Stage.CAUGHT_UP, Stage.REGISTERED, Stage.SHUTTING_DOWN}),
    Stage.SHUTTING_DOWN: frozenset({Stage.STOPPED}),
    Stage.STOPPED: frozenset(),
}


class BrokerRegistration:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        link: ControllerLink,
        *,
        cluster_id: str,
        endpoints: Iterable[Endpoint],
        directory_ids: Iterable[UUID],
        applied_offset: Callable[[], Offset],
        previous_epoch: int = -1,
        offline_directories: Callable[[], Iterable[UUID]] = tuple,
    ) -> None:
        """`endpoints`: what clients are told, with real ports. `applied_offset`: how far the
        broker's image has come. `previous_epoch`: of the last clean stop, or -1."""
        self._runtime = runtime
        self._config = config
        self._link = link
        self._applied_offset = applied_offset
        self._offline_directories = offline_directories
        self.stage = Stage.STARTING
        self.broker_epoch = BrokerEpoch(-1)
        self._request = BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=runtime.randomness.uuid(),
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
            rack=config.broker_rack,
            log_dirs=list(directory_ids),
            previous_broker_epoch=previous_epoch,
        )
        self._unfenced = asyncio.Event()
        self._wake = asyncio.Event()

    async def register(self) -> BrokerEpoch:
        """Until the controller has taken it. Raises Refused where trying again cannot help."""
        while True:
            try:
                reply = await self._link.register_broker(self._request)
            except NotController as error:
                LOGGER.debug("registration waits: %s", error)
            except Refused as refusal:
                # The predecessor's session may still be open: its time runs out.
                if refusal.code != ErrorCode.duplicate_broker_registration:
                    raise
                LOGGER.warning("registration waits: %s", refusal)
            else:
                self.broker_epoch = BrokerEpoch(reply.broker_epoch)
                self._move(Stage.REGISTERED)
                return self.broker_epoch
            await asyncio.sleep(RETRY_MS / 1000)

    async def run(self) -> None:
        """Heartbeats for as long as the node lives; a task of the node. Begin it when the broker
        is ready to lead."""
        interval_ms = self._config.broker_heartbeat_interval_ms
        while self.stage not in (Stage.SHUTTING_DOWN, Stage.STOPPED):
            try:
                await self._beat()
            except NotController as error:
                LOGGER.debug("heartbeat waits: %s", error)
            except Refused as refusal:
                LOGGER.warning("the controller does not know this broker: %s", refusal)
                if self.stage is not Stage.REGISTERED:
                    await self.register()
            self._wake.clear()
            # Until it is unfenced clients wait for it: it asks more often.
            wait_ms = interval_ms if self.stage is Stage.UNFENCED else min(interval_ms, RETRY_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def wait_unfenced(self) -> None:
        await self._unfenced.wait()

    def report_soon(self) -> None:
        """Something changed that the controller should hear of now: a log dir failed."""
        self._wake.set()

    async def shut_down(self) -> None:
        """Asks the controller to hand over what this broker leads, and returns when it may go, or
        when time is up."""
        if self.stage is Stage.STARTING:
            self._move(Stage.STOPPED)
            return
        self._move(Stage.SHUTTING_DOWN)
        self._wake.set()
        timeout_ms = self._config.broker_session_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (await self._send(want_shut_down=True)).should_shut_down:
                    pass
        except (NotController, Refused, TimeoutError) as error:
            LOGGER.warning("stopping without the controller's leave: %s", error)
        self._move(Stage.STOPPED)

    async def _beat(self) -> None:
        reply = await self._send(want_shut_down=False)
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

    async def _send(self, *, want_shut_down: bool) -> BrokerHeartbeatResponse:
        offset = self._applied_offset()
        return await self._link.heartbeat(
            BrokerHeartbeatRequest(
                broker_id=self._config.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=NO_OFFSET if offset < self.broker_epoch else offset,
                want_shut_down=want_shut_down,
                offline_log_dirs=list(self._offline_directories()),
            )
        )

    def _move(self, stage: Stage) -> None:
        if stage is self.stage:
            return
        assert stage in NEXT_STAGES[self.stage], (self.stage, stage)
        LOGGER.info("broker %d is %s", self._config.node_id, stage.value)
        self.stage = stage

    def statistics(self) -> dict[str, int | str]:
        return {"stage": self.stage.value, "broker_epoch": self.broker_epoch}


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
