"""Makes the Raft core's wishes come true: appends, cuts, fsyncs, persists, sends, delivers what is
committed. The same for a voter and for an observer (a broker without a vote).

Start: `load_metadata` (blocking) → `RaftDriver(runtime, loaded, config, …)` → listeners → `start()`
→ `wait_ready()`. Listeners hear every committed batch once, in order, beginning with the snapshot;
a node that was far behind hears `on_snapshot` in between. `on_leader` comes after everything that
was in the log when this node became leader, `on_unleader` when it is leader no more.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from lograft.broker.errors import NotController
from lograft.broker.quorum.metadata_batches import records_batch
from lograft.broker.quorum.raft_engine import Asked, CommitListener, RaftEngine
from lograft.broker.quorum.snapshots import Snapshot, SnapshotId
from lograft.consensus import messages as core_messages
from lograft.consensus.types import ReplicaKey, Voter, VoterSet
from lograft.model.seams import Address
from lograft.model.types import NO_NODE, NO_OFFSET, Epoch, NodeId, Offset
from lograft.wire.message import Message

#: Appends that wait for their commit; more are refused: the disk cannot keep up.
WAITERS_MAX: Final = 100_000
#: Requests of other nodes that wait for their answers.
ASKED_MAX: Final = 10_000
#: How long a stopping leader waits for the others to hear of it.
HAND_OVER_MS_MAX: Final = 1_000
#: An observer that was silent for so long is no observer any more.
OBSERVER_MS_MAX: Final = 300_000
#: Above all timeouts of the core: an answer that it has dropped must not be waited for for ever.
ANSWER_MS_MAX: Final = 60_000


class ReplicaView(NamedTuple):
    """Another replica as the leader sees it, or the leader itself."""

    key: ReplicaKey
    end_offset: Offset
    #: Wall clock; -1: never in this epoch.
    heard_ms: int
    caught_up_ms: int
    is_voter: bool


class RaftDriver(RaftEngine):
    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def add_listener(self, listener: CommitListener) -> None:
        assert self._task is None, "a listener that comes late has missed something"
        self._listeners.append(listener)

    def add_snapshot_listener(self, listener: Callable[[Snapshot], None]) -> None:
        """Hears of a snapshot that stands for batches which were never delivered."""
        self._snapshot_listeners.append(listener)

    def add_leader_listener(self, listener: Callable[[Epoch], None]) -> None:
        self._leader_listeners.append(listener)

    def add_unleader_listener(self, listener: Callable[[Epoch], None]) -> None:
        """Hears the epoch that this node led until now."""
        self._unleader_listeners.append(listener)

    def start(self) -> None:
        """Delivers the snapshot at once; the rest follows in the background."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and snapshot.id.end_offset > 0:
            last = Offset(snapshot.id.end_offset - 1)
            for listener in self._listeners:
                listener(last, snapshot.id.epoch, snapshot.records)
        self._task = self._runtime.spawn(self._run(), name="metadata quorum")
        self._tell(self.core.start)
        # What a restart finds in the log may be in the page cache only.
        self._wake.set()

    async def wait_ready(self) -> None:
        """Until this node knows what is committed, and all of that has been delivered: it leads, or
        it has caught up with a leader."""
        await self._ready.wait()

    async def resign(self) -> None:
        """A leader with others beside it hands over to them. Returns when they know, or soon. What
        was decided is committed and answered first; nothing more is decided."""
        if self.core.leadership is None or len(self.core.voters.voters) < 2:
            return
        self._is_leaving = True
        try:
            async with asyncio.timeout(HAND_OVER_MS_MAX / 1000):
                while self._waiters:
                    await asyncio.wait([self._waiters[-1][1]])
        except TimeoutError:
            pass
        self._is_leaving = False
        if self.core.leadership is not None:
            self._tell(self.core.resign)
        try:
            async with asyncio.timeout(HAND_OVER_MS_MAX / 1000):
                await self._network.drain()
        except TimeoutError:
            pass

    async def stop(self) -> None:
        """Everything appended becomes durable; blocks a worker, not the loop."""
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
        for asked in self._asked.values():
            if not asked.future.done():
                asked.future.set_exception(NotController("this node is stopping"))

    # ── what others ask ──────────────────────────────────────────────────────────────────────

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
    def me(self) -> ReplicaKey:
        return self.core.me

    @property
    def high_watermark(self) -> Offset:
        return self.core.high_watermark

    @property
    def voters(self) -> VoterSet:
        """The newest set in the log, committed or not: it is the one that counts."""
        return self.core.voters

    def leader_endpoint(self) -> Address | None:
        """Where the active controller's listener is; None: nobody leads, as far as is known."""
        leader = self.core.leader
        if leader == NO_NODE:
            return None
        if leader == self.core.me.node_id and self.endpoints:
            return Address(self.endpoints[0].host, self.endpoints[0].port)
        return self._network.address_of(leader, self.core.voters)

    def learn(self, node_id: NodeId, address: Address) -> None:
        """Another node said where it is."""
        if node_id != self.core.me.node_id:
            self._network.learn({node_id: address})

    def describe_me(self) -> Voter:
        """This controller as the set of the voters is to name it."""
        return Voter(self.core.me, self.endpoints)

    def replicas(self) -> list[ReplicaView]:
        """Everybody the leader knows of, itself included; nothing on the others."""
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
        for each in leadership.replicas():
            is_gone = each.heard_ms + OBSERVER_MS_MAX < clock.mono_ms()
            if each.key.node_id < 0 or each.durable == NO_OFFSET:
                continue
            if is_gone and not voters.has(each.key):
                continue
            caught_up_ms = -1 if each.caught_up_ms < 0 else each.caught_up_ms + back_ms
            found[each.key] = ReplicaView(
                each.key, each.durable, each.heard_ms + back_ms, caught_up_ms, voters.has(each.key)
            )
        mine = me if own is None or not voters.has(me) else own.key
        end = self.core.log_end.offset
        found[mine] = ReplicaView(mine, end, wall_ms, wall_ms, voters.has(me))
        return list(found.values())

    async def ask(
        self, request: core_messages.Request, *, bytes_max: int = 0
    ) -> core_messages.Response:
        """Another node's request, and the core's answer to it, with at most so many bytes of
        records or of a snapshot."""
        if self._failure is not None or self._is_stopped or len(self._asked) >= ASKED_MAX:
            raise NotController("this node takes no part in the quorum now")
        self._asked_last += 1
        number = self._asked_last
        future: asyncio.Future[core_messages.Response] = asyncio.get_running_loop().create_future()
        self._asked[number] = Asked(future, bytes_max)
        try:
            self._tell(partial(self.core.step, replace(request, request_id=number)))
            async with asyncio.timeout(ANSWER_MS_MAX / 1000):
                return await future
        except TimeoutError:
            raise NotController("this node has no answer") from None
        finally:
            del self._asked[number]

    # ── appending ────────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[Message]) -> Offset:
        """Writes the records as one batch, all or none; returns the offset of the last one. They
        count once `wait_committed` has returned."""
        self._check_leader()
        if self._is_leaving:
            raise NotController(f"node {self.core.me.node_id} hands the metadata quorum over")
        assert records, "an empty batch has no offset"
        if len(self._waiters) >= WAITERS_MAX:
            raise NotController("too many decisions wait for the disk of the metadata log")
        base = self.log.end_offset
        now_ms = self._runtime.clock.wall_ms()
        data = records_batch(records, base_offset=base, epoch=self.epoch, now_ms=now_ms)
        last = self._append(data, tuple(records), (), now_ms)
        self._settle()
        return last

    async def wait_committed(self, offset: Offset) -> None:
        """Raises NotController if this node stops leading before."""
        if offset < self.core.high_watermark:
            return
        self._check_leader()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, future))
        await future

    async def wait_durable(self, end: Offset) -> None:
        """Until the own log is on disk up to `end`."""
        while self.log.durable_offset < end:
            self._flushed.clear()
            self._wake.set()
            await self._flushed.wait()

    def _check_leader(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.core.is_leader:
            raise NotController(f"node {self.core.me.node_id} does not lead the metadata quorum")

    # ── snapshots of this node's own ─────────────────────────────────────────────────────────

    def on_snapshot(self, snapshot_id: SnapshotId, size_bytes: int) -> None:
        """One was written, of what is delivered and on disk."""
        if self.snapshot_id is None or snapshot_id > self.snapshot_id:
            self.snapshot_id = snapshot_id
        self._tell(partial(self.core.on_snapshot, snapshot_id, size_bytes))

    def on_snapshots_kept(self, kept: Sequence[SnapshotId]) -> None:
        """The others were deleted; the log begins with the oldest one that is left, or before."""
        for known in list(self.core.snapshots):
            if SnapshotId(*known) not in kept and known != self.core.log.snapshot:
                self.core.on_snapshot_deleted(known)
        log = self.core.log
        if kept and log.snapshot is not None and kept[0] <= log.snapshot:
            start = kept[0].end_offset
            if log.start.offset < start <= log.end.offset:
                self.core.on_log_start(kept[0])

    def statistics(self) -> dict[str, int | str]:
        return {
            **self.core.statistics(),
            **self._network.statistics(),
            "log_start_offset": self.log.log_start_offset,
            "uncommitted_batches": len(self._pending),
            "waiters": len(self._waiters),
        }
