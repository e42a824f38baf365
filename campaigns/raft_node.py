"""A driver of the Raft core for tests, whose log, disk and messages are plain lists.

The disk survives a power loss: the hard state, the log as of the last fsync, snapshots. Persisting
and flushing take time: they are started here and completed by the caller."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lograft.consensus.core import RaftCore
from lograft.consensus.messages import FetchResponse, FetchSnapshotResponse
from lograft.consensus.types import (
    Chance,
    Effects,
    HardState,
    LogEnd,
    LogSlice,
    RaftSettings,
    ReplicaKey,
    Send,
    SnapshotId,
    VoterSet,
)
from lograft.model.types import NO_EPOCH, Epoch, Offset

#: Few entries, so that followers need many fetches.
ENTRIES_PER_FETCH = 4
CHUNK_BYTES = 8


class Entry(NamedTuple):
    epoch: Epoch
    #: Value written by a client; 0 for entries of Raft itself.
    value: int
    voters: VoterSet | None = None


class Snapshot(NamedTuple):
    """A snapshot; the state is one number, a hash of the values of all entries below its end."""

    id: SnapshotId
    state: int
    voters: VoterSet

    @property
    def data(self) -> bytes:
        return f"{self.id.end_offset},{self.id.epoch},{self.state}".encode()


def apply(state: int, entry: Entry) -> int:
    return (state * 1_000_003 + entry.value * 31 + entry.epoch) & 0xFFFF_FFFF_FFFF


class Disk:
    """State that survives a power loss."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.start = LogEnd(NO_EPOCH, Offset(0))
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None


