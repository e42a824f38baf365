"""The state of a leader: progress of the other replicas, and contact with a majority."""

from collections.abc import Iterator

from lograft.consensus.log_view import LogView
from lograft.consensus.messages import FetchRequest
from lograft.consensus.types import RaftSettings, ReplicaKey, Voter, VoterSet
from lograft.consensus.voter_change import VoterChange
from lograft.model.types import NO_OFFSET, NodeId, Offset

#: Maximum number of tracked observers; beyond it, the one with the oldest contact is removed.
OBSERVERS_MAX = 1_000


class Progress:
    """Progress of one other replica."""

    __slots__ = ("caught_up_ms", "durable", "key", "last_contact_ms", "notified_ms")

    def __init__(self, key: ReplicaKey, now_ms: int) -> None:
        self.key = key
        #: The replica has the log on disk up to here: its highest fetch offset. Never decreases
        #: within an epoch: a log that once agreed with the leader's is not truncated again, and a
        #: delayed fetch carries no new information.
        self.durable = NO_OFFSET
        #: Time of its last request; initially the start of the leadership.
        self.last_contact_ms = now_ms
        #: Time at which it was last caught up.
        self.caught_up_ms = -1
        #: Time of the last BeginQuorumEpoch sent to it.
        self.notified_ms: int | None = None


