"""Connects the Raft core to a disk, a network and a state machine.

One task accesses the core and the log, so nothing can happen between a decision and its execution.
The other tasks only put messages of peers, completed fsyncs and requests of clients into its inbox.
The docstring of `lograft.consensus` is the contract between core and driver. This driver executes
the effects as follows:

    persist          a worker writes `hard-state`, then `on_persisted`
    truncate         a worker truncates the log, and the task waits for it
    append, lead     to the page cache; one fsync at a time runs in a worker, then `on_durable`
    send             requests over the link to a server, responses over the request's connection
    committed        the state machine applies the commands, and the waiting clients get responses
    chunk, install   writes the leader's snapshot to a file, then replaces log and state by it

A read returns the state after the commit of a record that was appended after the request arrived.
Only a leader that had not been replaced by that time can commit such a record. All reads that
arrive while the task is busy share one such record, or that of a command.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from examples.raft_kv import entries, folder
from examples.raft_kv.folder import Loaded, Snapshot
from examples.raft_kv.links import Link
from examples.raft_kv.packing import Malformed, pack, unpack_tuple
from examples.raft_kv.protocol import PEER
from examples.raft_kv.raft_messages import from_values, to_values
from examples.raft_kv.requests import NotLeader, Requests, Uncertain
from examples.raft_kv.state_machine import StateMachine
from lograft.consensus.core import RaftCore
from lograft.consensus.messages import (
    AddVoterRequest,
    Error,
    FetchResponse,
    FetchSnapshotResponse,
    Message,
    PeerRequest,
    RemoveVoterRequest,
    Response,
    VoterChangeResponse,
)
from lograft.consensus.types import (
    NOTHING,
    Effects,
    HardState,
    LeaderChange,
    LogEnd,
    LogSlice,
    RaftSettings,
    Send,
    SnapshotChunk,
    SnapshotId,
    VoterSet,
)
from lograft.model.errors import LograftError
from lograft.model.seams import Address, Disk, Runtime, Task
from lograft.model.types import NO_NODE, NO_OFFSET, NodeId, Offset
from lograft.storage.log import FlushPlan
from lograft.storage.retention import take_expired_files, unlink_files
from lograft.storage.types import Origin
from lograft.wire.batches import whole_batches_size

LOGGER: Final = logging.getLogger(__name__)
FETCH_BYTES_MAX: Final = 1 << 20
CHUNK_BYTES: Final = 256 << 10
#: Maximum number of queued messages of peers; more are dropped.
INBOX_MAX: Final = 10_000
RECOVERY_POINT_INTERVAL_MS: Final = 5_000


class VoterChangeRejected(LograftError):
    """The voters do not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    raft: RaftSettings = field(default_factory=RaftSettings)
    #: Bytes of log after which a snapshot is taken, and the time after which one is taken if there
    #: are new records.
    snapshot_bytes: int = 16 << 20
    snapshot_seconds: int = 3_600
    segment_bytes: int = 8 << 20

    @property
    def batch_bytes_max(self) -> int:
        """A batch must fit into a segment."""
        return min(self.segment_bytes // 2, 4 << 20)


class RaftDriver:
    def __init__(
        self,
        runtime: Runtime,
        path: str,
        loaded: Loaded,
        machine: StateMachine,
        *,
        settings: DriverSettings,
        voters: VoterSet,
        known: Mapping[NodeId, Address],
    ) -> None:
        """`voters` are the initial voters of the log, empty for a server that will be added later.
        `known` are the servers to contact in that case, and the addresses of servers that the log
        does not contain."""
        self._runtime = runtime
        self._path = path
        self._machine = machine
        self._settings = settings
        self._known = known
        self.log = loaded.log
        snapshot = loaded.snapshot
        self.core = RaftCore(
            loaded.me,
            voters if snapshot is None else snapshot.voters,
            hard_state=loaded.hard_state,
            log_end=LogEnd(
                loaded.epochs[-1][0] if loaded.epochs else loaded.log_start.epoch,
                loaded.log.end_offset,
            ),
            settings=settings.raft,
            chance=runtime.randomness.below,
            epochs=loaded.epochs,
            voter_history=loaded.voter_history,
            log_start=loaded.log_start,
            snapshot=None if snapshot is None else snapshot.id,
            snapshot_size_bytes=0 if snapshot is None else snapshot.size_bytes,
            bootstrap=tuple(known),
        )
        self.core.snapshots.update(loaded.snapshots)
        #: The offset below which all records are applied to the state machine.
        self.applied = Offset(0)
        if snapshot is not None:
            machine.restore(snapshot.state)
            self.applied = snapshot.id.end_offset
        self._inbox: deque[Callable[[], Effects]] = deque()
        self._wake = asyncio.Event()
        self._requests = Requests()
        self._changes: dict[int, asyncio.Future[None]] = {}
        self._change_id = 0
        #: Callbacks for responses, by server and number of the request.
        self._askers: dict[tuple[NodeId, int], Callable[[bytes], None]] = {}
        self._links: dict[tuple[NodeId, Address], Link] = {}
        self._is_flushing = False
        self._is_snapshotting = False
        #: Set when there is a new snapshot, which allows older files to be deleted.
        self._has_old = False
        #: Number of snapshots of a leader that replaced this server's log since the start.
        self.installs = 0
        #: Size of the log after the newest snapshot.
        self._snapshot_bytes = 0
        self._snapshot_ms = self._marked_ms = runtime.clock.mono_ms()
        self._task: Task | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._task = self._runtime.spawn(self._run(), name="raft")

    async def stop(self) -> None:
        """Transfers leadership and flushes the log."""
        if self._task is not None:
            self._task.cancel()
        if self.core.is_leader:
            effects = self.core.resign(self._now_ms())
            for send in effects.send:
                self._send(send)
        self._requests.on_unlead()
        for link in self._links.values():
            link.close()
        await self._in_worker(self._close)

    def _close(self) -> None:
        if not self.log.has_failed:
            self.log.close(clean=True)
            folder.write_recovery_point(self._runtime.disk, self._path, self.log.durable_offset)

    async def _run(self) -> None:
        await self._do(self.core.start(self._now_ms()))
        # Loading has flushed the existing log.
        await self._do(self.core.on_durable(self.log.durable_offset, self._now_ms()))
        while True:
            await self._wait()
            while self._inbox:
                await self._do(self._inbox.popleft()())
            await self._do(self.core.tick(self._now_ms()))
            await self._append_waiting()
            self._flush()
            self._apply()
            self._snapshot_if_due()
            await self._remove_old()

    async def _wait(self) -> None:
        """Waits until there is work; always yields to other tasks."""
        if self.applied < self.core.high_watermark:
            await asyncio.sleep(0)
            return
        due = [self.core.deadline_ms, self._next_snapshot_ms()]
        deadline_ms = min((each for each in due if each is not None), default=None)
        wait_ms = 1_000 if deadline_ms is None else max(deadline_ms - self._now_ms(), 0)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _now_ms(self) -> int:
        return self._runtime.clock.mono_ms()

    def _post(self, event: Callable[[], Effects]) -> None:
        self._inbox.append(event)
        self._wake.set()

    # ── what others ask ──────────────────────────────────────────────────────────────────────

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    def address_of(self, node_id: NodeId) -> Address | None:
        """The voters in the log are the latest; until there is a log, those of the command line
        apply."""
        voter = self.core.voters.find(node_id)
        if voter is not None and voter.endpoints:
            return Address(voter.endpoints[0].host, voter.endpoints[0].port)
        return self._known.get(node_id)

    async def propose(self, command: bytes) -> bytes:
        """Returns the state machine's response, once the command is committed and applied."""
        self._check_leader()
        answer = self._requests.add_command(command)
        self._wake.set()
        return await answer

    async def query(self, question: bytes) -> bytes:
        """Returns the state machine's response, which includes all writes acknowledged before."""
        self._check_leader()
        answer = self._requests.add_question(question)
        self._wake.set()
        return await answer

    async def change_voters(self, request: AddVoterRequest | RemoveVoterRequest) -> None:
        """Returns when the new voters are committed."""
        self._check_leader()
        self._change_id += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes[self._change_id] = done
        numbered = replace(request, sender=NO_NODE, request_id=self._change_id)
        self._post(lambda: self.core.step(numbered, self._now_ms()))
        await done

    def _check_leader(self) -> None:
        if not self.core.is_leader:
            raise NotLeader("this server is not the leader")

    def take(self, data: bytes, answer: Callable[[bytes], None] | None = None) -> None:
        """Takes a message of another server. `answer` sends the response to a request; without it,
        the message is itself a response. Raises Malformed."""
        message = from_values(unpack_tuple(data))
        if isinstance(message, Response) is (answer is not None):
            raise Malformed("a request instead of a response, or the reverse")
        if len(self._inbox) >= INBOX_MAX:
            return
        self._post(lambda: self._step(message, answer))

    def _step(self, message: Message, answer: Callable[[bytes], None] | None) -> Effects:
        if answer is not None and isinstance(message, PeerRequest):
            self._askers[message.sender.node_id, message.request_id] = answer
            if len(self._askers) > INBOX_MAX:
                del self._askers[next(iter(self._askers))]
        return self.core.step(message, self._now_ms())

    # ── effects ──────────────────────────────────────────────────────────────────────────────

    async def _do(self, effects: Effects) -> None:
        """In the order of the fields; effects that call back are last."""
        if effects is NOTHING:
            return
        if effects.persist is not None:
            self._runtime.spawn(self._persist(effects.persist), name="persist")
        if effects.step_down is not None:
            self._requests.on_unlead()
        if effects.truncate is not None:
            await self._in_worker(partial(self.log.truncate, effects.truncate))
        if effects.append is not None:
            data = effects.append.data
            assert isinstance(data, bytes)
            self.log.append_as_follower(memoryview(data), now_ms=self._runtime.clock.wall_ms())
            self._snapshot_bytes += len(data)
        if effects.chunk is not None:
            self._keep(effects.chunk)
        for send in effects.send:
            self._send(send)
        # `committed` needs no action here: `_apply` follows the core's high watermark.
        if effects.install is not None:
            await self._do(await self._install(effects.install))
        if effects.lead is not None:
            await self._do(self._lead(effects.lead))
        if effects.append_voters is not None:
            voters = effects.append_voters
            batch = entries.voters_batch(voters, now_ms=self._runtime.clock.wall_ms())
            await self._do(self._append(batch, voters))

    async def _persist(self, state: HardState) -> None:
        job = partial(folder.write_hard_state, self._runtime.disk, self._path, state)
        await self._runtime.workers.run(job, lane=f"{self._path}#state")
        self._post(lambda: self.core.on_persisted(self._now_ms()))

    async def _in_worker(self, job: Callable[[], None]) -> None:
        await self._runtime.workers.run(job, lane=f"{self._path}#log")

    # ── appending ────────────────────────────────────────────────────────────────────────────

    def _lead(self, change: LeaderChange) -> Effects:
        voters = self.core.voters if self.log.end_offset == 0 else None
        now_ms = self._runtime.clock.wall_ms()
        return self._append(entries.leader_batch(change, voters, now_ms=now_ms), voters)

    def _append(self, batch: bytearray, voters: VoterSet | None = None) -> Effects:
        result = self.log.append_as_leader(
            memoryview(batch),
            leader_epoch=self.core.epoch,
            now_ms=self._runtime.clock.wall_ms(),
            origin=Origin.RAFT,
        )
        self._snapshot_bytes += len(batch)
        return self.core.on_appended(result.end_offset, self._now_ms(), voters=voters)

    async def _append_waiting(self) -> None:
        while self.core.is_leader and self._requests:
            commands = self._requests.take(self.log.end_offset, self._settings.batch_bytes_max)
            batch = entries.commands_batch(commands, now_ms=self._runtime.clock.wall_ms())
            await self._do(self._append(batch))

    def _flush(self) -> None:
        """Starts an fsync unless one is running: records appended meanwhile share the next one."""
        if self._is_flushing or self.log.durable_offset >= self.log.end_offset:
            return
        self._is_flushing = True
        self._runtime.spawn(self._run_flush(self.log.flush_plan()), name="fsync")

    async def _run_flush(self, plan: FlushPlan) -> None:
        await self._in_worker(partial(self._flush_job, plan))
        self._post(lambda: self._finish_flush(plan))

    def _flush_job(self, plan: FlushPlan) -> None:
        plan.run()
        now_ms = self._now_ms()
        if now_ms - self._marked_ms >= RECOVERY_POINT_INTERVAL_MS:
            self._marked_ms = now_ms
            folder.write_recovery_point(self._runtime.disk, self._path, plan.upto)

    def _finish_flush(self, plan: FlushPlan) -> Effects:
        # The log ignores the plan if it was truncated in the meantime.
        self.log.mark_durable(plan)
        self._is_flushing = False
        if self.log.durable_offset <= self.core.log.durable:
            return NOTHING
        return self.core.on_durable(self.log.durable_offset, self._now_ms())

    # ── applying ─────────────────────────────────────────────────────────────────────────────

    def _apply(self) -> None:
        """Applies some of the committed records; the loop calls it again for the rest."""
        committed = self.core.high_watermark
        if self.applied >= committed:
            return
        for entry in folder.read_some(self.log, self.applied, committed):
            for offset, command in enumerate(entry.commands, entry.base):
                answer = b"" if command == entries.BARRIER else self._machine.apply(command)
                self._requests.on_applied(Offset(offset), answer)
            self.applied = entry.end
            for waiting in self._requests.ready_questions(Offset(entry.end - 1)):
                waiting.answer.set_result(self._machine.query(waiting.content))

    # ── snapshots ────────────────────────────────────────────────────────────────────────────

    def _next_snapshot_ms(self) -> int | None:
        """Returns when the next snapshot is due, of records that are applied and, since the log
        must contain the last one, flushed. None: not before something changes."""
        newest = self.core.log.snapshot
        begin = 0 if newest is None else newest.end_offset
        if self._is_snapshotting or not begin < self.applied <= self.core.log.durable:
            return None
        if self._snapshot_bytes >= self._settings.snapshot_bytes:
            return self._now_ms()
        return self._snapshot_ms + self._settings.snapshot_seconds * 1000

    def _snapshot_if_due(self) -> None:
        due_ms = self._next_snapshot_ms()
        if due_ms is None or self._now_ms() < due_ms:
            return
        self._is_snapshotting = True
        self._snapshot_ms, self._snapshot_bytes = self._now_ms(), 0
        epoch = self.log.epoch_for_offset(self.applied - 1)
        snapshot = SnapshotId(self.applied, epoch)
        work = self._take_snapshot(
            snapshot, self.core.log.voters_at(self.applied), self._machine.snapshot()
        )
        self._runtime.spawn(work, name="snapshot")

    async def _take_snapshot(
        self, snapshot: SnapshotId, voters: VoterSet, state: Callable[[], bytes]
    ) -> None:
        def write() -> int:
            disk = self._runtime.disk
            return folder.write_snapshot(disk, self._path, snapshot, voters, state())

        # First, so that damage below a snapshot of this server is never taken as an incomplete last
        # write.
        mark = partial(folder.write_recovery_point, self._runtime.disk, self._path)
        await self._in_worker(lambda: mark(snapshot.end_offset))
        size_bytes = await self._runtime.workers.run(write, lane=f"{self._path}#snapshot")
        LOGGER.info("snapshot of everything below %d: %d bytes", snapshot.end_offset, size_bytes)
        self._post(partial(self._on_snapshot, snapshot, size_bytes))

    def _on_snapshot(self, snapshot: SnapshotId, size_bytes: int) -> Effects:
        self._is_snapshotting = False
        newest = self.core.log.snapshot
        if newest is not None and newest > snapshot:
            # A snapshot of the leader is newer.
            self._runtime.disk.unlink(folder.snapshot_path(self._path, snapshot))
            return NOTHING
        self._has_old = True
        return self.core.on_snapshot(snapshot, size_bytes, self._now_ms())

    async def _remove_old(self) -> None:
        """Deletes the log below the second newest snapshot, so that a follower that is only
        slightly behind still finds its records; and the older snapshots."""
        if not self._has_old:
            return
        self._has_old = False
        snapshots = sorted(self.core.snapshots)
        if len(snapshots) < folder.SNAPSHOTS_KEPT:
            return
        start = snapshots[-folder.SNAPSHOTS_KEPT]
        if start.end_offset > self.core.log.start.offset:
            self.log.advance_start(start.end_offset)
            self.core.on_log_start(start)
        now_ms = self._runtime.clock.wall_ms()
        removal = self.log.plan_removal(now_ms, self.core.high_watermark)
        if removal is not None:
            await self._in_worker(removal.run)
            self.log.finish_removal(removal)
        doomed = take_expired_files(self.log, now_ms)
        for snapshot in snapshots[: -folder.SNAPSHOTS_KEPT]:
            self.core.on_snapshot_deleted(snapshot)
            doomed.append(folder.snapshot_path(self._path, snapshot))
        await self._in_worker(lambda: _unlink(self._runtime.disk, doomed))

    def _keep(self, chunk: SnapshotChunk) -> None:
        file = self._runtime.disk.open(f"{self._path}/{folder.ARRIVING}", create=True)
        if chunk.position == 0:
            file.truncate(0)
        file.pwrite(chunk.data, chunk.position)

    async def _install(self, snapshot: SnapshotId) -> Effects:
        """The snapshot is first flushed under its final name; after a crash, only the rest is
        repeated."""
        disk, now_ms = self._runtime.disk, self._runtime.clock.wall_ms()
        arrived: Snapshot = await self._runtime.workers.run(
            partial(folder.install_snapshot, disk, self._path, snapshot),
            lane=f"{self._path}#snapshot",
        )
        restart = self.log.truncate_fully_and_start_at
        await self._in_worker(partial(restart, snapshot.end_offset, now_ms=now_ms))
        doomed = [folder.snapshot_path(self._path, i) for i in self.core.snapshots if i != snapshot]
        await self._in_worker(lambda: _unlink(disk, doomed))
        self._machine.restore(arrived.state)
        self.applied = snapshot.end_offset
        self._snapshot_ms, self._snapshot_bytes = self._now_ms(), 0
        self.installs += 1
        LOGGER.info("took over the leader's snapshot of everything below %d", snapshot.end_offset)
        return self.core.on_installed(
            snapshot, size_bytes=arrived.size_bytes, voters=arrived.voters, now_ms=self._now_ms()
        )

    # ── messages ─────────────────────────────────────────────────────────────────────────────

    def _send(self, send: Send) -> None:
        message = self._fill_entries(send.message)
        if isinstance(message, VoterChangeResponse):
            self._end_change(message)
            return
        data = pack(to_values(message))
        if isinstance(message, Response):
            asker = self._askers.pop((send.to, message.request_id), None)
            if asker is not None:
                asker(data)
            return
        address = self.address_of(send.to)
        if address is not None:
            self._link_to(send.to, address).send(PEER + data)

    def _link_to(self, node_id: NodeId, address: Address) -> Link:
        link = self._links.get((node_id, address))
        if link is None:
            link = self._links[node_id, address] = Link(
                self._runtime,
                address,
                on_frame=self._take_answer,
                on_refused=lambda: self._post(
                    lambda: self.core.on_unreachable(node_id, self._now_ms())
                ),
                on_lost=lambda: self._post(
                    lambda: self.core.on_disconnected(node_id, self._now_ms())
                ),
            )
        return link

    def _take_answer(self, data: bytes) -> None:
        try:
            self.take(data)
        except Malformed as error:
            LOGGER.warning("invalid message from a server: %s", error)

    def _fill_entries(self, message: Message) -> Message:
        """Adds the bytes that the core requests to the message."""
        if isinstance(message, FetchResponse) and message.read_from != NO_OFFSET:
            part = self.log.read(message.read_from, bytes_max=FETCH_BYTES_MAX)
            assert part is not None, (message, self.log.end_offset)
            data = part.file.pread(part.size, part.position)
            found = LogSlice(
                message.read_from, self.log.end_offset, (), (), data[: whole_batches_size(data)]
            )
            return replace(message, read_from=NO_OFFSET, entries=found)
        if isinstance(message, FetchSnapshotResponse) and message.snapshot is not None:
            file = self._runtime.disk.open(folder.snapshot_path(self._path, message.snapshot))
            return replace(message, data=file.pread(CHUNK_BYTES, message.position))
        return message

    def _end_change(self, response: VoterChangeResponse) -> None:
        future = self._changes.pop(response.request_id, None)
        if future is None or future.done():
            return
        if response.error is Error.NONE:
            future.set_result(None)
        elif response.error in (Error.NOT_LEADER, Error.TIMED_OUT):
            future.set_exception(Uncertain(f"change of voters: {response.error.value}"))
        else:
            future.set_exception(VoterChangeRejected(response.error.value))


def _unlink(disk: Disk, paths: list[str]) -> None:
    if unlink_files(disk, paths):
        disk.fsync_dir(paths[-1].rpartition("/")[0])
