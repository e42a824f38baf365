"""The fetches of followers, as their leader answers them.

A session holds what each follower has asked for and is told by the partitions when something has
changed (`Partition.watchers`): a poll looks at what is due, not at everything it is about. Within
a session

- a fetch is shown to the leader's role once, when it comes: that may commit records;
- what was answered with records or an error is not answered again until the follower has asked
  anew, or its next poll would bring the same bytes a second time;
- a parked poll is answered at once when the follower sends its next request;
- a follower that was sent records and polls without asking anew is alive: its disk is slow.

Sessions of consumers are in `fetch_sessions`; a follower's cannot be evicted by them.
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
    Wanted,
    wanted_of,
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

#: Of each follower: one for each of its streams, and those that it has forgotten about.
SESSIONS_PER_NODE_MAX: Final = 8
#: How often a session's quiet partitions are told that their follower is there.
SWEEP_MS: Final = 500
#: What a follower says that does not know of the field (below version 18).
NO_WATERMARK_SENT: Final = 2**63 - 1

Key = tuple[str | UUID, int]
Answers = list[tuple[Wanted, PartitionData]]
WhyMissing = Callable[[Wanted], LograftError]
CodeOf = Callable[[LograftError], ErrorCode]

SESSIONS: Final = Gauge(
    "lograft_follower_sessions", "Fetch sessions of brokers that follow partitions led here."
)
SESSION_PARTITIONS: Final = Gauge(
    "lograft_follower_session_partitions", "Partitions of all fetch sessions of followers."
)


class Entry:
    """One partition of a session."""

    __slots__ = (
        "is_accepted",
        "is_answered",
        "leader",
        "log_start_told",
        "partition",
        "wanted",
        "watermark_told",
    )

    def __init__(self, wanted: Wanted) -> None:
        self.partition: Partition | None = None
        self.log_start_told = NO_OFFSET
        self.watermark_told = NO_OFFSET
        self.ask(wanted)

    def ask(self, wanted: Wanted) -> None:
        self.wanted = wanted
        #: The role that has seen this fetch.
        self.leader: LeaderRole | None = None
        #: By that role: the follower follows it.
        self.is_accepted = False
        #: With records or an error: the follower has to ask anew.
        self.is_answered = False
        known = wanted.asked.high_watermark
        if known != NO_WATERMARK_SENT:
            self.watermark_told = Offset(known)
        self.log_start_told = Offset(max(self.log_start_told, wanted.asked.log_start_offset))


class Poll:
    """One request: what may be answered, and what it has been answered with."""

    __slots__ = ("answers", "broker_epoch", "bytes_left", "bytes_read", "is_urgent", "node_id")

    def __init__(self, node_id: NodeId, broker_epoch: BrokerEpoch, *, bytes_max: int) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.answers: Answers = []
        self.bytes_left = bytes_max
        self.bytes_read = 0
        #: An error, a cut, or news that should not wait for bytes.
        self.is_urgent = False


class ParkedFollower(Protocol):
    def wake(self) -> None:
        """There may be something to say: look, in the next turn of the loop."""


class FollowerSession:
    """A `partition.LogWatcher`."""

    def __init__(
        self,
        session_id: int,
        node_id: NodeId,
        *,
        table: PartitionTable,
        by_id: bool,
        why_missing: WhyMissing,
        code_of: CodeOf,
        throttle: ReplicationThrottle,
    ) -> None:
        self.session_id = session_id
        self.node_id = node_id
        #: What the next request must carry.
        self.epoch = 1
        self._table = table
        self._by_id = by_id
        self._why_missing = why_missing
        self._code_of = code_of
        self._throttle = throttle
        self._entries: dict[Key, Entry] = {}
        #: To be looked at by the next answer, in this order.
        self._due: dict[Key, Entry] = {}
        #: The watermark moved: told with the next answer, but no reason for one.
        self._watermarks: dict[Key, Entry] = {}
        #: Throttled: looked at again after a while.
        self._held_back: dict[Key, asyncio.TimerHandle] = {}
        #: To be woken once when there is something to say.
        self._parked: ParkedFollower | None = None
        self._swept_ms = 0
        #: Consumers read from followers: these should hear of commits at once.
        self.hurries_watermarks = False

    def __len__(self) -> int:
        return len(self._entries)

    # What the follower asks for.

    def update(self, request: FetchRequest) -> None:
        for forgotten in request.forgotten_topics_data:
            topic: str | UUID = forgotten.topic_id if self._by_id else forgotten.topic
            for index in forgotten.partitions:
                self._drop((topic, index))
        for wanted in wanted_of(request):
            key = (wanted.topic_id if self._by_id else wanted.topic, wanted.asked.partition)
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = Entry(wanted)
            else:
                entry.ask(wanted)
            self._due[key] = entry

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        self._due.pop(key, None)
        self._watermarks.pop(key, None)
        timer = self._held_back.pop(key, None)
        if timer is not None:
            timer.cancel()
        if entry is not None and entry.partition is not None:
            entry.partition.watchers.pop(self, None)

    def close(self) -> None:
        for key in list(self._entries):
            self._drop(key)
        self.interrupt()

    # What partitions tell.

    def on_moved(self, partition: Partition) -> None:
        key = self._key_of(partition)
        entry = self._entries.get(key)
        if entry is not None:
            self._due[key] = entry
            self.interrupt()

    def on_committed(self, partition: Partition) -> None:
        key = self._key_of(partition)
        entry = self._entries.get(key)
        if entry is not None:
            self._watermarks[key] = entry
            if self.hurries_watermarks:
                self.interrupt()

    def _key_of(self, partition: Partition) -> Key:
        return (partition.topic_id if self._by_id else partition.topic), partition.index

    # Answering.

    def interrupt(self) -> None:
        """Whoever is parked looks again."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.wake()

    def park(self, poll: "ParkedFollower") -> None:
        if self._parked is not poll:
            self.interrupt()
            self._parked = poll
        if self._due:
            # Something came between its look and now.
            self.interrupt()

    def leave(self, poll: "ParkedFollower") -> None:
        if self._parked is poll:
            self._parked = None

    def look(self, poll: Poll, *, now_ms: int) -> None:
        """Adds to the poll's answers what there is to say now."""
        due, self._due = self._due, {}
        for key, entry in due.items():
            if self._entries.get(key) is not entry:
                continue
            try:
                data = self._look_at(key, entry, poll, now_ms)
            except LograftError as error:
                data = None
                if not entry.is_answered or entry.is_accepted:
                    # Tells a follower whose disk is slow that its leader is not here any more.
                    entry.is_accepted = False
                    entry.is_answered = True
                    poll.is_urgent = True
                    data = refused(entry.wanted, self._code_of(error))
            if data is not None:
                poll.answers.append((entry.wanted, data))
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._sweep(poll, now_ms)

    def tell_watermarks(self, poll: Poll) -> None:
        """Last of all: those who have nothing else to say hear of commits."""
        told, self._watermarks = self._watermarks, {}
        answered = {id(wanted) for wanted, _ in poll.answers}
        for entry in told.values():
            leader = entry.leader
            if leader is None or entry.partition is None or entry.partition.leader is not leader:
                continue
            if id(entry.wanted) in answered or leader.high_watermark <= entry.watermark_told:
                continue
            poll.answers.append((entry.wanted, self._data(entry, entry.partition, leader)))

    @property
    def tells_at_once(self) -> bool:
        """Whether commits alone are a reason to answer now."""
        return self.hurries_watermarks and bool(self._watermarks)

    def _look_at(self, key: Key, entry: Entry, poll: Poll, now_ms: int) -> PartitionData | None:
        partition = self._bind(key, entry)
        asked = entry.wanted.asked
        if entry.is_answered and entry.leader is partition.leader:
            return None
        partition.check_epoch(asked.current_leader_epoch)
        log, leader = partition.leader_log(), partition.leader
        assert leader is not None
        data = None
        if entry.leader is not leader:
            # A new fetch, or one that was there before this leadership.
            data = self._show(entry, partition, leader, poll, now_ms)
            if data is not None:
                return data
        is_news = log.log_start_offset != entry.log_start_told
        if asked.fetch_offset < log.end_offset:
            if poll.bytes_left <= 0 and poll.bytes_read:
                self._leave(key, entry, poll)
                return None
            throttled = self._is_throttled(partition)
            if throttled and self._throttle.is_exceeded(now_ms=now_ms):
                self._look_later(key)
                return None
            part = partition.read(
                Offset(asked.fetch_offset),
                bytes_max=min(asked.partition_max_bytes, poll.bytes_left),
                bound=log.end_offset,
                at_least_one=not poll.bytes_read,
            )
            if part is None:
                self._leave(key, entry, poll)
                return None
            poll.bytes_read += part.size
            poll.bytes_left -= part.size
            if throttled:
                self._throttle.record(part.size, now_ms=now_ms)
            entry.is_answered = True
            data = self._data(entry, partition, leader)
            data.records = part
            return data
        if is_news:
            poll.is_urgent = True
            return self._data(entry, partition, leader)
        return None

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether the limit on reassignments holds for the follower."""
        named = partition.config.leader_replication_throttled_replicas
        return (
            bool(named)
            and is_throttled(named, partition, partition.me)
            and self.node_id not in partition.assignment.isr
        )

    def _leave(self, key: Key, entry: Entry, poll: Poll) -> None:
        """The answer is full: for the next one."""
        self._due[key] = entry
        poll.is_urgent = True

    def _look_later(self, key: Key) -> None:
        if key not in self._held_back:
            loop = asyncio.get_running_loop()
            self._held_back[key] = loop.call_later(PAUSE_MS / 1000, self._look_again, key)

    def _look_again(self, key: Key) -> None:
        self._held_back.pop(key, None)
        entry = self._entries.get(key)
        if entry is not None:
            self._due[key] = entry
            self.interrupt()

    def _bind(self, key: Key, entry: Entry) -> Partition:
        wanted = entry.wanted
        if self._by_id:
            partition = self._table.get_by_id(wanted.topic_id, wanted.asked.partition)
        else:
            partition = self._table.get(wanted.topic, wanted.asked.partition)
        if partition is not entry.partition:
            if entry.partition is not None:
                entry.partition.watchers.pop(self, None)
            entry.partition, entry.leader = partition, None
            if partition is not None:
                partition.watchers[self] = None
        if partition is None:
            raise self._why_missing(wanted)
        return partition

    def _show(
        self, entry: Entry, partition: Partition, leader: LeaderRole, poll: Poll, now_ms: int
    ) -> PartitionData | None:
        """The role says what it thinks of the fetch; None: it may have records."""
        asked = entry.wanted.asked
        log = partition.leader_log()
        epoch_end = NO_EPOCH_END
        if asked.last_fetched_epoch >= 0:
            epoch_end = EpochEnd(*log.epoch_end(asked.last_fetched_epoch))
        verdict = leader.on_follower_fetch(
            FollowerFetch(
                poll.node_id,
                poll.broker_epoch,
                Epoch(asked.current_leader_epoch),
                Offset(asked.fetch_offset),
                Epoch(asked.last_fetched_epoch),
                Offset(asked.log_start_offset),
                Epoch(asked.raft_life),
                asked.replica_directory_id,
                asked.moved_to_directory_id,
            ),
            log_start=log.log_start_offset,
            epoch_end=epoch_end,
            now_ms=now_ms,
        )
        partition.apply(verdict.effects)
        entry.leader = leader
        if verdict.error is not ErrorCode.NONE:
            entry.is_answered = True
            poll.is_urgent = True
            return refused(entry.wanted, verdict.error)
        entry.is_accepted = True
        if verdict.diverging is not None:
            entry.is_answered = True
            poll.is_urgent = True
            data = self._data(entry, partition, leader)
            data.diverging_epoch = EpochEndOffset(
                epoch=verdict.diverging.epoch, end_offset=verdict.diverging.end_offset
            )
            return data
        return None

    def _data(self, entry: Entry, partition: Partition, leader: LeaderRole) -> PartitionData:
        log = partition.leader_log()
        entry.watermark_told = leader.high_watermark
        entry.log_start_told = log.log_start_offset
        return PartitionData(
            partition_index=entry.wanted.asked.partition,
            high_watermark=leader.high_watermark,
            # Followers know their own.
            last_stable_offset=NO_OFFSET,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _sweep(self, poll: Poll, now_ms: int) -> None:
        for entry in self._entries.values():
            leader, partition = entry.leader, entry.partition
            if leader is not None and partition is not None and partition.leader is leader:
                if entry.is_answered:
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
        hurries_watermarks: bool,
    ) -> None:
        self._randomness = randomness
        self._table = table
        self._throttle = throttle
        self._hurries_watermarks = hurries_watermarks
        self._sessions: dict[int, FollowerSession] = {}

    def of(
        self,
        request: FetchRequest,
        node_id: NodeId,
        *,
        by_id: bool,
        why_missing: WhyMissing,
        code_of: CodeOf,
    ) -> FollowerSession:
        """The session that the request continues or begins, updated by it; raises
        FetchSessionNotFound, InvalidFetchSessionEpoch. One with the id NO_SESSION is for this
        request only: the caller closes it."""
        if request.session_epoch not in (EPOCH_INITIAL, EPOCH_FINAL):
            session = self._sessions.get(request.session_id)
            if session is None or session.node_id != node_id:
                raise FetchSessionNotFound(f"no fetch session {request.session_id}")
            if session.epoch != request.session_epoch:
                raise InvalidFetchSessionEpoch(
                    f"fetch session epoch {request.session_epoch} where {session.epoch} is next"
                )
            session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
            session.interrupt()
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
                why_missing=why_missing,
                code_of=code_of,
                throttle=self._throttle,
            )
            session.hurries_watermarks = self._hurries_watermarks
            if session_id != NO_SESSION:
                self._make_room(node_id)
                self._sessions[session_id] = session
        session.update(request)
        return session

    def _new_id(self) -> int:
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._randomness.below(EPOCH_MAX) + 1
        return session_id

    def _make_room(self, node_id: NodeId) -> None:
        """The one that was not used for the longest time goes."""
        of_node = [number for number, one in self._sessions.items() if one.node_id == node_id]
        for number in of_node[: max(0, len(of_node) - SESSIONS_PER_NODE_MAX + 1)]:
            self.close(number)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def collect_samples(self) -> Iterator[Sample]:
        yield SESSIONS.sample(len(self._sessions))
        yield SESSION_PARTITIONS.sample(sum(map(len, self._sessions.values())))


def refused(wanted: Wanted, code: int) -> PartitionData:
    return PartitionData(
        partition_index=wanted.asked.partition,
        error_code=code,
        high_watermark=NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
