"""Executes the effects of the Raft core: appends, truncates, fsyncs, persists, sends, and delivers
committed records. It is the same for a voter and for an observer (a broker without a vote).

Start: `load_metadata` (blocking) → `RaftDriver(runtime, loaded, config, …)` → listeners → `start()`
→ `wait_ready()`. Listeners receive every committed batch once, in order, starting with the
snapshot; if a node was far behind, snapshot listeners may be called in between. Leader listeners
are called after the delivery of all records that were in the log when this node became leader,
resignation listeners when it stops leading.

Events pass through `_dispatch` one after the other, and their effects are executed at once. The
hard state and the log are fsynced in the background, while further appends accumulate and share the
next fsync. Only while the log is being truncated or replaced by a snapshot do events wait, since
nothing else may use the log then.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from lograft.broker.errors import MetadataBatchTooLarge, MetadataCorrupt, NotController
from lograft.broker.links.peers import Peers
from lograft.broker.quorum.metadata_batches import (
    BATCH_BYTES_MAX,
    Control,
    MetadataBatch,
    control_batch,
    records_batch,
)
from lograft.broker.quorum.metadata_loading import LoadedMetadata, write_recovery_point
from lograft.broker.quorum.outgoing_rpcs import RequestContext, raw_entries
from lograft.broker.quorum.quorum_state import write_quorum_state
from lograft.broker.quorum.raft_log import (
    Fetched,
    log_epochs,
    read_bytes,
    read_snapshot_bytes,
    slice_of,
)
from lograft.broker.quorum.raft_network import RaftNetwork
from lograft.broker.quorum.snapshots import (
    Quorum,
    Snapshot,
    SnapshotId,
    finish_parts,
    quorum_controls,
    quorum_of,
    voters_control,
    voters_in,
    write_part,
)
from lograft.consensus import messages as core_messages
from lograft.consensus.core import RaftCore
from lograft.consensus.roles import Role
from lograft.consensus.types import (
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    LogSlice,
    RaftSettings,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from lograft.consensus.voter_change import DYNAMIC_VOTERS_VERSION
from lograft.model.errors import DiskFailed
from lograft.model.metrics import Gauge, Sample, enum_label
from lograft.model.seams import Address, Runtime, Task
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId, Offset
from lograft.storage.log import FlushPlan
from lograft.storage.types import Origin
from lograft.wire import record_frames as frames
from lograft.wire.message import Message
from lograft.wire.records import leader_change_message

#: Interval at which the recovery point of a busy log is written, which later distinguishes damage
#: from a torn tail.
RECOVERY_POINT_INTERVAL_MS: Final = 5_000
#: Maximum number of appends that wait for their commit. Beyond it they are rejected, since the disk
#: cannot keep up.
WAITERS_MAX: Final = 100_000
#: Maximum number of pending requests of other nodes.
PENDING_REQUESTS_MAX: Final = 10_000
#: Time limit for a leader that shuts down to inform the other voters.
HAND_OVER_MS_MAX: Final = 1_000
#: An observer without contact for this time is no longer listed.
OBSERVER_MS_MAX: Final = 300_000
#: Longer than all timeouts of the core: bounds the wait for a response that the core dropped.
RESPONSE_MS_MAX: Final = 60_000

ROLE: Final = Gauge(
    "lograft_quorum_role",
    "1 for the current role of this node in the metadata quorum, 0 for the others.",
    enum_label("role", (role.value for role in Role)),
)
EPOCH: Final = Gauge("lograft_quorum_epoch", "Epoch of the metadata quorum.")
LEADER: Final = Gauge(
    "lograft_quorum_leader_id", "Node id of the active controller; -1 if it is not known."
)
VOTERS: Final = Gauge("lograft_quorum_voters", "Voters of the metadata quorum.")
HIGH_WATERMARK: Final = Gauge(
    "lograft_quorum_high_watermark", "High watermark of the metadata log, as known to this node."
)
LOG_START: Final = Gauge(
    "lograft_quorum_log_start_offset", "First offset of the metadata log of this node."
)
LOG_END: Final = Gauge(
    "lograft_quorum_log_end_offset",
    "Offset after the last record of the metadata log of this node.",
)
UNCOMMITTED_BATCHES: Final = Gauge(
    "lograft_quorum_uncommitted_batches", "Batches of the metadata log that are not committed yet."
)
COMMIT_WAITS: Final = Gauge(
    "lograft_quorum_commit_waits", "Appends to the metadata log that wait until they are committed."
)


class ReplicaView(NamedTuple):
    """The leader's view of a replica, including itself."""

    key: ReplicaKey
    end_offset: Offset
    #: Wall clock time; -1 if never in this epoch.
    last_contact_ms: int
    caught_up_ms: int
    is_voter: bool


