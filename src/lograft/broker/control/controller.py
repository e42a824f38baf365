"""The active controller: runs decisions on an image of its own, ahead of what is committed.

The image begins as a copy of the committed one when this node becomes leader, and takes every
record at the moment it is appended; so the next decision sees it. Replies wait until the records
that they rest on are committed: nobody is told what a crash could still take back.

A broker that is silent for the session's time is fenced. One whose process is gone is fenced at
once: `FailureDetector` (broker/control/failure_detector.py) looks at every broker whose heartbeat
connection has ended, and at all of them when a controller becomes active.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.control.failure_detector import FailureDetector
from lograft.broker.errors import NotController
from lograft.broker.quorum.raft_driver import RaftDriver
from lograft.metadata.activation import activation_records
from lograft.metadata.broker_sessions import BrokerSessions
from lograft.metadata.brokers import (
    fence_broker,
    heartbeat,
    register_broker,
)
from lograft.metadata.ignored_settings import find_ignored_settings
from lograft.metadata.image import MetadataImage
from lograft.metadata.types import BrokerState, ControllerResult
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Runtime
from lograft.model.settings.effects import NO_EFFECT_WARNING
from lograft.model.types import Epoch, NodeId, Offset, TopicIdPartition
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R")

#: How often in a session's time brokers that may be gone are looked at.
CHECKS_PER_SESSION: Final = 4

IS_ACTIVE: Final = Gauge(
    "lograft_controller_active", "1 if this node is the active controller, else 0."
)


class Controller:
    def __init__(
        self,
        runtime: Runtime,
        driver: RaftDriver,
        metadata: ClusterMetadata,
        *,
        cluster_id: str,
        bootstrap: Sequence[Message] = (),
    ) -> None:
        """`metadata` follows the log: it has everything that the driver has delivered. `bootstrap`:
        what the storage was formatted with."""
        config = metadata.static_config
        self._runtime = runtime
        self._driver = driver
        self._config = config
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._bootstrap = bootstrap
        #: None while another node leads.
        self._image: MetadataImage | None = None
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        #: By broker: where the log says that it is fenced. Of those that an earlier controller has
        #: fenced it is only known that it was before this one became active.
        self._fenced_at: dict[int, Offset] = {}
        self._active_from = Offset(0)
        #: Asks leaders of raft partitions to hand over; set by whoever makes both.
        self.hand_over: Callable[[TopicIdPartition, NodeId], Awaitable[ErrorCode]] | None = None
        self._dead = FailureDetector(runtime, config, self)
        driver.add_leader_listener(self._on_leader)
        driver.add_resignation_listener(self._on_unleader)

    @property
    def is_active(self) -> bool:
        return self._image is not None and self._driver.is_leader

    @property
    def image(self) -> MetadataImage | None:
        """What is decided, ahead of what is committed; None on a controller that is not active."""
        return self._image if self.is_active else None

    async def submit(self, decision: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Decides at once, in the order of the calls; returns the reply once it is safe to. What
        the decision raises comes out unchanged."""
        image = self._image
        if image is None or not self._driver.is_leader:
            raise NotController("this node is not the active controller")
        self._pass_control_records(image)
        outcome = decision(image)
        for records in outcome.batches():
            self._append(image, records)
            self._warn_of_ignored_settings(records)
        # Also without records of its own: the reply may rest on records of others.
        if image.offset >= self._driver.high_watermark:
            await self._driver.wait_committed(image.offset)
        return outcome.reply

    def _append(self, image: MetadataImage, records: Sequence[Message]) -> None:
        offset = self._driver.append(records)
        assert offset == image.offset + len(records), (offset, image.offset, len(records))
        image.apply(records, offset=offset, epoch=self._driver.epoch)

    def _warn_of_ignored_settings(self, records: Sequence[Message]) -> None:
        ignored = find_ignored_settings(records)
        if ignored:
            LOGGER.warning(NO_EFFECT_WARNING, ", ".join(ignored))

    def _pass_control_records(self, image: MetadataImage) -> None:
        """The quorum writes into the log too (voters): what it wrote has offsets, and no records
        for the image."""
        last = Offset(self._driver.log.end_offset - 1)
        if image.offset < last:
            image.apply((), offset=last, epoch=self._driver.epoch)

    def _on_unleader(self, epoch: Epoch) -> None:
        """What was decided and is not committed may become so or not: the next leader knows."""
        self._image = None
        LOGGER.info("controller %d resigned in epoch %d", self._config.node_id, epoch)

    def _on_leader(self, epoch: Epoch) -> None:
        image = self._metadata.image.copy()
        assert image.offset == self._driver.log.end_offset - 1, (image.offset, epoch)
        self._image = image
        self.sessions = BrokerSessions(self._config.broker_session_timeout_ms)
        self._fenced_at = {}
        self._active_from = image.offset
        now_ms = self._runtime.clock.mono_ms()
        for broker in image.brokers.values():
            if not broker.fenced:
                self.sessions.expect(broker.broker_id, epoch=broker.epoch, now_ms=now_ms)
        records = activation_records(
            image,
            self._bootstrap,
            min_insync_replicas=self._config.topic_defaults.min_insync_replicas,
        )
        if records:
            self._append(image, records)
        LOGGER.info(
            "controller %d is active in epoch %d from offset %d",
            self._config.node_id,
            epoch,
            image.offset,
        )
        self._dead.look()

    # ── brokers ──────────────────────────────────────────────────────────────────────────────

    async def register_broker(
        self, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        now_ms = self._runtime.clock.mono_ms()

        def decide(image: MetadataImage) -> ControllerResult[BrokerRegistrationResponse]:
            before = image.brokers.get(request.broker_id)
            alive = (
                before is not None
                and not before.fenced
                and self.sessions.is_alive(before.broker_id, epoch=before.epoch, now_ms=now_ms)
            )
            return register_broker(
                image,
                request,
                cluster_id=self._cluster_id,
                config=self._config,
                is_predecessor_alive=alive,
            )

        reply = await self.submit(decide)
        self.sessions.on_heartbeat(
            request.broker_id,
            epoch=reply.broker_epoch,
            metadata_offset=0,
            now_ms=self._runtime.clock.mono_ms(),
        )
        return reply

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        def decide(image: MetadataImage) -> ControllerResult[BrokerHeartbeatResponse]:
            fenced_at = self._fenced_at.get(request.broker_id, self._active_from)
            outcome = heartbeat(image, request, config=self._config, fenced_at=fenced_at)
            if outcome.reply.should_shut_down:
                self.sessions.forget(request.broker_id, epoch=request.broker_epoch)
            else:
                self.sessions.on_heartbeat(
                    request.broker_id,
                    epoch=request.broker_epoch,
                    metadata_offset=request.current_metadata_offset,
                    now_ms=self._runtime.clock.mono_ms(),
                )
            return outcome

        return await self.submit(decide)

    def on_disconnected(self, broker_id: int, broker_epoch: int) -> None:
        """The connection on which this registration of the broker sent its last heartbeat ended."""
        if self.is_active:
            self.sessions.on_disconnected(broker_id, epoch=broker_epoch)
            self._dead.look()

    def registered(self, broker_id: int, broker_epoch: int) -> BrokerState | None:
        """The broker, if this is its registration and it is not fenced."""
        broker = None if self._image is None else self._image.brokers.get(broker_id)
        is_it = broker is not None and broker.epoch == broker_epoch and not broker.fenced
        return broker if is_it else None

    async def fence(self, broker_id: int, broker_epoch: int, reason: str) -> None:
        """If it is still this registration. Raises NotController."""

        def decide(image: MetadataImage) -> ControllerResult[None]:
            if self.registered(broker_id, broker_epoch) is None:
                return ControllerResult((), None)
            LOGGER.warning("fencing broker %d: %s", broker_id, reason)
            outcome = fence_broker(image, broker_id, config=self._config)
            self._fenced_at[broker_id] = Offset(image.offset + len(outcome.records))
            return outcome

        self.sessions.forget(broker_id, epoch=broker_epoch)
        await self.submit(decide)

    async def run(self) -> None:
        """Fences brokers that fell silent; a task of the node."""
        interval_ms = max(1, self._config.broker_session_timeout_ms // CHECKS_PER_SESSION)
        clock = self._runtime.clock
        while True:
            now_ms = clock.mono_ms()
            due_ms = now_ms + interval_ms
            if self.is_active:
                # At the very moment: until then its partitions have no leader.
                due_ms = min(due_ms, max(now_ms + 1, self.sessions.next_expiry_ms()))
            await asyncio.sleep((due_ms - now_ms) / 1000)
            if not self.is_active:
                continue
            # A process that was itself stopped for a while has heard nobody: that is not theirs.
            self.sessions.extend_all(clock.mono_ms() - due_ms)
            self._dead.look()
            for broker_id, epoch in self.sessions.expired(clock.mono_ms()):
                reason = f"no heartbeat for {self._config.broker_session_timeout_ms} ms"
                try:
                    await self.fence(broker_id, epoch, reason)
                except NotController:
                    break

    def collect_samples(self) -> Iterator[Sample]:
        yield IS_ACTIVE.sample(int(self.is_active))
        yield from self.sessions.collect_samples()
