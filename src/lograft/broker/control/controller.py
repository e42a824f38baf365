"""The active controller: makes decisions on an image of its own, ahead of the committed one.

That image is a copy of the committed one when this node becomes leader. Every record is applied to
it as soon as it is appended, so the next decision sees it. Replies wait until the records that they
depend on are committed, so no reply reports what a crash could still undo.

A broker without heartbeats for the session timeout is fenced. One whose process has terminated is
fenced at once: `FailureDetector` (broker/control/failure_detector.py) checks every broker whose
heartbeat connection was closed, and all brokers when a controller becomes active.
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
from lograft.metadata.types import BrokerState, ControllerResult, LeaderRecovery
from lograft.model.errors import ErrorCode
from lograft.model.metrics import (
    LATENCY_BUCKETS,
    Counter,
    Gauge,
    Histogram,
    Label,
    Sample,
    enum_label,
)
from lograft.model.seams import Runtime
from lograft.model.settings.effects import NO_EFFECT_WARNING
from lograft.model.types import Epoch, NodeId, Offset, TopicIdPartition
from lograft.wire.message import Message
from lograft.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from lograft.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from lograft.wire.records.partition_change_record import PartitionChangeRecord

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R")

#: Number of checks for lost brokers in one session timeout.
CHECKS_PER_SESSION: Final = 4

IS_ACTIVE: Final = Gauge(
    "lograft_controller_active", "1 if this node is the active controller, else 0."
)
ELECTIONS: Final = Counter(
    "lograft_controller_leader_elections_total",
    "Leaders of partitions that this node elected as the active controller. An unclean election may"
    " lose records.",
    enum_label("kind", ("clean", "unclean")),
)
BROKERS_FENCED: Final = Counter(
    "lograft_controller_brokers_fenced_total",
    "Brokers that this node fenced as the active controller, since they did not respond.",
)
COMMIT_SECONDS: Final = Histogram(
    "lograft_controller_commit_seconds",
    "Time for which a decision of this node, as the active controller, waited for the commit of its"
    " records.",
    bounds=LATENCY_BUCKETS,
)
#: Metrics named as in kafka_exporter, which runs as one process; therefore only the active
#: controller reports them.
EXPORTER_BROKERS: Final = Gauge("kafka_brokers", "Registered brokers that are not fenced.")
EXPORTER_BROKER_INFO: Final = Gauge(
    "kafka_broker_info", "1 for each unfenced broker.", Label("id", 1_000), Label("address", 1_000)
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
        """`metadata` has all records that the driver has delivered. `bootstrap` are the records
        with which the storage was formatted."""
        config = metadata.static_config
        self._runtime = runtime
        self._driver = driver
        self._config = config
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._bootstrap = bootstrap
        #: None while another controller is active.
        self._image: MetadataImage | None = None
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        #: Offset of the record that fenced each broker. For brokers fenced by an earlier controller
        #: it is only known to be below the offset at which this one became active.
        self._fenced_at: dict[int, Offset] = {}
        self._active_from = Offset(0)
        #: Requests leaders of raft partitions to hand over; set by the composition root.
        self.hand_over: Callable[[TopicIdPartition, NodeId], Awaitable[ErrorCode]] | None = None
        self._failure_detector = FailureDetector(runtime, config, self)
        self._elections = {"clean": 0, "unclean": 0}
        self._brokers_fenced = 0
        self._commit_seconds = COMMIT_SECONDS.make_recorder()
        driver.add_leader_listener(self._on_leader)
        driver.add_resignation_listener(self._on_resigned)

    @property
    def is_active(self) -> bool:
        return self._image is not None and self._driver.is_leader

    @property
    def image(self) -> MetadataImage | None:
        """The image with all decisions, committed or not; None if this controller is not active."""
        return self._image if self.is_active else None

    async def submit(self, decision: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Runs the decision immediately, in the order of the calls, and returns its reply once its
        records are committed. Exceptions of the decision are raised unchanged."""
        image = self._image
        if image is None or not self._driver.is_leader:
            raise NotController("this node is not the active controller")
        self._pass_control_records(image)
        outcome = decision(image)
        for records in outcome.batches():
            self._append(image, records)
            self._warn_of_ignored_settings(records)
        # Also without records: the reply may depend on records of earlier decisions.
        if image.offset >= self._driver.high_watermark:
            began_ns = self._runtime.clock.mono_ns()
            await self._driver.wait_committed(image.offset)
            self._commit_seconds.observe((self._runtime.clock.mono_ns() - began_ns) / 1e9)
        return outcome.reply

    def _append(self, image: MetadataImage, records: Sequence[Message]) -> None:
        offset = self._driver.append(records)
        assert offset == image.offset + len(records), (offset, image.offset, len(records))
        self._count_elections(image, records)
        image.apply(records, offset=offset, epoch=self._driver.epoch)

    def _count_elections(self, image: MetadataImage, records: Sequence[Message]) -> None:
        for record in records:
            if type(record) is PartitionChangeRecord and record.leader >= 0:
                before = image.partition(record.topic_id, record.partition_id)
                if before is not None and before.leader != record.leader:
                    is_unclean = record.leader_recovery_state == LeaderRecovery.RECOVERING
                    self._elections["unclean" if is_unclean else "clean"] += 1

    def _warn_of_ignored_settings(self, records: Sequence[Message]) -> None:
        ignored = find_ignored_settings(records)
        if ignored:
            LOGGER.warning(NO_EFFECT_WARNING, ", ".join(ignored))

    def _pass_control_records(self, image: MetadataImage) -> None:
        """Advances the image over control records of the quorum (voter sets), which have offsets
        but do not change the image."""
        last = Offset(self._driver.log.end_offset - 1)
        if image.offset < last:
            image.apply((), offset=last, epoch=self._driver.epoch)

    def _on_resigned(self, epoch: Epoch) -> None:
        """Discards the image: uncommitted decisions may or may not be committed by the next
        leader."""
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
        self._failure_detector.check()

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
        """The connection with the last heartbeat of this registration was closed."""
        if self.is_active:
            self.sessions.on_disconnected(broker_id, epoch=broker_epoch)
            self._failure_detector.check()

    def find_registered(self, broker_id: int, broker_epoch: int) -> BrokerState | None:
        """Returns the broker if this is its current registration and it is not fenced."""
        broker = None if self._image is None else self._image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return None
        return broker

    async def fence(self, broker_id: int, broker_epoch: int, reason: str) -> None:
        """Fences the broker if this is still its registration. Raises NotController."""

        def decide(image: MetadataImage) -> ControllerResult[None]:
            if self.find_registered(broker_id, broker_epoch) is None:
                return ControllerResult((), None)
            LOGGER.warning("fencing broker %d: %s", broker_id, reason)
            outcome = fence_broker(image, broker_id, config=self._config)
            self._fenced_at[broker_id] = Offset(image.offset + len(outcome.records))
            self._brokers_fenced += 1
            return outcome

        self.sessions.forget(broker_id, epoch=broker_epoch)
        await self.submit(decide)

    async def run(self) -> None:
        """Fences brokers whose session has expired; runs as a task of the node."""
        interval_ms = max(1, self._config.broker_session_timeout_ms // CHECKS_PER_SESSION)
        clock = self._runtime.clock
        while True:
            now_ms = clock.mono_ms()
            due_ms = now_ms + interval_ms
            if self.is_active:
                # As soon as a session expires, since until then its partitions have no leader.
                due_ms = min(due_ms, max(now_ms + 1, self.sessions.next_expiry_ms()))
            await asyncio.sleep((due_ms - now_ms) / 1000)
            if not self.is_active:
                continue
            # If this process was suspended, missing heartbeats are not the brokers' fault.
            self.sessions.extend_all(clock.mono_ms() - due_ms)
            self._failure_detector.check()
            for broker_id, epoch in self.sessions.find_expired(clock.mono_ms()):
                reason = f"no heartbeat for {self._config.broker_session_timeout_ms} ms"
                try:
                    await self.fence(broker_id, epoch, reason)
                except NotController:
                    break

    def collect_samples(self) -> Iterator[Sample]:
        yield IS_ACTIVE.sample(int(self.is_active))
        for kind, count in self._elections.items():
            yield ELECTIONS.sample(count, kind)
        yield BROKERS_FENCED.sample(self._brokers_fenced)
        yield COMMIT_SECONDS.sample(self._commit_seconds)
        yield from self.sessions.collect_samples()
        if self.is_active and self._metadata.config.lograft_metrics_kafka_exporter_enable:
            yield from self._exporter_samples()

    def _exporter_samples(self) -> Iterator[Sample]:
        yield EXPORTER_BROKERS.sample(0)
        listener = self._config.inter_broker_listener_name
        for broker in list(self._metadata.image.brokers.values()):
            endpoint = broker.endpoint(listener)
            if endpoint is not None and not broker.fenced:
                yield EXPORTER_BROKERS.sample(1)
                address = f"{endpoint.host}:{endpoint.port}"
                yield EXPORTER_BROKER_INFO.sample(1, str(broker.broker_id), address)
