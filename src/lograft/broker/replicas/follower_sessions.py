"""Fetch sessions of followers, on the leader.

The problem. Two brokers may share thousands of partitions, most of them idle. A follower that sent
all of them in every fetch, and a leader that checked each of them, would use a processor for
nothing. At the same time the fetches carry everything that replication depends on: a fetch offset
acknowledges records, a poll proves that a replica is alive, and a response delivers high
watermarks. So the leader must do work only for partitions with a change, and must not miss one.

The rule. A session (KIP-227) has an `Entry` with the last fetch of each partition. A request
contains only partitions whose fetch has changed, and a response only those with something new.
A change of a partition notifies the sessions that watch it (`Partition.watchers`), which put the
entry on a list of due ones. A poll checks the due entries and nothing else. Four rules apply in a
session:

- A fetch is passed to the leader's role once, when it arrives: that may commit records. A poll that
  does not repeat the fetch must not pass it again, since its offset is no news.
- A partition for which records or an error were sent is not included again until the follower has
  sent a new fetch for it (`awaits_fetch`). The follower continues to poll while it appends and
  flushes these records, and would otherwise receive the same bytes again with each poll.
- A delayed poll is completed as soon as the follower sends its next request. A connection serves
  its requests in order, so an older poll that waits for data would delay a request with new
  offsets, and with it the acknowledgements that depend on them.
- A follower that polls without a new fetch after it was sent records is alive, with a slow disk.
  The role learns only that (`on_follower_alive`): nothing is committed, but a raft leader keeps its
  majority. A follower that is caught up is reported as polling (`on_follower_poll`), which keeps it
  in the ISR. Both are reported for all entries at a fixed interval, not with each poll.

Why no change is lost. A change of the partition (append, new log start, new role) makes its entry
due, and the entry stays due until a poll has checked it. An entry is bound to the partition object
and to the leader role that has checked its fetch. If either was replaced, because the topic was
created again or the leader changed, the next poll passes the fetch to the new role, or returns its
error. New high watermarks alone do not complete a poll, but are added to the next response, unless
consumers may read from followers.

Sequence errors are harmless. A request must carry the expected session epoch. Otherwise the
follower starts with a full fetch, which contains all its partitions and offsets. Sessions of
consumers are in `fetch_sessions.py` and cannot evict those of followers.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol
from uuid import UUID

from lograft.broker.errors import FetchSessionNotFound, InvalidFetchSessionEpoch
from lograft.broker.partitions.fetch_sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    EPOCH_MAX,
    NO_SESSION,
    RequestedPartition,
    requested_partitions,
)
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.partition_table import PartitionTable
from lograft.broker.partitions.replication_throttle import (
    PAUSE_MS,
    ReplicationThrottle,
    is_throttled,
)
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Gauge, Sample
from lograft.model.seams import Randomness
from lograft.model.types import NO_OFFSET, BrokerEpoch, Epoch, NodeId, Offset
from lograft.replication.roles import LeaderRole
from lograft.replication.types import NO_EPOCH_END, EpochEnd, FollowerFetch
from lograft.wire.messages.fetch import EpochEndOffset, FetchRequest, PartitionData

#: Maximum number of sessions per follower: one for each fetch stream, and abandoned ones.
SESSIONS_PER_NODE_MAX: Final = 8
#: Interval at which the roles of idle partitions learn that their follower is alive.
SWEEP_MS: Final = 500
#: High watermark of a follower whose version lacks the field (below 18).
NO_WATERMARK_SENT: Final = 2**63 - 1

Key = tuple[str | UUID, int]
Results = list[tuple[RequestedPartition, PartitionData]]
MissingError = Callable[[RequestedPartition], LograftError]
CodeOf = Callable[[LograftError], ErrorCode]

SESSIONS: Final = Gauge(
    "lograft_follower_sessions",
    "Fetch sessions of brokers that follow partitions led by this broker.",
)
SESSION_PARTITIONS: Final = Gauge(
    "lograft_follower_session_partitions", "Partitions of all fetch sessions of followers."
)


class Entry:
    """A partition of a session: its last fetch, and the values last sent to the follower."""

    __slots__ = (
        "awaits_fetch",
        "is_accepted",
        "leader",
        "partition",
        "requested",
        "sent_high_watermark",
        "sent_log_start",
    )

    def __init__(self, requested: RequestedPartition) -> None:
        self.partition: Partition | None = None
        self.sent_log_start = NO_OFFSET
        self.sent_high_watermark = NO_OFFSET
        self.set_fetch(requested)

    def set_fetch(self, requested: RequestedPartition) -> None:
        self.requested = requested
        #: The role that has checked this fetch.
        self.leader: LeaderRole | None = None
        #: Whether that role accepted the fetch.
        self.is_accepted = False
        #: Whether records or an error were sent, so that the follower must send a new fetch.
        self.awaits_fetch = False
        known = requested.fetch.high_watermark
        if known != NO_WATERMARK_SENT:
            self.sent_high_watermark = Offset(known)
        self.sent_log_start = Offset(max(self.sent_log_start, requested.fetch.log_start_offset))


class Poll:
    """One request: its limits, and the results collected for its response."""

    __slots__ = ("broker_epoch", "bytes_left", "bytes_read", "is_urgent", "node_id", "results")

    def __init__(self, node_id: NodeId, broker_epoch: BrokerEpoch, *, bytes_max: int) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.results: Results = []
        self.bytes_left = bytes_max
        self.bytes_read = 0
        #: There is an error, a divergence or another update that should not wait for min_bytes.
        self.is_urgent = False


class DelayedPoll(Protocol):
    def wake(self) -> None:
        """Checks the session again in the next iteration of the event loop."""


class FollowerSession:
    """The fetch session of one fetch stream of a follower (a `partition.LogWatcher`)."""

    def __init__(
        self,
        session_id: int,
        node_id: NodeId,
        *,
        table: PartitionTable,
        by_id: bool,
        missing_error: MissingError,
        code_of: CodeOf,
        throttle: ReplicationThrottle,
    ) -> None:
        self.session_id = session_id
        self.node_id = node_id
        #: Session epoch expected in the next request.
        self.epoch = 1
        self._table = table
        self._by_id = by_id
        self._why_missing = missing_error
        self._code_of = code_of
        self._throttle = throttle
        self._entries: dict[Key, Entry] = {}
        #: Entries that the next poll must check, in this order.
        self._due: dict[Key, Entry] = {}
        #: Entries with a new high watermark, which is added to the next response.
        self._watermarks: dict[Key, Entry] = {}
        #: Throttled entries with their timers.
        self._throttled: dict[Key, asyncio.TimerHandle] = {}
        #: The delayed poll of this session, to be woken once.
        self._delayed: DelayedPoll | None = None
        self._swept_ms = 0
        #: Whether new high watermarks are sent immediately, since consumers may read from
        #: followers.
        self.sends_watermarks_at_once = False

    def __len__(self) -> int:
        return len(self._entries)

    # Requests of the follower.

    def update(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            topic: str | UUID = forgotten.topic_id if self._by_id else forgotten.topic
            for index in forgotten.partitions:
                self._drop((topic, index))
        for requested in requested_partitions(request):
            key = (
                requested.topic_id if self._by_id else requested.topic,
                requested.fetch.partition,
            )
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry(requested)
            else:
                entry.set_fetch(requested)
            self._due[key] = entry

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        self._due.pop(key, None)
        self._watermarks.pop(key, None)
        timer = self._throttled.pop(key, None)
        if timer is not None:
            timer.cancel()
        if entry is not None and entry.partition is not None:
            entry.partition.watchers.pop(self, None)

    def close(self) -> None:
        for key in list(self._entries):
            self._drop(key)
        self.wake_delayed()

    # Notifications of partitions.

    def on_moved(self, partition: Partition) -> None:
        key = self._key_of(partition)
        entry = self._entries.get(key)
        if entry is not None:
            self._due[key] = entry
            self.wake_delayed()

    def on_committed(self, partition: Partition) -> None:
        key = self._key_of(partition)
        entry = self._entries.get(key)
        if entry is not None:
            self._watermarks[key] = entry
            if self.sends_watermarks_at_once:
                self.wake_delayed()

    def _key_of(self, partition: Partition) -> Key:
        return (partition.topic_id if self._by_id else partition.topic), partition.index

    # Responses.

    def wake_delayed(self) -> None:
        """Wakes the delayed poll, if any."""
        delayed, self._delayed = self._delayed, None
        if delayed is not None:
            delayed.wake()

    def delay(self, poll: "DelayedPoll") -> None:
        """Registers a poll to be woken by the next change."""
        if self._delayed is not poll:
            self.wake_delayed()
            self._delayed = poll
        if self._due:
            # An entry became due after the poll's last check.
            self.wake_delayed()

    def remove_delayed(self, poll: "DelayedPoll") -> None:
        if self._delayed is poll:
            self._delayed = None

    def collect(self, poll: Poll, *, now_ms: int) -> None:
        """Checks the due entries and adds their results to the poll."""
        due, self._due = self._due, {}
        for key, entry in due.items():
            if self._entries.get(key) is not entry:
                continue
            try:
                data = self._check_entry(key, entry, poll, now_ms)
            except LograftError as error:
                data = None
                if not entry.awaits_fetch or entry.is_accepted:
                    # Also informs a follower with a slow disk that this is no longer its leader.
                    entry.is_accepted = False
                    entry.awaits_fetch = True
                    poll.is_urgent = True
                    data = error_data(entry.requested, self._code_of(error))
            if data is not None:
                poll.results.append((entry.requested, data))
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._sweep(poll, now_ms)

    def collect_watermarks(self, poll: Poll) -> None:
        """Adds new high watermarks of partitions without another result; called last."""
        committed, self._watermarks = self._watermarks, {}
        included = {id(requested) for requested, _ in poll.results}
        for entry in committed.values():
            leader = entry.leader
            if leader is None or entry.partition is None or entry.partition.leader is not leader:
                continue
            if (
                id(entry.requested) in included
                or leader.high_watermark <= entry.sent_high_watermark
            ):
                continue
            poll.results.append((entry.requested, self._build_data(entry, entry.partition, leader)))

    @property
    def has_urgent_watermarks(self) -> bool:
        """Whether new high watermarks alone are a reason to respond now."""
        return self.sends_watermarks_at_once and bool(self._watermarks)

    def _check_entry(self, key: Key, entry: Entry, poll: Poll, now_ms: int) -> PartitionData | None:
        """Returns the data to send for a due entry, if any."""
        partition = self._bind(key, entry)
        fetch = entry.requested.fetch
        if entry.awaits_fetch and entry.leader is partition.leader:
            return None
        partition.check_epoch(fetch.current_leader_epoch)
        log, leader = partition.leader_log(), partition.leader
        assert leader is not None
        data = None
        if entry.leader is not leader:
            # A new fetch, or one that is older than this leadership.
            data = self._check_fetch(entry, partition, leader, poll, now_ms)
            if data is not None:
                return data
        has_update = log.log_start_offset != entry.sent_log_start
        if fetch.fetch_offset < log.end_offset:
            if poll.bytes_left <= 0 and poll.bytes_read:
                self._defer(key, entry, poll)
                return None
            throttled = self._is_throttled(partition)
            if throttled and self._throttle.is_exceeded(now_ms=now_ms):
                self._defer_throttled(key)
                return None
            part = partition.read(
                Offset(fetch.fetch_offset),
                bytes_max=min(fetch.partition_max_bytes, poll.bytes_left),
                bound=log.end_offset,
                at_least_one=not poll.bytes_read,
            )
            if part is None:
                self._defer(key, entry, poll)
                return None
            poll.bytes_read += part.size
            partition.traffic.replication_bytes_out += part.size
            poll.bytes_left -= part.size
            if throttled:
                self._throttle.record(part.size, now_ms=now_ms)
            entry.awaits_fetch = True
            data = self._build_data(entry, partition, leader)
            data.records = part
            return data
        if has_update:
            poll.is_urgent = True
            return self._build_data(entry, partition, leader)
        return None

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the throttle of reassignments applies to the follower."""
        replicas = partition.config.leader_replication_throttled_replicas
        return (
            bool(replicas)
            and is_throttled(replicas, partition, partition.me)
            and self.node_id not in partition.assignment.isr
        )

    def _defer(self, key: Key, entry: Entry, poll: Poll) -> None:
        """The response is full: the next one will check the entry."""
        self._due[key] = entry
        poll.is_urgent = True

    def _defer_throttled(self, key: Key) -> None:
        if key not in self._throttled:
            loop = asyncio.get_running_loop()
            self._throttled[key] = loop.call_later(PAUSE_MS / 1000, self._resume_throttled, key)

    def _resume_throttled(self, key: Key) -> None:
        self._throttled.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None:
            self._due[key] = entry
            self.wake_delayed()

    def _bind(self, key: Key, entry: Entry) -> Partition:
        requested = entry.requested
        if self._by_id:
            partition = self._table.get_by_id(requested.topic_id, requested.fetch.partition)
        else:
            partition = self._table.get(requested.topic, requested.fetch.partition)
        if partition is not entry.partition:
            if entry.partition is not None:
                entry.partition.watchers.pop(self, None)
            entry.partition, entry.leader = partition, None
            if partition is not None:
                partition.watchers[self] = None
        if partition is None:
            raise self._why_missing(requested)
        return partition

    def _check_fetch(
        self, entry: Entry, partition: Partition, leader: LeaderRole, poll: Poll, now_ms: int
    ) -> PartitionData | None:
        """Passes the fetch to the role. Returns the error or divergence; None if records can be
        sent."""
        fetch = entry.requested.fetch
        log = partition.leader_log()
        epoch_end = NO_EPOCH_END
        if fetch.last_fetched_epoch >= 0:
            epoch_end = EpochEnd(*log.epoch_end(fetch.last_fetched_epoch))
        verdict = leader.on_follower_fetch(
            FollowerFetch(
                poll.node_id,
                poll.broker_epoch,
                Epoch(fetch.current_leader_epoch),
                Offset(fetch.fetch_offset),
                Epoch(fetch.last_fetched_epoch),
                Offset(fetch.log_start_offset),
                Epoch(fetch.raft_life),
                fetch.replica_directory_id,
                fetch.moved_to_directory_id,
            ),
            log_start=log.log_start_offset,
            epoch_end=epoch_end,
            now_ms=now_ms,
        )
        partition.apply(verdict.effects)
        entry.leader = leader
        if verdict.error is not ErrorCode.NONE:
            entry.awaits_fetch = True
            poll.is_urgent = True
            return error_data(entry.requested, verdict.error)
        entry.is_accepted = True
        if verdict.diverging is not None:
            entry.awaits_fetch = True
            poll.is_urgent = True
            data = self._build_data(entry, partition, leader)
            data.diverging_epoch = EpochEndOffset(
                epoch=verdict.diverging.epoch, end_offset=verdict.diverging.end_offset
            )
            return data
        return None

    def _build_data(self, entry: Entry, partition: Partition, leader: LeaderRole) -> PartitionData:
        log = partition.leader_log()
        entry.sent_high_watermark = leader.high_watermark
        entry.sent_log_start = log.log_start_offset
        return PartitionData(
            partition_index=entry.requested.fetch.partition,
            high_watermark=leader.high_watermark,
            # Followers compute their own.
            last_stable_offset=NO_OFFSET,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _sweep(self, poll: Poll, now_ms: int) -> None:
        """Reports to the roles of all entries that the follower is alive."""
        for entry in self._entries.values():
            leader, partition = entry.leader, entry.partition
            if leader is not None and partition is not None and partition.leader is leader:
                if entry.awaits_fetch:
                    if entry.is_accepted:
                        leader.on_follower_alive(poll.node_id, now_ms=now_ms)
                    continue
                partition.apply(
                    leader.on_follower_poll(
                        poll.node_id, broker_epoch=poll.broker_epoch, now_ms=now_ms
                    )
                )


class FollowerSessions:
    def __init__(
        self,
        randomness: Randomness,
        *,
        table: PartitionTable,
        throttle: ReplicationThrottle,
        sends_watermarks_at_once: bool,
    ) -> None:
        self._randomness = randomness
        self._table = table
        self._throttle = throttle
        self._hurries_watermarks = sends_watermarks_at_once
        self._sessions: dict[int, FollowerSession] = {}

    def resume_or_open(
        self,
        request: FetchRequest,
        node_id: NodeId,
        *,
        by_id: bool,
        missing_error: MissingError,
        code_of: CodeOf,
    ) -> FollowerSession:
        """Returns the session that the request continues or opens, updated by the request. A
        session with the id NO_SESSION is for this request only, and the caller closes it. Raises
        FetchSessionNotFound and InvalidFetchSessionEpoch."""
        if request.session_epoch not in (EPOCH_INITIAL, EPOCH_FINAL):
            session = self._sessions.get(request.session_id)
            if session is None or session.node_id != node_id:
                raise FetchSessionNotFound(f"no fetch session {request.session_id}")
            if session.epoch != request.session_epoch:
                raise InvalidFetchSessionEpoch(
                    f"fetch session epoch {request.session_epoch}, expected {session.epoch}"
                )
            session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
            session.wake_delayed()
            self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        else:
            self.close(request.session_id)
            session_id = NO_SESSION
            if request.session_epoch == EPOCH_INITIAL:
                session_id = self._new_id()
            session = FollowerSession(
                session_id,
                node_id,
                table=self._table,
                by_id=by_id,
                missing_error=missing_error,
                code_of=code_of,
                throttle=self._throttle,
            )
            session.sends_watermarks_at_once = self._hurries_watermarks
            if session_id != NO_SESSION:
                self._evict_oldest(node_id)
                self._sessions[session_id] = session
        session.update(request)
        return session

    def _new_id(self) -> int:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.below(EPOCH_MAX) + 1
        return session_id

    def _evict_oldest(self, node_id: NodeId) -> None:
        """Closes the least recently used sessions of the follower if it has too many."""
        ids = [id_ for id_, session in self._sessions.items() if session.node_id == node_id]
        for session_id in ids[: max(0, len(ids) - SESSIONS_PER_NODE_MAX + 1)]:
            self.close(session_id)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def collect_samples(self) -> Iterator[Sample]:
        yield SESSIONS.sample(len(self._sessions))
        yield SESSION_PARTITIONS.sample(sum(map(len, self._sessions.values())))


def error_data(requested: RequestedPartition, code: int) -> PartitionData:
    return PartitionData(
        partition_index=requested.fetch.partition,
        error_code=code,
        high_watermark=NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