class CommitListener(Protocol):
    def __call__(self, offset: Offset, epoch: Epoch, records: Sequence[Message]) -> None:
        """Handles a committed batch, whose last record is at `offset`. Control batches have no
        records. An exception stops the node."""


class PendingRequest(NamedTuple):
    """A request of another node that waits for the core's response."""

    future: "asyncio.Future[core_messages.Response]"
    bytes_max: int


class RaftDriver:
    def __init__(
        self,
        runtime: Runtime,
        loaded: LoadedMetadata,
        config: BrokerConfig,
        *,
        peers: Peers | None = None,
        cluster_id: str = "",
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._folder = loaded.folder
        self._snapshot = loaded.snapshot
        self.cluster_id = cluster_id
        self.log = loaded.log
        self.log.lower_recovery_point = self._mark_recovery_point
        #: Held while the log is flushed, truncated or cleaned up.
        self.log_lock = asyncio.Lock()
        #: The committed quorum; `core.voters` may be newer.
        self.quorum = loaded.quorum
        #: Endpoints of this node's controller listeners; set before the start.
        self.endpoints: tuple[VoterEndpoint, ...] = ()
        self.settings = raft_settings(config)
        self._network = RaftNetwork(
            runtime,
            Peers(runtime, client_id=f"raft-client-{config.node_id}") if peers is None else peers,
            listener=config.controller_listener_names[0],
            bootstrap=config.controller_quorum_bootstrap_servers,
            request_timeout_ms=self.settings.request_timeout_ms,
            on_response=self._on_response,
            on_disconnected=lambda node: self._dispatch(partial(self.core.on_disconnected, node)),
            on_unreachable=lambda node: self._dispatch(partial(self.core.on_unreachable, node)),
        )
        snapshot = self._snapshot
        is_real = snapshot is not None and snapshot.id.end_offset > 0
        self.core = RaftCore(
            loaded.me,
            loaded.quorum.voters,
            hard_state=loaded.hard_state,
            log_end=LogEnd(
                self.log.latest_epoch
                if self.log.end_offset > self.log.log_start_offset
                else loaded.log_start.epoch,
                self.log.end_offset,
            ),
            settings=self.settings,
            chance=runtime.randomness.below,
            epochs=log_epochs(self.log),
            voter_history=[
                each
                for batch in loaded.tail
                for each in voters_in(batch.base_offset, batch.control)
            ],
            log_start=loaded.log_start,
            snapshot=snapshot.id if snapshot is not None and is_real else None,
            snapshot_size_bytes=loaded.snapshot_size_bytes,
            bootstrap=self._network.bootstrap_ids,
        )
        #: The newest snapshot on disk.
        self.snapshot_id: SnapshotId | None = None if snapshot is None else snapshot.id
        self.last_committed_timestamp_ms = 0 if snapshot is None else snapshot.last_timestamp_ms
        #: Size of all delivered batches, which tells how much a snapshot would save.
        self.committed_bytes = 0
        #: Batches in the log that are not delivered yet.
        self._pending: deque[MetadataBatch] = deque(loaded.tail)
        #: Everything below was delivered.
        self.delivered_end = loaded.log_start.offset if snapshot is None else snapshot.id.end_offset
        self._listeners: list[CommitListener] = []
        self._snapshot_listeners: list[Callable[[Snapshot], None]] = []
        self._leader_listeners: list[Callable[[Epoch], None]] = []
        self._resignation_listeners: list[Callable[[Epoch], None]] = []
        self._waiters: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._pending_requests: dict[int, PendingRequest] = {}
        self._last_request_id = 0
        #: Events that wait for the dispatch to the core.
        self._events: deque[Callable[[int], Effects]] = deque()
        self._is_dispatching = False
        #: The log is being truncated or replaced.
        self._is_replacing = False
        #: A new epoch that this node leads, until the leader listeners were called.
        self._new_leadership: Epoch | None = None
        #: The leader's high watermark in its last response.
        self._leader_mark = NO_OFFSET
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._wake = asyncio.Event()
        self._flushed = asyncio.Event()
        self._ready = asyncio.Event()
        self._marked_ms = -RECOVERY_POINT_INTERVAL_MS
        self._failure: Exception | None = None
        self._is_stopped = False
        #: A leader that is about to hand over rejects further appends.
        self._is_resigning = False
        self._task: Task | None = None

    # ── start and stop ───────────────────────────────────────────────────────────────────────

    def add_listener(self, listener: CommitListener) -> None:
        assert self._task is None, "a listener added after the start would miss records"
        self._listeners.append(listener)

    def add_snapshot_listener(self, listener: Callable[[Snapshot], None]) -> None:
        """Adds a listener for snapshots that replace batches which were never delivered."""
        self._snapshot_listeners.append(listener)

    def add_leader_listener(self, listener: Callable[[Epoch], None]) -> None:
        self._leader_listeners.append(listener)

    def add_resignation_listener(self, listener: Callable[[Epoch], None]) -> None:
        """Adds a listener for the end of an epoch that this node led."""
        self._resignation_listeners.append(listener)

    def start(self) -> None:
        """Delivers the snapshot and starts the background task, which delivers the rest."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and snapshot.id.end_offset > 0:
            last = Offset(snapshot.id.end_offset - 1)
            for listener in self._listeners:
                listener(last, snapshot.id.epoch, snapshot.records)
        self._task = self._runtime.spawn(self._run(), name="metadata quorum")
        self._dispatch(self.core.start)
        # Records found after a restart may be in the page cache only.
        self._wake.set()

    @property
    def is_ready(self) -> bool:
        """Whether all records that were committed at startup are delivered."""
        return self._ready.is_set()

    async def wait_ready(self) -> None:
        """Waits until all committed records are delivered: this node leads, or has caught up with
        the leader."""
        await self._ready.wait()

    async def resign(self) -> None:
        """Hands leadership over to another voter, if this node leads and there is one. Pending
        appends are committed first, and new ones rejected. Returns when the others are informed, or
        after a timeout."""
        if self.core.leadership is None or len(self.core.voters.voters) < 2:
            return
        self._is_resigning = True
        try:
            async with asyncio.timeout(HAND_OVER_MS_MAX / 1000):
                while self._waiters:
                    await asyncio.wait([self._waiters[-1][1]])
        except TimeoutError:
            pass
        self._is_resigning = False
        if self.core.leadership is not None:
            self._dispatch(self.core.resign)
        try:
            async with asyncio.timeout(HAND_OVER_MS_MAX / 1000):
                await self._network.drain()
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """Stops after all appended records are durable."""
        if self._task is not None and self._failure is None:
            await self.resign()
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._network.close()
        await self._runtime.workers.run(self._close, lane=self.lane)
        self._fail_waiters()
        for pending in self._pending_requests.values():
            if not pending.future.done():
                pending.future.set_exception(NotController("this node is shutting down"))

    # ── state and requests of other nodes ────────────────────────────────────────────────────

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def is_observer(self) -> bool:
        return not self.core.is_voter

    @property
    def epoch(self) -> Epoch:
        return self.core.epoch

    @property
    def leader(self) -> NodeId:
        return self.core.leader

    @property
    def has_working_leader(self) -> bool:
        """Whether this node leads the quorum or follows its leader; not during an election."""
        return self.core.role in (Role.LEADER, Role.FOLLOWER)

    @property
    def me(self) -> ReplicaKey:
        return self.core.me

    @property
    def high_watermark(self) -> Offset:
        return self.core.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The newest set in the log, which applies whether committed or not."""
        return self.core.voters

    def leader_endpoint(self) -> Address | None:
        """Returns the listener of the active controller; None if no leader is known."""
        leader = self.core.leader
        if leader == NO_NODE:
            return None
        if leader == self.core.me.node_id and self.endpoints:
            return Address(self.endpoints[0].host, self.endpoints[0].port)
        return self._network.address_of(leader, self.core.voters)

    def learn(self, node_id: NodeId, address: Address) -> None:
        """Stores the address that another node reported of itself."""
        if node_id != self.core.me.node_id:
            self._network.learn({node_id: address})

    def describe_voter(self) -> Voter:
        """Returns the entry of this controller for the voter set."""
        return Voter(self.core.me, self.endpoints)

    def replicas(self) -> list[ReplicaView]:
        """Returns all replicas that the leader knows, including itself; empty on other nodes."""
        leadership = self.core.leadership
        if leadership is None:
            return []
        clock = self._runtime.clock
        wall_ms = clock.wall_ms()
        back_ms = wall_ms - clock.mono_ms()
        me, voters = self.core.me, self.core.voters
        own = voters.find(me.node_id)
        found = {
            voter.key: ReplicaView(voter.key, NO_OFFSET, -1, -1, True) for voter in voters.voters
        }
        for progress in leadership.replicas():
            key, contact_ms = progress.key, progress.last_contact_ms
            if key.node_id < 0 or progress.durable == NO_OFFSET:
                continue
            if contact_ms + OBSERVER_MS_MAX < clock.mono_ms() and not voters.has(key):
                continue
            caught_up_ms = progress.caught_up_ms
            found[key] = ReplicaView(
                key,
                progress.durable,
                contact_ms + back_ms,
                -1 if caught_up_ms < 0 else caught_up_ms + back_ms,
                voters.has(key),
            )
        mine = me if own is None or not voters.has(me) else own.key
        end = self.core.log_end.offset
        found[mine] = ReplicaView(mine, end, wall_ms, wall_ms, voters.has(me))
        return list(found.values())

    async def ask(
        self, request: core_messages.Request, *, bytes_max: int = 0
    ) -> core_messages.Response:
        """Passes another node's request to the core and returns the response, with at most
        `bytes_max` bytes of records or of a snapshot."""
        is_full = len(self._pending_requests) >= PENDING_REQUESTS_MAX
        if self._failure is not None or self._is_stopped or is_full:
            raise NotController("this node cannot serve requests of the quorum now")
        self._last_request_id += 1
        number = self._last_request_id
        future: asyncio.Future[core_messages.Response] = asyncio.get_running_loop().create_future()
        self._pending_requests[number] = PendingRequest(future, bytes_max)
        try:
            self._dispatch(partial(self.core.step, replace(request, request_id=number)))
            async with asyncio.timeout(RESPONSE_MS_MAX / 1000):
                return await future
        except TimeoutError:
            raise NotController("the quorum request timed out") from None
        finally:
            del self._pending_requests[number]

    # ── appending ────────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[Message]) -> Offset:
        """Appends the records as one atomic batch and returns the offset of the last one. They are
        valid once `wait_committed` has returned."""
        self._check_leader()
        if self._is_resigning:
            raise NotController(f"node {self.core.me.node_id} is handing over the metadata quorum")
        assert records, "an empty batch has no offset"
        if len(self._waiters) >= WAITERS_MAX:
            raise NotController("too many appends to the metadata log are waiting for the disk")
        base = self.log.end_offset
        now_ms = self._runtime.clock.wall_ms()
        data = records_batch(records, base_offset=base, epoch=self.epoch, now_ms=now_ms)
        last = self._append(data, tuple(records), (), now_ms)
        self._after_event()
        return last

    async def wait_committed(self, offset: Offset) -> None:
        """Waits until the record is committed. Raises NotController if this node stops leading
        before that."""
        if offset < self.core.high_watermark:
            return
        self._check_leader()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, future))
        await future

    async def wait_durable(self, end: Offset) -> None:
        """Waits until the local log is on disk up to `end`."""
        while self.log.durable_offset < end:
            self._flushed.clear()
            self._wake.set()
            await self._flushed.wait()

    def _check_leader(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.core.is_leader:
            raise NotController(f"node {self.core.me.node_id} does not lead the metadata quorum")

    # ── snapshots taken by this node ─────────────────────────────────────────────────────────

    def on_snapshot(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """A snapshot was written, of records that are delivered and on disk."""
        if self.snapshot_id is None or snapshot_id > self.snapshot_id:
            self.snapshot_id = snapshot_id
        self._dispatch(partial(self.core.on_snapshot, snapshot_id, size_bytes))

    def on_snapshots_kept(self, kept: Sequence[SnapshotId]) -> None:
        """The other snapshots were deleted; the log starts at the oldest kept one, or before."""
        for known in list(self.core.snapshots):
            if SnapshotId(*known) not in kept and known != self.core.log.snapshot:
                self.core.on_snapshot_deleted(known)
        log = self.core.log
        if kept and log.snapshot is not None and kept[0] <= log.snapshot:
            start = kept[0].end_offset
            if log.start.offset < start <= log.end.offset:
                self.core.on_log_start(kept[0])

    def collect_samples(self) -> Iterator[Sample]:
        core = self.core
        yield from ROLE.sample_states(core.role.value)
        yield EPOCH.sample(core.epoch)
        yield LEADER.sample(core.leader)
        yield VOTERS.sample(len(core.voters.voters))
        yield HIGH_WATERMARK.sample(core.high_watermark)
        yield LOG_START.sample(self.log.log_start_offset)
        yield LOG_END.sample(core.log.end.offset)
        yield UNCOMMITTED_BATCHES.sample(len(self._pending))
        yield COMMIT_WAITS.sample(len(self._waiters))
        yield from self._network.collect_samples()

    # ── passing events to the core ───────────────────────────────────────────────────────────

    @property
    def lane(self) -> str:
        """A separate lane, so that commits of metadata do not queue behind fsyncs of data."""
        return f"{self._folder}#metadata"

    def _dispatch(self, event: Callable[[int], Effects]) -> None:
        """Passes events to the core in their order. Callers are timers, connections and tasks: a
        failure stops this node, but is not raised to them."""
        if self._failure is not None or self._is_stopped:
            return
        self._events.append(event)
        if self._is_dispatching or self._is_replacing:
            return
        self._is_dispatching = True
        try:
            while self._events and not self._is_replacing:
                self._execute(self._events.popleft()(self._runtime.clock.mono_ms()))
                self._after_event()
        except Exception as error:
            self._fail(error)
        finally:
            self._is_dispatching = False

    def _fail(self, error: Exception) -> None:
        """Lets the background task raise the error, which stops the node."""
        if self._failure is None:
            self._failure = error
        self._wake.set()

    def _after_event(self) -> None:
        """Calls leader listeners, reports readiness, and sets the timer to the core's deadline."""
        if self._new_leadership is not None:
            epoch, self._new_leadership = self._new_leadership, None
            for on_leader in self._leader_listeners:
                on_leader(epoch)
            self._ready.set()
        if not self._ready.is_set() and NO_OFFSET < self._leader_mark <= self.delivered_end:
            self._ready.set()
        due_ms = self.core.deadline_ms
        if due_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = due_ms
        if due_ms is not None:
            wait_ms = max(0, due_ms - self._runtime.clock.mono_ms())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_ms = None
        self._dispatch(self.core.tick)

    def _on_response(self, response: core_messages.Response) -> None:
        if isinstance(response, core_messages.FetchResponse):
            if response.entries is not None:
                data = response.entries.data
                assert isinstance(data, bytes | bytearray | memoryview)
                try:
                    entries = slice_of(data, source=f"a response of node {response.sender}")
                except MetadataCorrupt as error:
                    self._network.log_once(response.sender, str(error))
                    return
                response = replace(response, entries=entries)
            if response.sender == response.leader == self.core.leader:
                self._leader_mark = response.high_watermark
        self._dispatch(partial(self.core.step, response))

    # ── executing the core's effects ─────────────────────────────────────────────────────────

    def _execute(self, effects: Effects) -> None:
        if effects.persist is not None:
            self._network.spawn(self._persist(effects.persist), name="quorum state")
        if effects.step_down is not None:
            self._step_down(effects.step_down)
        if effects.truncate is not None:
            self._replace(self._truncate(effects.truncate, effects))
        else:
            self._execute_rest(effects)

    def _execute_rest(self, effects: Effects) -> None:
        if effects.append is not None:
            self._append_fetched(effects.append)
        if effects.chunk is not None:
            chunk = effects.chunk
            write_part(
                self._runtime.disk,
                self._folder,
                SnapshotId(*chunk.snapshot),
                chunk.position,
                chunk.data,
            )
        for to, message in effects.send:
            self._send(to, message)
        if effects.committed is not None:
            self._deliver(effects.committed)
        if effects.install is not None:
            self._replace(self._install(SnapshotId(*effects.install)))
        if effects.lead is not None:
            self._lead(effects.lead)
        if effects.append_voters is not None:
            self._append_voters(effects.append_voters)

    def _send(self, to: NodeId, message: core_messages.Message) -> None:
        if isinstance(message, core_messages.Response):
            pending = self._pending_requests.get(message.request_id)
            if pending is not None and not pending.future.done():
                pending.future.set_result(self._fill_response(message, pending.bytes_max))
            return
        assert isinstance(message, core_messages.PeerRequest), "only clients change voters"
        context = RequestContext(
            self.cluster_id,
            self.endpoints,
            self._config.controller_quorum_fetch_max_bytes,
            self._config.controller_quorum_fetch_snapshot_max_bytes,
        )
        self._network.send(to, message, context=context, voters=self.core.voters)

    def _fill_response(
        self, message: core_messages.Response, bytes_max: int
    ) -> core_messages.Response:
        """Adds the records, or the chunk of a snapshot, which the core leaves to the driver."""
        match message:
            case core_messages.FetchResponse() if message.read_from != NO_OFFSET:
                data = read_bytes(self.log, message.read_from, bytes_max=bytes_max)
                return replace(message, read_from=NO_OFFSET, entries=raw_entries(data))
            case core_messages.FetchSnapshotResponse() if message.snapshot is not None:
                id_ = SnapshotId(*message.snapshot)
                disk, position = self._runtime.disk, message.position
                try:
                    chunk = read_snapshot_bytes(
                        disk, self._folder, id_, position, bytes_max=bytes_max
                    )
                except FileNotFoundError:
                    # A newer one has just replaced it.
                    error = core_messages.Error.SNAPSHOT_NOT_FOUND
                    return replace(message, error=error, snapshot=None)
                return replace(message, data=chunk)
            case _:
                return message

    def _append_fetched(self, entries: LogSlice) -> None:
        assert isinstance(entries.data, Fetched)
        self.log.append_as_follower(entries.data.data, now_ms=self._runtime.clock.wall_ms())
        assert self.log.end_offset == entries.end, (self.log.end_offset, entries)
        self._pending.extend(entries.data.batches)
        self._wake.set()

    def _step_down(self, epoch: Epoch) -> None:
        self._new_leadership = None
        self._fail_waiters()
        for on_resigned in self._resignation_listeners:
            on_resigned(epoch)

    def _deliver(self, high_watermark: Offset) -> None:
        pending = self._pending
        while pending and pending[0].last_offset < high_watermark:
            batch = pending.popleft()
            if batch.control:
                self._deliver_control(batch)
            self.last_committed_timestamp_ms = batch.timestamp_ms
            self.committed_bytes += batch.size_bytes
            self.delivered_end = Offset(batch.last_offset + 1)
            for listener in self._listeners:
                listener(batch.last_offset, batch.epoch, batch.records)
        waiters = self._waiters
        while waiters and waiters[0][0] < high_watermark:
            _, future = waiters.popleft()
            if not future.done():
                future.set_result(None)

    def _deliver_control(self, batch: MetadataBatch) -> None:
        if voters_in(batch.base_offset, batch.control):
            # The voter set has the newest addresses.
            self._network.forget()
        self.quorum = quorum_of(batch.control, self.quorum) or self.quorum
        is_change = batch.control[0][0] == frames.LEADER_CHANGE
        if is_change and self.core.is_leader and batch.epoch == self.core.epoch:
            self._new_leadership = batch.epoch

    def _fail_waiters(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for offset, future in waiters:
            if not future.done():
                future.set_exception(
                    NotController(
                        f"this node stopped leading the metadata quorum: the record at offset"
                        f" {offset} may or may not be committed later"
                    )
                )

    # ── writing batches ──────────────────────────────────────────────────────────────────────

    def _append(
        self,
        data: bytearray,
        records: tuple[Message, ...],
        control: tuple[Control, ...],
        now_ms: int,
    ) -> Offset:
        if len(data) > BATCH_BYTES_MAX:
            raise MetadataBatchTooLarge(
                f"{len(records)} records have {len(data)} bytes, but a batch of the metadata log"
                f" is limited to {BATCH_BYTES_MAX} bytes: split the request"
            )
        size = len(data)
        try:
            result = self.log.append_as_leader(
                memoryview(data), leader_epoch=self.core.epoch, now_ms=now_ms, origin=Origin.RAFT
            )
        except DiskFailed as failure:
            self._fail(failure)
            raise
        last = Offset(result.end_offset - 1)
        self._pending.append(
            MetadataBatch(result.base_offset, last, self.core.epoch, now_ms, size, records, control)
        )
        voters = voters_in(result.base_offset, control)
        effects = self.core.on_appended(
            result.end_offset,
            self._runtime.clock.mono_ms(),
            voters=voters[-1][1] if voters else None,
        )
        self._wake.set()
        self._execute(effects)
        return last

    def _append_control(self, controls: list[Control], epoch: Epoch) -> None:
        base = self.log.end_offset
        now_ms = self._runtime.clock.wall_ms()
        data = control_batch(controls, base_offset=base, epoch=epoch, now_ms=now_ms)
        self._append(data, (), tuple(controls), now_ms)

    def _append_voters(self, voters: VoterSet) -> None:
        """Appends a voter set. The first one of a static quorum also upgrades kraft.version, in the
        same batch."""
        is_upgrade = self.core.voters.is_static
        controls = (
            quorum_controls(Quorum(DYNAMIC_VOTERS_VERSION, voters))
            if is_upgrade
            else [voters_control(voters)]
        )
        self._append_control(controls, self.core.epoch)

    def _lead(self, change: LeaderChange) -> None:
        """Appends the first batch of the epoch. The first batch of the log also contains the
        voters, which until then are only in the snapshot at offset 0."""
        message = leader_change_message.LeaderChangeMessage(
            version=0,
            leader_id=change.leader,
            voters=[leader_change_message.Voter(voter_id=node) for node in change.voters],
            granting_voters=[
                leader_change_message.Voter(voter_id=node) for node in change.granting
            ],
        )
        controls: list[Control] = [(frames.LEADER_CHANGE, message)]
        if self.log.end_offset == 0:
            controls += quorum_controls(self.quorum)
        self._append_control(controls, change.epoch)

    # ── background work ──────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        """Fsyncs appended records until the first failure, which it raises."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            async with self.log_lock:
                plan = self.log.flush_plan()
                if not plan.is_empty:
                    try:
                        await self._runtime.workers.run(partial(self._flush, plan), lane=self.lane)
                    except DiskFailed as failure:
                        self._fail(failure)
                        raise
                    self.log.mark_durable(plan)
            self._flushed.set()
            self._dispatch(lambda now_ms: self.core.on_durable(self.log.durable_offset, now_ms))

    def _flush(self, plan: FlushPlan) -> None:
        """Runs in a worker."""
        plan.run()
        now_ms = self._runtime.clock.mono_ms()
        if now_ms - self._marked_ms >= RECOVERY_POINT_INTERVAL_MS:
            self._marked_ms = now_ms
            self._mark_recovery_point(plan.upto)

    async def mark_durable(self, upto: Offset) -> None:
        """Writes the recovery point, before a snapshot replaces the records below it."""
        await self._runtime.workers.run(partial(self._mark_recovery_point, upto), lane=self.lane)

    def _mark_recovery_point(self, offset: Offset) -> None:
        try:
            write_recovery_point(self._runtime.disk, self._folder, offset)
        except OSError as error:
            raise DiskFailed(self.log.log_dir, error) from error

    def _close(self) -> None:
        """Runs in a worker. After a disk failure only the next start can tell what is on disk."""
        if self._failure is None and not self.log.has_failed:
            self.log.close(clean=True)
            self._mark_recovery_point(self.log.durable_offset)

    async def _persist(self, state: HardState) -> None:
        # In a separate lane, since a vote need not wait for the fsync of the log.
        try:
            await self._runtime.workers.run(
                partial(self._write_state, state), lane=f"{self._folder}#quorum"
            )
        except DiskFailed as failure:
            self._fail(failure)
            raise
        self._dispatch(self.core.on_persisted)

    def _write_state(self, state: HardState) -> None:
        try:
            write_quorum_state(
                self._runtime.disk,
                self._folder,
                state,
                kraft_version=0 if self.core.voters.is_static else 1,
                voters=self.core.voters,
            )
        except OSError as error:
            raise DiskFailed(self.log.log_dir, error) from error

    def _replace(self, work: Coroutine[Any, Any, None]) -> None:
        assert not self._is_replacing, "the log is being replaced already"
        self._is_replacing = True
        self._network.spawn(self._run_replacement(work), name="metadata log")

    async def _run_replacement(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self.log_lock:
                await work
        except Exception as error:
            self._fail(error)
            raise
        self._is_replacing = False
        # Continues with the events that have accumulated.
        self._wake.set()
        self._dispatch(self.core.tick)

    async def _truncate(self, to: Offset, effects: Effects) -> None:
        await self._runtime.workers.run(partial(self.log.truncate, to), lane=self.lane)
        if self.log.end_offset != to:
            raise MetadataCorrupt(
                f"{self._folder} cannot be truncated to offset {to}, which is inside a batch"
            )
        pending = self._pending
        while pending and pending[-1].last_offset >= to:
            pending.pop()
        self._execute_rest(effects)

    async def _install(self, snapshot_id: SnapshotId) -> None:
        """Replaces this node's log by the leader's snapshot."""

        def job() -> Snapshot:
            found = finish_parts(self._runtime.disk, self._folder, snapshot_id)
            self.log.truncate_fully_and_start_at(
                snapshot_id.end_offset, now_ms=self._runtime.clock.wall_ms()
            )
            return found

        snapshot = await self._runtime.workers.run(job, lane=self.lane)
        size = self._runtime.disk.open(f"{self._folder}/{snapshot_id.file_name}").size
        self._pending.clear()
        self.quorum = snapshot.quorum or self.quorum
        self.snapshot_id = snapshot_id
        self.last_committed_timestamp_ms = snapshot.last_timestamp_ms
        if snapshot_id.end_offset > self.delivered_end:
            self.delivered_end = snapshot_id.end_offset
            for listener in self._snapshot_listeners:
                listener(snapshot)
        effects = self.core.on_installed(
            snapshot_id,
            size_bytes=size,
            voters=self.quorum.voters,
            now_ms=self._runtime.clock.mono_ms(),
        )
        self._execute_rest(effects)


def raft_settings(config: BrokerConfig) -> RaftSettings:
    return RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
    )
