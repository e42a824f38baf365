"""Makes the Raft core's wishes come true: appends, fsyncs, persists, delivers what is committed.

Start: `load_metadata` (blocking) → `RaftDriver(runtime, loaded)` → `add_listener`s → `start()` →
`wait_ready()`. Listeners hear every committed batch once, in order, beginning with the snapshot;
`on_leader` comes after everything that was in the log when this node became leader.

Appends are sync and go to the page cache. One task fsyncs: while it waits for the disk further
appends gather, and the next fsync commits them together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from lograft.broker.errors import MetadataBatchTooLarge, NotController
from lograft.broker.metadata_batches import (
    BATCH_BYTES_MAX,
    Control,
    MetadataBatch,
    control_batch,
    records_batch,
)
from lograft.broker.metadata_loading import LoadedMetadata, write_recovery_point
from lograft.broker.quorum_state import write_quorum_state
from lograft.broker.snapshots import SnapshotId, quorum_controls, quorum_of
from lograft.consensus.core import RaftCore
from lograft.consensus.types import NOTHING, Effects, HardState, LeaderChange, LogEnd
from lograft.model.errors import DiskFailed
from lograft.model.seams import Address, Runtime, Task
from lograft.model.types import Epoch, NodeId, Offset
from lograft.storage.log import FlushPlan
from lograft.storage.types import Origin
from lograft.wire import record_frames as frames
from lograft.wire.message import Message
from lograft.wire.records import leader_change_message

#: Appends that wait for their commit; more are refused: the disk cannot keep up.
WAITERS_MAX: Final = 100_000
#: How often a busy log writes down how far it was fsynced, to tell damage from a torn tail later.
RECOVERY_POINT_INTERVAL_MS: Final = 5_000


class CommitListener(Protocol):
    def __call__(self, offset: Offset, epoch: Epoch, records: Sequence[Message]) -> None:
        """A committed batch; `offset` is that of its last record. Control batches come with no
        records. Must not wait; what it raises ends the node."""


class RaftDriver:
    def __init__(self, runtime: Runtime, loaded: LoadedMetadata) -> None:
        self._runtime = runtime
        self._folder = loaded.folder
        self._snapshot = loaded.snapshot
        self.log = loaded.log
        self.log.lower_recovery_point = self._mark_recovery_point
        self.quorum = loaded.quorum
        self.core = RaftCore(
            loaded.me,
            loaded.quorum.voters,
            hard_state=loaded.hard_state,
            log_end=LogEnd(self.log.latest_epoch, self.log.end_offset),
        )
        #: The newest snapshot on disk.
        self.snapshot_id: SnapshotId | None = None if self._snapshot is None else self._snapshot.id
        self.last_committed_timestamp_ms = (
            0 if self._snapshot is None else self._snapshot.last_timestamp_ms
        )
        #: Bytes of all batches that were delivered; says how much a snapshot would save.
        self.committed_bytes = 0
        #: In the log, not yet delivered.
        self._pending: deque[MetadataBatch] = deque(loaded.tail)
        self._listeners: list[CommitListener] = []
        self._leader_listeners: list[Callable[[Epoch], None]] = []
        self._waiters: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._marked_ms = -RECOVERY_POINT_INTERVAL_MS
        self._failure: DiskFailed | None = None
        self._task: Task | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def add_listener(self, listener: CommitListener) -> None:
        assert self._task is None, "a listener that comes late has missed something"
        self._listeners.append(listener)

    def add_leader_listener(self, listener: Callable[[Epoch], None]) -> None:
        self._leader_listeners.append(listener)

    def start(self) -> None:
        """Delivers the snapshot at once; the rest follows in the background."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and snapshot.id.end_offset > 0:
            last = Offset(snapshot.id.end_offset - 1)
            for listener in self._listeners:
                listener(last, snapshot.id.epoch, snapshot.records)
        self._task = self._runtime.spawn(self._run(), name="metadata quorum")

    async def wait_ready(self) -> None:
        """Until this node knows what is committed: the log's whole content has been delivered."""
        await self._ready.wait()

    async def stop(self) -> None:
        """Everything appended becomes durable; blocks a worker, not the loop."""
        if self._task is not None:
            self._task.cancel()
        await self._runtime.workers.run(self._close, lane=self.lane)
        self._fail_waiters()

    @property
    def lane(self) -> str:
        """Its own: a commit of metadata does not queue behind the fsyncs of data."""
        return f"{self._folder}#metadata"

    # ── appending ────────────────────────────────────────────────────────────────────────────

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def epoch(self) -> Epoch:
        return self.core.epoch

    @property
    def leader(self) -> NodeId:
        return self.core.leader

    def leader_endpoint(self) -> Address | None:
        """Where the leader listens for controller requests; a quorum of one has no other."""
        return None

    @property
    def high_watermark(self) -> Offset:
        return self.core.high_watermark

    def append(self, records: Sequence[Message]) -> Offset:
        """Writes the records as one batch, all or none; returns the offset of the last one. They
        count once `wait_committed` has returned."""
        self._check_leader()
        assert records, "an empty batch has no offset"
        if len(self._waiters) >= WAITERS_MAX:
            raise NotController("too many decisions wait for the disk of the metadata log")
        base = self.log.end_offset
        now_ms = self._runtime.clock.wall_ms()
        data = records_batch(records, base_offset=base, epoch=self.epoch, now_ms=now_ms)
        return self._append(data, tuple(records), (), now_ms)

    async def wait_committed(self, offset: Offset) -> None:
        """Raises NotController if this node stops leading before."""
        if offset < self.core.high_watermark:
            return
        self._check_leader()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, future))
        await future

    def _check_leader(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.core.is_leader:
            raise NotController(f"node {self.core.me.node_id} does not lead the metadata quorum")

    def _append(
        self,
        data: bytearray,
        records: tuple[Message, ...],
        control: tuple[Control, ...],
        now_ms: int,
    ) -> Offset:
        if len(data) > BATCH_BYTES_MAX:
            raise MetadataBatchTooLarge(
                f"{len(records)} records need {len(data)} bytes, one batch of the metadata log"
                f" holds {BATCH_BYTES_MAX}: split the request"
            )
        size = len(data)
        try:
            result = self.log.append_as_leader(
                memoryview(data), leader_epoch=self.epoch, now_ms=now_ms, origin=Origin.RAFT
            )
        except DiskFailed as failure:
            self._failure = failure
            self._wake.set()
            raise
        last = Offset(result.end_offset - 1)
        self._pending.append(
            MetadataBatch(result.base_offset, last, self.epoch, now_ms, size, records, control)
        )
        effects = self.core.on_appended(result.end_offset, self._runtime.clock.mono_ms())
        assert effects == NOTHING, effects
        self._wake.set()
        return last

    # ── the task ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        await self._do(self.core.start(self._runtime.clock.mono_ms()))
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            plan = self.log.flush_plan()
            if not plan.is_empty:
                try:
                    await self._runtime.workers.run(partial(self._flush, plan), lane=self.lane)
                except DiskFailed as failure:
                    self._failure = failure
                    raise
                self.log.mark_durable(plan)
            await self._do(
                self.core.on_durable(self.log.durable_offset, self._runtime.clock.mono_ms())
            )

    def _flush(self, plan: FlushPlan) -> None:
        """A worker's job."""
        plan.run()
        now_ms = self._runtime.clock.mono_ms()
        if now_ms - self._marked_ms >= RECOVERY_POINT_INTERVAL_MS:
            self._marked_ms = now_ms
            self._mark_recovery_point(plan.upto)

    def _mark_recovery_point(self, offset: Offset) -> None:
        try:
            write_recovery_point(self._runtime.disk, self._folder, offset)
        except OSError as error:
            raise DiskFailed(self.log.log_dir, error) from error

    def _close(self) -> None:
        """A worker's job. What a failed disk holds is known only to the next start."""
        if self._failure is None and not self.log.failed:
            self.log.close(clean=True)
            self._mark_recovery_point(self.log.durable_offset)

    async def _do(self, effects: Effects) -> None:
        while effects.persist is not None:
            await self._runtime.workers.run(partial(self._persist, effects.persist), lane=self.lane)
            effects = self.core.on_persisted(self._runtime.clock.mono_ms())
        assert not effects.send, "a quorum of one has nobody to send to"
        if effects.lead is not None:
            self._lead(effects.lead)
        if effects.unlead is not None:
            self._fail_waiters()
        if effects.committed is not None:
            self._deliver(effects.committed)

    def _persist(self, state: HardState) -> None:
        try:
            write_quorum_state(
                self._runtime.disk,
                self._folder,
                state,
                kraft_version=self.quorum.kraft_version,
                voters=self.quorum.voters,
            )
        except OSError as error:
            raise DiskFailed(self.log.log_dir, error) from error

    def _lead(self, change: LeaderChange) -> None:
        """The first batch of the epoch. The first of all epochs also carries the voters, which so
        far only the snapshot at offset 0 names."""
        message = leader_change_message.LeaderChangeMessage(
            version=0,
            leader_id=change.leader,
            voters=[leader_change_message.Voter(voter_id=node) for node in change.voters],
            granting_voters=[
                leader_change_message.Voter(voter_id=node) for node in change.granting
            ],
        )
        controls: list[Control] = [(frames.LEADER_CHANGE, message)]
        base = self.log.end_offset
        if base == 0:
            controls += quorum_controls(self.quorum)
        now_ms = self._runtime.clock.wall_ms()
        data = control_batch(controls, base_offset=base, epoch=change.epoch, now_ms=now_ms)
        self._append(data, (), tuple(controls), now_ms)

    def _deliver(self, high_watermark: Offset) -> None:
        pending = self._pending
        leads = False
        while pending and pending[0].last_offset < high_watermark:
            batch = pending.popleft()
            if batch.control:
                self.quorum = quorum_of(batch.control, self.quorum) or self.quorum
                leads = leads or (
                    batch.epoch == self.epoch and batch.control[0][0] == frames.LEADER_CHANGE
                )
            self.last_committed_timestamp_ms = batch.timestamp_ms
            self.committed_bytes += batch.size_bytes
            for listener in self._listeners:
                listener(batch.last_offset, batch.epoch, batch.records)
        waiters = self._waiters
        while waiters and waiters[0][0] < high_watermark:
            _, future = waiters.popleft()
            if not future.done():
                future.set_result(None)
        if leads:
            for on_leader in self._leader_listeners:
                on_leader(self.epoch)
            self._ready.set()

    def _fail_waiters(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for offset, future in waiters:
            if not future.done():
                future.set_exception(
                    NotController(f"the record at {offset} may or may not become committed")
                )

    def statistics(self) -> dict[str, int | str]:
        return {
            **self.core.statistics(),
            "log_start_offset": self.log.log_start_offset,
            "uncommitted_batches": len(self._pending),
            "waiters": len(self._waiters),
        }