class RaftNode:
    def __init__(
        self,
        key: ReplicaKey,
        voters: VoterSet,
        *,
        settings: RaftSettings,
        chance: Chance,
        core_type: type[RaftCore] = RaftCore,
        trace: Callable[[str], None] | None = None,
        snapshot_of: Callable[[SnapshotId], Snapshot | None] = lambda _: None,
    ) -> None:
        self.key = key
        self._voters = voters
        self._settings = settings
        self._chance = chance
        self._core_type = core_type
        self._trace = trace
        #: Looks up a snapshot by ID; a real node reads its voters from its bytes.
        self._snapshot_of = snapshot_of
        self.disk = Disk()
        self.lives = 0
        self.installs = 0
        self.core: RaftCore | None = None
        self._cached = False
        # ── in memory ──
        self.start = self.disk.start
        self.entries: list[Entry] = []
        self.state = 0
        self.applied = 0
        self.snapshot: Snapshot | None = None
        self.persisting: HardState | None = None
        #: End offset of the flush in progress, or None.
        self.flushing: int | None = None
        #: Snapshot that is being installed, or None.
        self.installing: SnapshotId | None = None
        self.outbox: list[Send] = []
        self.chunks = b""
        #: Effects since the last check.
        self.effects: list[Effects] = []

    @property
    def end(self) -> int:
        return self.start.offset + len(self.entries)

    def entry_at(self, offset: int) -> Entry:
        return self.entries[offset - self.start.offset]

    # ── lifecycle ────────────────────────────────────────────────────────────────────────────

    def boot(self, now_ms: int) -> None:
        disk = self.disk
        self.lives += 1
        if not self._cached:
            self.start = disk.start
            self.entries = list(disk.entries)
        self._cached = False
        self.snapshot = disk.snapshot
        self.state = 0 if disk.snapshot is None else disk.snapshot.state
        self.applied = 0 if disk.snapshot is None else disk.snapshot.id.end_offset
        self.persisting = self.flushing = self.installing = None
        self.outbox, self.chunks = [], b""
        slice_ = self._slice(self.start.offset, self.end)
        snapshot = disk.snapshot
        self.core = self._core_type(
            self.key,
            self._voters if snapshot is None else snapshot.voters,
            hard_state=disk.hard_state,
            log_end=LogEnd(
                self.entries[-1].epoch if self.entries else self.start.epoch, Offset(self.end)
            ),
            settings=self._settings,
            chance=self._chance,
            epochs=slice_.epochs,
            voter_history=[
                (offset, voters)
                for offset, voters in slice_.voters
                if snapshot is None or offset >= snapshot.id.end_offset
            ],
            log_start=self.start,
            snapshot=None if snapshot is None else snapshot.id,
            snapshot_size_bytes=0 if snapshot is None else len(snapshot.data),
            first_request_id=self.lives * 1_000_000,
            trace=self._trace,
        )
        self.flushing = self.end
        self.do(self.core.start(now_ms), now_ms)

    def crash(self, *, entries_kept: int = 0, persist_done: bool = False) -> None:
        """Loses power. A part of the entries written since the last fsync may survive, and so may a
        hard state that is being persisted."""
        disk = self.disk
        if persist_done and self.persisting is not None:
            disk.hard_state = self.persisting
        durable = len(disk.entries)
        if self.start == disk.start and self.entries[:durable] == disk.entries:
            disk.entries = self.entries[: durable + entries_kept]
        self.core = None

    def kill(self) -> None:
        """Kills the process, but not the machine: written entries stay in the page cache, and may
        still be lost later."""
        self._cached = True
        self.core = None

    # ── effects ──────────────────────────────────────────────────────────────────────────────

    def do(self, effects: Effects, now_ms: int) -> None:
        self.effects.append(effects)
        if effects.persist is not None:
            assert self.persisting is None
            self.persisting = effects.persist
        if effects.truncate is not None:
            self._truncate(effects.truncate)
        if effects.append is not None:
            data = effects.append.data
            assert isinstance(data, tuple)
            self.entries.extend(data)
            self._flush()
        if effects.chunk is not None:
            assert effects.chunk.position in (0, len(self.chunks))
            if effects.chunk.position == 0:
                self.chunks = b""
            self.chunks += effects.chunk.data
        self.outbox += [self._fill(send) for send in effects.send]
        if effects.committed is not None:
            self._apply(effects.committed)
        if effects.install is not None:
            self.installing = effects.install
        if effects.lead is not None:
            self.append(0, now_ms)
        if effects.append_voters is not None:
            self.append(0, now_ms, voters=effects.append_voters)

    def append(self, value: int, now_ms: int, voters: VoterSet | None = None) -> int:
        """Appends an entry as leader and returns its offset."""
        assert self.core is not None
        self.entries.append(Entry(self.core.epoch, value, voters))
        self._flush()
        self.do(self.core.on_appended(Offset(self.end), now_ms, voters=voters), now_ms)
        return self.end - 1

    def complete_persist(self, now_ms: int) -> None:
        assert self.core is not None
        assert self.persisting is not None
        self.disk.hard_state, self.persisting = self.persisting, None
        self.do(self.core.on_persisted(now_ms), now_ms)

    def complete_flush(self, now_ms: int) -> None:
        """Completes the flush in progress, and starts the next one if there are more entries."""
        assert self.core is not None
        assert self.flushing is not None
        upto, self.flushing = self.flushing, None
        self.disk.start = self.start
        self.disk.entries = self.entries[: upto - self.start.offset]
        if upto < self.end:
            self.flushing = self.end
        self.do(self.core.on_durable(Offset(upto), now_ms), now_ms)

    def take_snapshot(self, now_ms: int, *, keep: bool = False) -> Snapshot | None:
        """Takes a snapshot of the applied state, and deletes the log below it unless `keep` is
        set."""
        assert self.core is not None
        if self.applied <= self.start.offset or self.applied > self.core.log.durable:
            return None
        end = self.applied
        snapshot = Snapshot(
            SnapshotId(Offset(end), self.entry_at(end - 1).epoch),
            self.state,
            self.core.log.voters_at(Offset(end)),
        )
        if self.snapshot is not None and self.snapshot.id >= snapshot.id:
            return None
        self.snapshot = self.disk.snapshot = snapshot
        self.do(self.core.on_snapshot(snapshot.id, len(snapshot.data), now_ms), now_ms)
        # A log can start only at the end of a snapshot.
        durable = self.disk.entries
        is_durable = self.start == self.disk.start and self.entries[: len(durable)] == durable
        if not keep and is_durable and self.start.offset + len(durable) >= end:
            self._delete_below(snapshot.id)
            self.core.on_log_start(snapshot.id)
        return snapshot

    def _delete_below(self, snapshot: SnapshotId) -> None:
        count = snapshot.end_offset - self.start.offset
        self.start = LogEnd(snapshot.epoch, snapshot.end_offset)
        del self.entries[:count]
        disk = self.disk
        del disk.entries[: snapshot.end_offset - disk.start.offset]
        disk.start = self.start

    def _truncate(self, to: int) -> None:
        del self.entries[to - self.start.offset :]
        if self.flushing is not None:
            self.flushing = min(self.flushing, to)

    def _flush(self) -> None:
        if self.flushing is None:
            self.flushing = self.end

    def complete_install(self, now_ms: int) -> None:
        """Replaces the log by the complete snapshot."""
        assert self.core is not None
        assert self.installing is not None
        id_, self.installing = self.installing, None
        snapshot = self._snapshot_of(id_)
        assert snapshot is not None
        assert self.chunks == snapshot.data, (self.chunks, snapshot)
        self.snapshot = self.disk.snapshot = snapshot
        self.start = self.disk.start = LogEnd(id_.epoch, id_.end_offset)
        self.entries, self.disk.entries = [], []
        self.flushing = None
        self.installs += 1
        self.applied, self.state = id_.end_offset, snapshot.state
        effects = self.core.on_installed(
            id_, size_bytes=len(snapshot.data), voters=snapshot.voters, now_ms=now_ms
        )
        self.do(effects, now_ms)

    def _apply(self, committed: int) -> None:
        for offset in range(self.applied, committed):
            self.state = apply(self.state, self.entry_at(offset))
        self.applied = max(self.applied, committed)

    # ── messages ─────────────────────────────────────────────────────────────────────────────

    def _fill(self, send: Send) -> Send:
        message = send.message
        if isinstance(message, FetchResponse) and message.read_from >= 0:
            end = min(message.read_from + ENTRIES_PER_FETCH, self.end)
            entries = self._slice(message.read_from, end)
            return Send(send.to, replace(message, read_from=Offset(-1), entries=entries))
        if isinstance(message, FetchSnapshotResponse) and message.snapshot is not None:
            snapshot = self._snapshot_of(message.snapshot)
            assert snapshot is not None
            data = snapshot.data[message.position : message.position + CHUNK_BYTES]
            return Send(send.to, replace(message, data=data))
        return send

    def _slice(self, base: int, end: int) -> LogSlice:
        entries = tuple(self.entries[base - self.start.offset : end - self.start.offset])
        epochs: list[tuple[Epoch, Offset]] = []
        voters: list[tuple[Offset, VoterSet]] = []
        for offset, entry in enumerate(entries, start=base):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, Offset(offset)))
            if entry.voters is not None:
                voters.append((Offset(offset), entry.voters))
        return LogSlice(Offset(base), Offset(end), tuple(epochs), tuple(voters), entries)
