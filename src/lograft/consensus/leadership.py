"""What a leader knows of the others: how far they are, and whether it still has a majority."""

from collections.abc import Iterator

from lograft.consensus.log_view import LogView
from lograft.consensus.messages import FetchRequest
from lograft.consensus.types import RaftSettings, ReplicaKey, Voter, VoterSet
from lograft.consensus.voter_change import VoterChange
from lograft.model.types import NO_OFFSET, NodeId, Offset

#: Observers are not bounded by the voters; the one that was silent longest is forgotten.
OBSERVERS_MAX = 1_000


class Progress:
    """Of one other replica."""

    __slots__ = ("begun_ms", "caught_up_ms", "durable", "heard_ms", "key")

    def __init__(self, key: ReplicaKey, now_ms: int) -> None:
        self.key = key
        #: It has the log on disk up to here: the offset of its last fetch. Never falls within an
        #: epoch: what agreed with this leader's log once is not cut again, and a fetch that was
        #: late on the way tells nothing new.
        self.durable = NO_OFFSET
        #: The last request from it; at first the begin of the leadership, as an advance.
        self.heard_ms = now_ms
        #: When it last had everything.
        self.caught_up_ms = -1
        #: When it was last told who leads.
        self.begun_ms: int | None = None


class Leadership:
    """Lives as long as the leader leads its epoch."""

    __slots__ = (
        "_me",
        "_progress",
        "_renamed",
        "_settings",
        "_since_ms",
        "change",
        "described",
        "disk_since_ms",
        "epoch_start",
        "granting",
        "parked",
    )

    def __init__(
        self, me: ReplicaKey, granting: tuple[NodeId, ...], settings: RaftSettings, now_ms: int
    ) -> None:
        self._me = me
        self._settings = settings
        self._since_ms = now_ms
        self.granting = granting
        #: Where the first record of the own epoch lies.
        self.epoch_start = NO_OFFSET
        self._progress: dict[ReplicaKey, Progress] = {}
        #: Old names of voters that were renamed in this epoch: they use them until they have
        #: fetched the new ones.
        self._renamed: dict[ReplicaKey, ReplicaKey] = {}
        #: Fetches that wait for something new, by who asked; with the time to give up.
        self.parked: dict[ReplicaKey, tuple[FetchRequest, int]] = {}
        self.change: VoterChange | None = None
        #: How the static voters have described themselves; a new leader is told again.
        self.described: dict[NodeId, Voter] = {}
        #: Since when the own disk owes something; None: it owes nothing.
        self.disk_since_ms: int | None = None

    # ── the others ───────────────────────────────────────────────────────────────────────────

    def progress_of(self, key: ReplicaKey, log: LogView, now_ms: int) -> Progress:
        """A voter whose directory is not known is one whatever it says its directory is."""
        key = self._renamed.get(key, key)
        voter = log.voters.find(key.node_id)
        slot = voter.key if voter is not None and log.voters.has(key) else key
        found = self._progress.get(slot)
        if found is None:
            found = self._progress[slot] = Progress(slot, max(self._since_ms, 0))
            self._forget_observers(log)
        return found

    def on_fetch(self, sender: ReplicaKey, offset: Offset, log: LogView, now_ms: int) -> None:
        """Its log up to the fetch offset is a prefix of ours, and on its disk."""
        progress = self.progress_of(sender, log, now_ms)
        progress.heard_ms = now_ms
        progress.durable = max(progress.durable, offset)
        if progress.durable >= log.end.offset:
            progress.caught_up_ms = now_ms

    def on_directories_known(self, voters: VoterSet) -> None:
        """The static voters get the directories of `voters`. Which directory has fetched so far is
        not known, so how far each log reaches counts from the next fetch on."""
        for voter in voters.voters:
            before = self._progress.pop(ReplicaKey(voter.key.node_id), None)
            if before is not None:
                progress = self._progress[voter.key] = Progress(voter.key, before.heard_ms)
                progress.begun_ms = before.begun_ms

    def rename(self, old: ReplicaKey, new: ReplicaKey) -> None:
        """The same replica has another name from here on, and has what it had."""
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

    def to_begin(self, log: LogView, now_ms: int) -> Iterator[ReplicaKey]:
        """Voters that do not fetch: maybe they do not know who leads."""
        for voter in log.voters.others(self._me):
            progress = self.progress_of(voter.key, log, now_ms)
            if now_ms >= self._begin_due_ms(progress):
                progress.begun_ms = now_ms
                yield voter.key

    def _begin_due_ms(self, progress: Progress) -> int:
        if progress.begun_ms is None:
            return self._since_ms
        return max(progress.begun_ms, progress.heard_ms) + self._settings.begin_interval_ms

    def successors(self, log: LogView, preferred: NodeId | None) -> tuple[ReplicaKey, ...]:
        """Who should lead next: the fullest log first, or whom the caller wants."""
        keys = [voter.key for voter in log.voters.others(self._me)]

        def rank(key: ReplicaKey) -> tuple[bool, int, NodeId]:
            progress = self._progress.get(key)
            durable = NO_OFFSET if progress is None else progress.durable
            return (key.node_id != preferred, -durable, key.node_id)

        return tuple(sorted(keys, key=rank))

    def _forget_observers(self, log: LogView) -> None:
        observers = [each for each in self._progress.values() if not log.voters.has(each.key)]
        if len(observers) > OBSERVERS_MAX:
            del self._progress[min(observers, key=lambda each: each.heard_ms).key]

    # ── the majority ─────────────────────────────────────────────────────────────────────────

    def committed(self, log: LogView) -> Offset:
        """The offset that a majority has on disk, once that lies beyond the first record of the
        own epoch (Raft, section 5.4.2); else NO_OFFSET."""
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
        """When the last majority was heard of, and the patience after it; None: it is one."""
        heard = [
            self._since_ms if (each := self._progress.get(voter.key)) is None else each.heard_ms
            for voter in log.voters.others(self._me)
        ]
        return self._majority_deadline_ms(log, heard)

    def _majority_deadline_ms(self, log: LogView, heard: list[int]) -> int | None:
        needed = log.voters.majority - log.voters.has(self._me)
        if needed <= 0:
            return None
        heard.sort(reverse=True)
        return heard[needed - 1] + self._settings.check_quorum_ms

    def disk_deadline_ms(self) -> int | None:
        if self.disk_since_ms is None:
            return None
        return self.disk_since_ms + self._settings.election_timeout_ms

    def on_disk_owing(self, now_ms: int) -> None:
        if self.disk_since_ms is None:
            self.disk_since_ms = now_ms

    def on_disk_progress(self, log: LogView, now_ms: int) -> None:
        self.disk_since_ms = None if log.durable >= log.end.offset else now_ms

    def deadline_ms(self, log: LogView) -> int | None:
        """The earliest of everything that time does to a leader."""
        me, since_ms = self._me.node_id, self._since_ms
        due = [deadline for _, deadline in self.parked.values()]
        heard: list[int] = []
        for voter in log.voters.voters:
            if voter.key.node_id == me:
                continue
            progress = self._progress.get(voter.key)
            heard.append(since_ms if progress is None else progress.heard_ms)
            due.append(since_ms if progress is None else self._begin_due_ms(progress))
        majority_ms = self._majority_deadline_ms(log, heard)
        if majority_ms is not None:
            due.append(majority_ms)
        if self.disk_since_ms is not None:
            due.append(self.disk_since_ms + self._settings.election_timeout_ms)
        if self.change is not None:
            due.append(self.change.deadline_ms)
        return min(due, default=None)