class Leadership:
    """Exists as long as the replica leads its epoch."""

    __slots__ = (
        "_me",
        "_progress",
        "_renamed",
        "_settings",
        "_since_ms",
        "change",
        "descriptions",
        "epoch_start",
        "granting",
        "pending_fetches",
        "unflushed_since_ms",
    )

    def __init__(
        self, me: ReplicaKey, granting: tuple[NodeId, ...], settings: RaftSettings, now_ms: int
    ) -> None:
        self._me = me
        self._settings = settings
        self._since_ms = now_ms
        self.granting = granting
        #: Offset of the first record of the leader's epoch.
        self.epoch_start = NO_OFFSET
        self._progress: dict[ReplicaKey, Progress] = {}
        #: Previous keys of voters that were renamed in this epoch, which they use until they have
        #: fetched the new voter set.
        self._renamed: dict[ReplicaKey, ReplicaKey] = {}
        #: Delayed fetches by sender, each with its deadline.
        self.pending_fetches: dict[ReplicaKey, tuple[FetchRequest, int]] = {}
        self.change: VoterChange | None = None
        #: Descriptions that static voters sent of themselves. They send them to every new leader.
        self.descriptions: dict[NodeId, Voter] = {}
        #: Since when appended records wait for the local disk; None: all are flushed.
        self.unflushed_since_ms: int | None = None

    # ── other replicas ───────────────────────────────────────────────────────────────────────

    def progress_of(self, key: ReplicaKey, log: LogView, now_ms: int) -> Progress:
        """Returns the progress of a replica. A voter whose directory is unknown matches any
        directory."""
        key = self._renamed.get(key, key)
        voter = log.voters.find(key.node_id)
        slot = voter.key if voter is not None and log.voters.has(key) else key
        found = self._progress.get(slot)
        if found is None:
            found = self._progress[slot] = Progress(slot, max(self._since_ms, 0))
            self._forget_observers(log)
        return found

    def on_fetch(self, sender: ReplicaKey, offset: Offset, log: LogView, now_ms: int) -> None:
        """The sender's log up to the fetch offset is a prefix of ours and on its disk."""
        progress = self.progress_of(sender, log, now_ms)
        progress.last_contact_ms = now_ms
        progress.durable = max(progress.durable, offset)
        if progress.durable >= log.end.offset:
            progress.caught_up_ms = now_ms

    def on_directories_known(self, voters: VoterSet) -> None:
        """The static voters now have the directories of `voters`. Earlier fetches may have come
        from other directories, so their offsets count only from the next fetch on."""
        for voter in voters.voters:
            before = self._progress.pop(ReplicaKey(voter.key.node_id), None)
            if before is not None:
                progress = self._progress[voter.key] = Progress(voter.key, before.last_contact_ms)
                progress.notified_ms = before.notified_ms

    def rename(self, old: ReplicaKey, new: ReplicaKey) -> None:
        """Changes the key of a replica and keeps its progress."""
        if old.node_id == self._me.node_id:
            self._me = new
            return
        self._renamed.pop(new, None)
        for name, current in self._renamed.items():
            if current == old:
                self._renamed[name] = new
        self._renamed[old] = new
        progress = self._progress.pop(old, None)
        if progress is not None:
            progress.key = new
            self._progress[new] = progress

    def replicas(self) -> Iterator[Progress]:
        yield from self._progress.values()

    def voters_to_notify(self, log: LogView, now_ms: int) -> Iterator[ReplicaKey]:
        """Yields voters that are not fetching and so may not know the leader."""
        for voter in log.voters.others(self._me):
            progress = self.progress_of(voter.key, log, now_ms)
            if now_ms >= self._notification_due_ms(progress):
                progress.notified_ms = now_ms
                yield voter.key

    def _notification_due_ms(self, progress: Progress) -> int:
        if progress.notified_ms is None:
            return self._since_ms
        return (
            max(progress.notified_ms, progress.last_contact_ms) + self._settings.begin_interval_ms
        )

    def successors(self, log: LogView, preferred: NodeId | None) -> tuple[ReplicaKey, ...]:
        """Returns the voters in the order of succession: the preferred one, then by log length."""
        keys = [voter.key for voter in log.voters.others(self._me)]

        def rank(key: ReplicaKey) -> tuple[bool, int, NodeId]:
            progress = self._progress.get(key)
            durable = NO_OFFSET if progress is None else progress.durable
            return (key.node_id != preferred, -durable, key.node_id)

        return tuple(sorted(keys, key=rank))

    def _forget_observers(self, log: LogView) -> None:
        observers = [
            progress for progress in self._progress.values() if not log.voters.has(progress.key)
        ]
        if len(observers) > OBSERVERS_MAX:
            del self._progress[min(observers, key=lambda progress: progress.last_contact_ms).key]

    # ── the majority ─────────────────────────────────────────────────────────────────────────

    def committed_offset(self, log: LogView) -> Offset:
        """Returns the offset that a majority has on disk, if it is beyond the first record of the
        leader's epoch (Raft, section 5.4.2); else NO_OFFSET."""
        if self.epoch_start == NO_OFFSET:
            return NO_OFFSET
        voters = log.voters
        durable: list[Offset] = [self._durable_of(voter.key, log) for voter in voters.voters]
        durable.sort(reverse=True)
        reached = durable[voters.majority - 1]
        return reached if reached > self.epoch_start else NO_OFFSET

    def _durable_of(self, key: ReplicaKey, log: LogView) -> Offset:
        if key.node_id == self._me.node_id:
            return log.durable if log.voters.has(self._me) else NO_OFFSET
        progress = self._progress.get(key)
        return NO_OFFSET if progress is None else progress.durable

    def majority_deadline_ms(self, log: LogView) -> int | None:
        """Returns when the leader resigns unless a majority contacts it before; None if the leader
        is a majority by itself."""
        contacts_ms = [
            self._since_ms
            if (found := self._progress.get(voter.key)) is None
            else found.last_contact_ms
            for voter in log.voters.others(self._me)
        ]
        return self._majority_deadline_ms(log, contacts_ms)

    def _majority_deadline_ms(self, log: LogView, contacts_ms: list[int]) -> int | None:
        needed = log.voters.majority - log.voters.has(self._me)
        if needed <= 0:
            return None
        contacts_ms.sort(reverse=True)
        return contacts_ms[needed - 1] + self._settings.check_quorum_ms

    def flush_deadline_ms(self) -> int | None:
        if self.unflushed_since_ms is None:
            return None
        return self.unflushed_since_ms + self._settings.election_timeout_ms

    def on_unflushed(self, now_ms: int) -> None:
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def on_flushed(self, log: LogView, now_ms: int) -> None:
        self.unflushed_since_ms = None if log.durable >= log.end.offset else now_ms

    def deadline_ms(self, log: LogView) -> int | None:
        """Returns the earliest deadline of the leader."""
        me, since_ms = self._me.node_id, self._since_ms
        due = [deadline for _, deadline in self.pending_fetches.values()]
        contacts_ms: list[int] = []
        for voter in log.voters.voters:
            if voter.key.node_id == me:
                continue
            progress = self._progress.get(voter.key)
            contacts_ms.append(since_ms if progress is None else progress.last_contact_ms)
            due.append(since_ms if progress is None else self._notification_due_ms(progress))
        majority_ms = self._majority_deadline_ms(log, contacts_ms)
        if majority_ms is not None:
            due.append(majority_ms)
        if self.unflushed_since_ms is not None:
            due.append(self.unflushed_since_ms + self._settings.election_timeout_ms)
        if self.change is not None:
            due.append(self.change.deadline_ms)
        return min(due, default=None)
