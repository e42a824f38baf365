"""The votes of all raft partitions in one log dir: an append-only file of entries with group
commit.

A vote, an epoch or the end of a raft life is valid only once it is on disk. Many partitions start
elections and vote at once when a node fails, so one fsync serves all entries that were added during
the previous one.

    raft-votes = entry*
    entry (64 bytes) = crc32c | kind | group | topic id | partition | epoch | leader | voted node |
                       voted directory | life

The last entry of a partition applies. A group is written only after the previous one is on disk, so
a power loss can damage only the last group: entries from the first damaged one on are truncated. If
one of them proves that a later group was written, the disk has lost votes, which is an error. The
file is rewritten when most of its entries are outdated.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from lograft.broker.errors import ReplicaNotMovable, VotesCorrupt
from lograft.consensus.types import HardState, ReplicaKey
from lograft.model.errors import DiskFailed, LograftError
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Disk, File, Runtime
from lograft.model.types import NO_NODE, Epoch, NodeId, TopicIdPartition
from lograft.storage.log_dirs import write_atomically

VOTES: Final = "raft-votes"
#: Number of outdated entries beyond which the file is rewritten.
OLD_ENTRIES_MAX: Final = 10_000

_CRC: Final = struct.Struct(">I")
_BODY: Final = struct.Struct(">B3xI16siiii16si")
ENTRY_SIZE: Final = _CRC.size + _BODY.size

PARTITIONS: Final = Gauge(
    "lograft_vote_journal_partitions", "Partitions whose votes the journals of this broker contain."
)
ENTRIES: Final = Gauge(
    "lograft_vote_journal_entries",
    "Entries appended to the vote journals since their last rewrite.",
)


class Kind(IntEnum):
    STATE = 1
    #: The partition was removed from this disk.
    FORGOTTEN = 2


class Entry(NamedTuple):
    key: TopicIdPartition
    #: None if the partition was removed.
    state: HardState | None


Callback = Callable[[HardState], None]


def order_of(state: HardState) -> tuple[int, int, bool, bool]:
    """Returns a sort key: of two states of a replica, the later one has the greater key. Lives and
    epochs increase, and within an epoch a vote precedes the leader."""
    return state.life, state.epoch, state.leader != NO_NODE, state.voted_for is not None


def encode(entry: Entry, group: int) -> bytes:
    state = entry.state or HardState()
    voted = state.voted_for or ReplicaKey(NO_NODE)
    body = _BODY.pack(
        Kind.FORGOTTEN if entry.state is None else Kind.STATE,
        group & 0xFFFFFFFF,
        entry.key.topic_id.bytes,
        entry.key.partition,
        state.epoch,
        state.leader,
        voted.node_id,
        voted.directory_id.bytes,
        state.life,
    )
    return _CRC.pack(crc32c(body)) + body


def decode(data: bytes) -> tuple[Entry, int] | None:
    """Returns the entry and its group; None if the bytes are not a valid entry."""
    body = data[_CRC.size :]
    if len(data) != ENTRY_SIZE or _CRC.unpack_from(data)[0] != crc32c(body):
        return None
    kind, group, topic_id, partition, epoch, leader, voted, directory, life = _BODY.unpack(body)
    key = TopicIdPartition(UUID(bytes=topic_id), partition)
    if kind == Kind.FORGOTTEN:
        return Entry(key, None), group
    vote = None if voted == NO_NODE else ReplicaKey(NodeId(voted), UUID(bytes=directory))
    return Entry(key, HardState(Epoch(epoch), NodeId(leader), vote, Epoch(life))), group


class VoteJournal:
    def __init__(
        self, runtime: Runtime, log_dir: str, *, on_failed: Callable[[DiskFailed], None]
    ) -> None:
        self._runtime = runtime
        self._disk: Disk = runtime.disk
        self._log_dir = log_dir
        self._path = f"{log_dir}/{VOTES}"
        self._on_failed = on_failed
        self._file: File | None = None
        #: States on disk.
        self._states: dict[TopicIdPartition, HardState] = {}
        self._entry_count = 0
        self._group = 0
        #: Writes for the next group; a newer state of a partition replaces its older one.
        self._waiting: dict[TopicIdPartition, tuple[HardState | None, Callback | None]] = {}
        self._wake = asyncio.Event()
        #: Pending calls of `store`.
        self._stores: list[asyncio.Future[None]] = []
        #: Reason why no more entries are written.
        self._ended: LograftError | None = None

    @property
    def lane(self) -> str:
        """A separate lane, so that votes do not wait behind fsyncs of data."""
        return f"{self._log_dir}#votes"

    # ── at startup ─────────────────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Loads the states from the file; blocks."""
        try:
            self._load()
        except OSError as error:
            raise DiskFailed(self._log_dir, error) from error

    def _load(self) -> None:
        if not self._disk.exists(self._path):
            return
        data = self._disk.read(self._path)
        end = 0
        while end < len(data):
            found = decode(data[end : end + ENTRY_SIZE])
            if found is None:
                break
            self._keep(found[0])
            self._group = found[1]
            end += ENTRY_SIZE
        self._check_tail(data, end)
        file = self._disk.open(self._path)
        if end < len(data):
            file.truncate(end)
        # The entries may be in the page cache only, but decisions depend on them from now on.
        file.fsync()
        self._file = file
        self._entry_count = end // ENTRY_SIZE

    def _check_tail(self, data: bytes, end: int) -> None:
        for position in range(end + ENTRY_SIZE, len(data), ENTRY_SIZE):
            found = decode(data[position : position + ENTRY_SIZE])
            if found is not None and found[1] > self._group + 1:
                # Voting again without the last vote could elect two leaders in one epoch.
                raise VotesCorrupt(
                    f"{self._path} is damaged at byte {end}, before entries that were written"
                    " later: this disk has lost votes; replace it, or empty the log dir so that"
                    " its replicas are copied again"
                )

    def _keep(self, entry: Entry) -> None:
        if entry.state is None:
            self._states.pop(entry.key, None)
        else:
            self._states[entry.key] = entry.state

    def state_of(self, key: TopicIdPartition) -> HardState:
        """Returns the state of a partition. One without an entry has never voted."""
        return self._states.get(key, HardState())

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """Partitions with an entry."""
        return list(self._states)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(self, key: TopicIdPartition, state: HardState, callback: Callback) -> None:
        """Calls `callback(state)` when the state is on disk, but not if a newer state of the
        partition replaces it before the write."""
        self._waiting[key] = (state, callback)
        self._wake.set()

    async def store(self, key: TopicIdPartition, state: HardState) -> None:
        """Returns when the state is on disk. Raises DiskFailed, or ReplicaNotMovable on
        shutdown."""
        if self._ended is not None:
            raise self._ended
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stores.append(stored)

        def on_stored(_: HardState) -> None:
            if not stored.done():
                stored.set_result(None)

        self.write(key, state, on_stored)
        try:
            await stored
        finally:
            self._stores.remove(stored)

    def stop(self) -> None:
        """Fails pending calls of `store`, whose task is cancelled."""
        self._end(ReplicaNotMovable("the node is shutting down"))

    def _end(self, reason: LograftError) -> None:
        self._ended = reason
        for stored in self._stores:
            if not stored.done():
                stored.set_exception(reason)

    def forget(self, key: TopicIdPartition) -> None:
        if key in self._states or key in self._waiting:
            self._waiting[key] = (None, None)
            self._wake.set()

    async def run(self) -> None:
        """Runs as a task of the node."""
        while self._ended is None:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            entries = [Entry(key, state) for key, (state, _) in waiting.items()]
            if not entries:
                continue
            try:
                job = partial(self._commit, entries)
                await self._runtime.workers.run(job, lane=self.lane)
            except DiskFailed as error:
                self._end(error)
                self._on_failed(error)
                return
            for entry in entries:
                self._keep(entry)
            for state, callback in waiting.values():
                if callback is not None and state is not None:
                    callback(state)

    def _commit(self, entries: list[Entry]) -> None:
        """Runs in a worker."""
        try:
            self._group += 1
            live = len(self._states) + len(entries)
            if self._file is None or self._entry_count > live + OLD_ENTRIES_MAX:
                self._rewrite(entries)
            else:
                self._file.append(b"".join(encode(entry, self._group) for entry in entries))
                self._file.fsync()
                self._entry_count += len(entries)
        except OSError as error:
            raise DiskFailed(self._log_dir, error) from error

    def _rewrite(self, entries: list[Entry]) -> None:
        states = dict(self._states)
        for entry in entries:
            if entry.state is None:
                states.pop(entry.key, None)
            else:
                states[entry.key] = entry.state
        data = b"".join(encode(Entry(*item), self._group) for item in states.items())
        write_atomically(self._disk, self._path, data)
        self._file = self._disk.open(self._path)
        self._entry_count = len(states)

    def collect_samples(self) -> Iterator[Sample]:
        yield PARTITIONS.sample(len(self._states))
        yield ENTRIES.sample(self._entry_count)
