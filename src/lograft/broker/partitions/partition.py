"""One partition on this broker: its log, its role, and who waits for it.

Append and read are synchronous and whole: nothing else runs between their check and their act.
What must wait is named `wait_…`.

A partition is in the table as soon as the metadata image names it, before its files exist: until
a worker has opened the log, requests get PartitionOpening and wait for it (`wait_open`). What the
metadata says (`assignment`) becomes a role (`leader`, `follower` or neither) once the log is open,
not being cut, and this broker's registration is known to itself (`host.acts`). Who may use the log
is its `state`, which moves by the table of `lifecycle.py`. Other files call methods that say what
happened and set none of its attributes (a tidy test looks).
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from lograft.broker.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    PartitionOffline,
    PartitionOpening,
    UnknownLeaderEpoch,
)
from lograft.broker.partitions.flush_policy import FlushPolicy
from lograft.broker.partitions.lifecycle import HELD, Cause, PartitionState, next_state
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.waits import LongPoll, OffsetWaits
from lograft.model.errors import DiskFailed, ErrorCode, LograftError
from lograft.model.seams import FileSlice
from lograft.model.settings.topic import TopicConfig
from lograft.model.types import (
    NO_EPOCH,
    NO_OFFSET,
    BrokerEpoch,
    Epoch,
    NodeId,
    Offset,
    ReplicationMode,
    TopicPartition,
)
from lograft.replication.replica_view import ReplicaStatus
from lograft.replication.roles import (
    FollowerRole,
    LeaderRole,
    PartitionReplica,
    RoleChange,
    Watermarked,
)
from lograft.replication.types import NO_ASSIGNMENT, NO_EFFECTS, Assignment, Effects, IsrProposal
from lograft.storage.log import Log
from lograft.storage.markers import build_marker
from lograft.storage.producers import Verification
from lograft.storage.types import AppendResult, Origin, TransactionEnd
from lograft.storage.validation import AppendRules

#: Looked up once: acknowledgements are many.
NO_ERROR: Final = ErrorCode.NONE
#: Likewise, for every append and read.
ONLINE: Final = PartitionState.ONLINE
OFFLINE: Final = PartitionState.OFFLINE


class KeptOffsets(NamedTuple):
    """Checkpoint entries of a log that cannot be asked: it could not be opened, or is being cut."""

    recovery_point: Offset
    log_start: Offset


class PartitionHost(Protocol):
    """The broker around its partitions, as far as replication cares (`replicas/replicas.py`)."""

    @property
    def acts(self) -> bool:
        """Whether the image holds this broker's own registration: before that, what it says about
        this broker's partitions may be about an earlier life."""

    def now_ms(self) -> int: ...

    def make_replica(
        self, partition: "Partition", log: Log, high_watermark: Offset
    ) -> PartitionReplica: ...

    def make_switchable(
        self, partition: "Partition", replica: PartitionReplica
    ) -> PartitionReplica:
        """The same replica, but it can be in raft mode too."""

    def configure(self, partition: "Partition", replica: PartitionReplica) -> Effects:
        """The partition's settings changed."""

    def propose(self, partition: "Partition", proposal: IsrProposal) -> None:
        """The leader asks the controller for another ISR."""

    def role_changed(self, partition: "Partition") -> None:
        """It leads, follows another leader, or does neither any more (deleted, offline)."""


class PartitionFetches(Protocol):
    """How a follower fetches from its leader (broker/replicas/follower_partition.py)."""

    role: FollowerRole
    is_over: bool

    @property
    def last_contact_ms(self) -> int: ...

    def consider(self) -> None:
        """The role may have something to ask for."""

    def on_flushed(self) -> None: ...


class LogWatcher(Protocol):
    """A follower's fetch session, as seen by the leader's partition."""

    def on_moved(self, partition: "Partition") -> None:
        """The log got longer, or something else changed that its followers should hear of."""

    def on_committed(self, partition: "Partition") -> None:
        """The high watermark moved."""


class Resting:
    """Neither leader nor follower: the watermark stands still."""

    __slots__ = ("high_watermark",)

    def __init__(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark


class Partition:
    __slots__ = (
        "_commit_waits",
        "_durable_waits",
        "_end_told",
        "_host",
        "_low_waits",
        "_open_waits",
        "_uncommitted_bytes",
        "assignment",
        "config",
        "directory",
        "fetch_waits",
        "flushing",
        "follower",
        "following",
        "index",
        "is_ready",
        "is_switchable",
        "kept_offsets",
        "leader",
        "log",
        "me",
        "offline",
        "past_directories",
        "replica",
        "rule",
        "state",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        topic_id: UUID,
        me: NodeId,
        config: TopicConfig,
        host: PartitionHost,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.me = me
        self.config = config
        self._host = host
        #: What the metadata says; the role may be a step behind.
        self.assignment = NO_ASSIGNMENT
        self.state = PartitionState.OPENING
        #: Why it is offline; empty if it never was.
        self.offline = ""
        #: None while a worker opens it.
        self.log: Log | None = None
        self.directory: LogDirectory | None = None
        #: Ids of the log dirs that the replica was in before, as a voter.
        self.past_directories: tuple[UUID, ...] = ()
        #: What the checkpoints say while a worker uses the log alone: always in the states HELD,
        #: and until the worker is done where the partition has failed or was deleted meanwhile.
        self.kept_offsets: KeptOffsets | None = None
        #: Who decides; None until the log is open. Its roles stand beside it for speed, and `rule`
        #: is the one whose high watermark counts.
        self.replica: PartitionReplica | None = None
        self.leader: LeaderRole | None = None
        self.follower: FollowerRole | None = None
        self.rule: Watermarked = Resting(Offset(0))
        #: Whether the replica can be in raft mode; it is made so when it first has to.
        self.is_switchable = False
        #: False while a leader in raft mode may not append for clients (yet): the role's affair.
        self.is_ready = True
        #: Who fetches for it; the host's affair.
        self.following: PartitionFetches | None = None
        #: Consumers: told when more is committed.
        self.fetch_waits: dict[LongPoll, None] = {}
        #: Followers' sessions: told when more is appended.
        self.watchers: dict[LogWatcher, None] = {}
        self._commit_waits = OffsetWaits()
        self._durable_waits = OffsetWaits()
        self._low_waits = OffsetWaits()
        self._open_waits: list[asyncio.Future[None]] = []
        #: Bytes appended above the high watermark, told to long polls once it moves.
        self._uncommitted_bytes = 0
        #: Up to here long polls were told of transactions that ended.
        self._end_told = -1
        self.flushing = FlushPolicy(self)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def leader_id(self) -> NodeId:
        return self.assignment.leader

    @property
    def leader_epoch(self) -> Epoch:
        return self.assignment.leader_epoch

    @property
    def leads(self) -> bool:
        return self.leader is not None

    @property
    def is_opening(self) -> bool:
        """It will lead as soon as its log is there: waiting is better than refusing."""
        if self.state is OFFLINE or self.state is PartitionState.DELETED:
            return False
        if self.leader is not None and not self.serves:
            return True
        return self.log is None or (self.leader is None and self.assignment.leader == self.me)

    @property
    def high_watermark(self) -> Offset:
        return self.rule.high_watermark

    @property
    def is_usable(self) -> bool:
        """Whether flushes, retention and compaction may use the log."""
        return self.state is ONLINE

    @property
    def is_deleted(self) -> bool:
        return self.state is PartitionState.DELETED

    @property
    def serves(self) -> bool:
        """Whether appends may be made here now, if it leads."""
        return self.is_ready and self.state is ONLINE

    @property
    def flush_before_ack(self) -> bool:
        return self.flushing.before_ack

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch}>"

    # The life of the partition: told by the metadata image and by the log manager.

    def _move(self, cause: Cause) -> None:
        """The only writer of the state; raises IllegalTransition."""
        self.state = next_state(self.state, cause)

    def assign_directory(
        self, directory: LogDirectory, past_directories: tuple[UUID, ...] = ()
    ) -> None:
        """Its log lies there, or will once a worker has made it."""
        assert self.log is None, self
        self.directory = directory
        self.past_directories = past_directories

    def on_opened(
        self, log: Log, directory: LogDirectory, *, high_watermark: Offset = NO_OFFSET
    ) -> None:
        """`high_watermark` as checkpointed; NO_OFFSET: it never was."""
        self._move(Cause.OPENED)
        # The settings may have changed while a worker opened it.
        log.config = self.config
        self.log = log
        self.directory = directory
        self.replica = self._host.make_replica(self, log, high_watermark)
        self.rule = Resting(self.replica.high_watermark)
        self.take_role()
        self._tell_opened()

    def on_assignment(self, assignment: Assignment) -> None:
        """The metadata says so."""
        if assignment.partition_epoch <= self.assignment.partition_epoch:
            return
        self.assignment = assignment
        self.take_role()

    def take_role(self) -> None:
        """Follows the assignment, as soon as that can be done."""
        replica = self.replica
        if (
            replica is None
            or self.kept_offsets is not None
            or self.is_deleted
            or not self._host.acts
        ):
            return
        if self.assignment.mode is not ReplicationMode.ISR and not self.is_switchable:
            replica = self.replica = self._host.make_switchable(self, replica)
            self.is_switchable = True
        self.flushing.set(self.config, self.assignment.mode)
        change, effects = replica.on_assignment(self.assignment, now_ms=self._host.now_ms())
        if change is RoleChange.UPDATED:
            self._host.role_changed(self)
        elif change is RoleChange.CONTINUES:
            self._take(replica)
            self._host.role_changed(self)
            # The new role has to see the fetches that wait.
            self._tell_watchers()
        elif change is not RoleChange.STALE:
            self._take(replica)
            self._uncommitted_bytes = 0
            if self.leader is not None:
                assert self.log is not None
                self.log.assign_epoch(self.leader_epoch)
            # Whoever waits on an older leadership is sent to look for the new one.
            self._dismiss(lambda: NotLeader(f"{self.topic_partition} has a new leader"))
            self._host.role_changed(self)
        self.apply(effects)

    def _take(self, replica: PartitionReplica) -> None:
        self.leader, self.follower = replica.leader, replica.follower
        self.rule = self.leader or self.follower or Resting(replica.high_watermark)

    def on_elected(self, leader: NodeId, leader_epoch: Epoch) -> None:
        """In raft mode the replicas elect among themselves, and know it before the metadata."""
        replica = self.replica
        assert replica is not None, self
        self.assignment = self.assignment._replace(leader=leader, leader_epoch=leader_epoch)
        if self.leader is replica.leader and self.follower is replica.follower:
            return
        self._take(replica)
        self._uncommitted_bytes = 0
        self._dismiss(lambda: NotLeader(f"{self.topic_partition} has a new leader"))
        self._host.role_changed(self)

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """This broker's registration is known to the cluster and to itself."""
        if self.replica is not None:
            self.replica.on_registered(broker_epoch)
        self.take_role()

    def overlay_leader(self, leader: NodeId, leader_epoch: Epoch, *, is_ready: bool) -> None:
        """What the replicas have elected in raft mode is newer than what the metadata says."""
        self.assignment = self.assignment._replace(leader=leader, leader_epoch=leader_epoch)
        self.is_ready = is_ready

    def on_ready(self) -> None:
        """A leader of its role may append for clients."""
        self.is_ready = True

    def pause_appends(self) -> None:
        """The leader hands over: producers wait until there is another, or `on_ready`."""
        self.is_ready = False

    def start_following(self, following: PartitionFetches) -> None:
        self.following = following

    def stop_following(self) -> None:
        self.following = None

    def begin_move(self, kept: KeptOffsets) -> None:
        """The log moves to another log dir: writers wait, nobody else changes it."""
        self._move(Cause.MOVE_BEGUN)
        self.kept_offsets = kept

    def on_moved(self, directory: LogDirectory, past_directories: tuple[UUID, ...] = ()) -> None:
        """Its log goes on in the files of another log dir."""
        assert self.kept_offsets is not None, self
        self.directory = directory
        self.past_directories = past_directories

    def end_move(self, resume: Callable[[], None] | None = None) -> None:
        """The log lies in one of the two log dirs, and is on disk there. `resume`: the replica was
        paused."""
        self._move(Cause.MOVE_ENDED)
        self._forget_kept()
        if resume is not None and not self.is_deleted:
            resume()
            self._host.role_changed(self)
        if self.state is ONLINE:
            self.on_durable()
        self.on_cut()
        if self.following is not None:
            self.following.consider()

    def begin_cut(self, kept: KeptOffsets) -> None:
        """The end of the log is to be cut away: nothing else may change the log until then."""
        self._move(Cause.CUT_BEGUN)
        self.kept_offsets = kept

    def end_cut(self) -> None:
        """The worker is done with the log, or will not cut it; `on_cut` follows."""
        self._move(Cause.CUT_ENDED)
        self._forget_kept()

    def _forget_kept(self) -> None:
        if self.state not in HELD:
            self.kept_offsets = None

    def on_cut(self) -> None:
        """A worker is done with the log: what the metadata said meanwhile counts now."""
        if self.state is ONLINE:
            self.take_role()
            if self.flush_before_ack:
                # A flush that was asked for meanwhile was not done.
                self.request_flush()
            self._tell_opened()

    def on_config_changed(self, config: TopicConfig) -> None:
        self.config = config
        self.flushing.set(config, self.assignment.mode)
        log, replica = self.log, self.replica
        if log is None or replica is None:
            return
        log.config = config
        self.apply(self._host.configure(self, replica))
        if self.flush_before_ack:
            self.flushing.request()

    def on_deleted(self) -> None:
        self._move(Cause.DELETED)
        self.leader = self.follower = None
        self.flushing.cancel()
        self._dismiss(lambda: NotLeader(f"{self.topic_partition} was deleted"))
        self._host.role_changed(self)

    def on_offline(self, reason: str) -> None:
        """Its log dir failed, or its log could not be opened: final until a restart."""
        self._move(Cause.FAILED)
        if self.is_deleted:
            return
        self.offline = reason
        self.flushing.cancel()
        self._dismiss(lambda: PartitionOffline(reason))
        self._host.role_changed(self)

    def on_disk_failed(self, error: DiskFailed) -> None:
        """Whoever meets a failing disk in this partition's log tells it here."""
        if self.directory is not None:
            self.directory.fail(error)

    def apply(self, effects: Effects) -> None:
        """What a role wants done."""
        if effects is NO_EFFECTS:
            return
        if effects.high_watermark is not None:
            self.tell_committed()
        if effects.propose is not None:
            self._host.propose(self, effects.propose)
        if effects.log_start_moved and self._low_waits.waits:
            self._low_waits.release(self.low_watermark)

    def _dismiss(self, make_error: Callable[[], LograftError]) -> None:
        for waits in (self._commit_waits, self._durable_waits, self._low_waits):
            waits.dismiss(make_error)
        self._tell_opened()
        for wait in list(self.fetch_waits):
            wait.wake()
        self._tell_watchers()

    def _tell_opened(self) -> None:
        opens, self._open_waits = self._open_waits, []
        for future in opens:
            if not future.done():
                future.set_result(None)

    def _tell_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher.on_moved(self)

    # Reading and writing.

    def leader_log(self) -> Log:
        """The log, if this node may serve it as its leader."""
        log = self.log
        if self.leader is None or log is None or self.state is OFFLINE:
            raise self._why_not_leading()
        return log

    def _why_not_leading(self) -> LograftError:
        if self.state is OFFLINE and self.leader_id == self.me:
            return PartitionOffline(self.offline)
        if self.is_opening and self.leader_id == self.me:
            return PartitionOpening(f"{self.topic_partition} is being opened")
        return NotLeader(f"{self.topic_partition} is led by {self.leader_id}")

    def _why_not_appending(self) -> LograftError:
        if self.leader is None or self.state not in HELD | {ONLINE}:
            return self._why_not_leading()
        return PartitionOpening(f"{self.topic_partition} has a leader that is not ready")

    def serving_log(self) -> Log:
        """The log, if this node may serve it as leader or follower."""
        if self.follower is None:
            return self.leader_log()
        if self.state is OFFLINE:
            raise PartitionOffline(self.offline)
        if self.kept_offsets is not None or self.log is None:
            raise NotLeader(f"{self.topic_partition} is being truncated to its leader's log")
        return self.log

    def check_epoch(self, epoch: int) -> None:
        """`epoch` is the leader epoch a client knows; -1 if it does not say."""
        if epoch == self.leader_epoch or epoch == NO_EPOCH:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is older than {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is newer than {self.leader_epoch}")

    def append(
        self,
        batches: memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        checked_by: AppendRules | None = None,
        verification: Verification | None = None,
    ) -> AppendResult:
        """Writes to the page cache and moves the high watermark as the commit rule allows. Raises
        NeedsWorker where the log does."""
        log, directory, leader = self.log, self.directory, self.leader
        if leader is None or self.state is not ONLINE or not self.is_ready:
            raise self._why_not_appending()
        assert log is not None
        assert directory is not None
        try:
            result = log.append_as_leader(
                batches,
                leader_epoch=leader.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                checked_by=checked_by,
                verification=verification,
            )
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise
        directory.changes += 1
        if leader.on_appended(log.end_offset):
            if self.fetch_waits or self._commit_waits.waits or self.watchers:
                self._uncommitted_bytes += len(batches)
                self.tell_committed()
        else:
            self._uncommitted_bytes += len(batches)
        if self.watchers:
            self._tell_watchers()
        if log.unflushed_files:
            self.flushing.consider_rolled(log)
        if self.flushing.is_on:
            self.flushing.consider(log)
        return result

    def append_marker(self, end: TransactionEnd, *, now_ms: int) -> AppendResult:
        """Ends a producer's transaction here; refused where acks=all would be."""
        log = self.leader_log()
        self.check_append(acks_all=True)
        log.producers.check_end(end)
        return self.append(
            memoryview(build_marker(end, now_ms)), now_ms=now_ms, origin=Origin.COORDINATOR
        )

    def read(
        self, offset: Offset, *, bytes_max: int, bound: Offset, at_least_one: bool
    ) -> FileSlice | None:
        log = self.serving_log()
        try:
            return log.read(offset, bytes_max=bytes_max, bound=bound, at_least_one=at_least_one)
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise

    @property
    def last_stable_offset(self) -> Offset:
        """No record below it belongs to an open transaction; at most the high watermark."""
        log = self.log
        high_watermark = self.rule.high_watermark
        return high_watermark if log is None else log.last_stable_offset(high_watermark)

    def advance_log_start(self, to: Offset) -> Offset:
        """DeleteRecords, and its followers' part of it; returns the new log start."""
        log = self.serving_log()
        log.advance_start(to)
        self.on_log_start_moved()
        return log.log_start_offset

    def on_log_start_moved(self) -> None:
        """Followers delete what their leader has deleted, also while nothing is written."""
        assert self.directory is not None
        self.directory.changes += 1
        self._tell_watchers()

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> None:
        """What the leader sent; the follower's role is told by the caller."""
        log, directory = self.serving_log(), self.directory
        assert directory is not None
        try:
            log.append_as_follower(batches, now_ms=now_ms)
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise
        finally:
            directory.changes += 1
        self._uncommitted_bytes += len(batches)
        if log.unflushed_files:
            self.flushing.consider_rolled(log)
        if self.flushing.is_on:
            self.flushing.consider(log)

    # What the roles know.

    def check_append(self, *, acks_all: bool) -> None:
        """Before an append, where acks=all may have to be refused."""
        leader = self.leader
        if leader is not None and leader.check_append(acks_all=acks_all) is not NO_ERROR:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has fewer in-sync replicas than"
                f" min.insync.replicas={self.config.min_insync_replicas}"
            )

    @property
    def low_watermark(self) -> Offset:
        """Everything below is deleted on all replicas that are up."""
        log, leader = self.log, self.leader
        if log is None or leader is None:
            return NO_OFFSET
        return leader.low_watermark(log.log_start_offset)

    def statuses(self) -> list[ReplicaStatus]:
        """What the leader knows of every replica; empty elsewhere."""
        log, leader = self.log, self.leader
        return [] if log is None or leader is None else leader.statuses(log.log_start_offset)

    # Flushing: the directory's flusher fsyncs for many partitions at once.

    def on_durable(self) -> None:
        """The flusher has marked the log durable up to some offset."""
        log = self.log
        assert log is not None
        if self.leader is not None and self.leader.on_durable(log.durable_offset):
            self.tell_committed()
        if self._durable_waits.waits:
            self._durable_waits.release(log.durable_offset)
        if self.following is not None:
            self.following.on_flushed()
        if self.flushing.is_on and log.durable_offset < log.end_offset:
            self.flushing.consider(log)

    def request_flush(self) -> None:
        """Everything appended so far shall be on disk soon."""
        self.flushing.request()

    def append_control(self, batch: bytearray, *, epoch: Epoch, now_ms: int) -> Offset:
        """What Raft writes itself; returns the new end of the log."""
        log, directory = self.log, self.directory
        assert log is not None
        assert directory is not None
        try:
            log.append_as_leader(
                memoryview(batch), leader_epoch=epoch, now_ms=now_ms, origin=Origin.RAFT
            )
        except DiskFailed as error:
            self.on_disk_failed(error)
            raise
        directory.changes += 1
        self._uncommitted_bytes += len(batch)
        self._tell_watchers()
        return log.end_offset

    # Waiting.

    def tell_committed(self) -> None:
        """The high watermark moved."""
        count, self._uncommitted_bytes = self._uncommitted_bytes, 0
        if not self.is_ready and self.leader is not None and self.leader.can_report_latest:
            # A leader that had to commit something of its own first has done so.
            self._host.role_changed(self)
            self._tell_opened()
        if self.fetch_waits:
            self._tell_readers(count)
        for watcher in self.watchers:
            watcher.on_committed(self)
        if self._commit_waits.waits and self.leader is not None:
            reached = self.leader.high_watermark
            code = self.leader.ack_of(reached)
            assert code is not None, self
            self._commit_waits.release(reached, code)

    def _tell_readers(self, count: int) -> None:
        log = self.log
        assert log is not None
        # The end of a transaction makes all of it readable to some, much more than its own bytes.
        has_ended = log.producers.last_end_offset > self._end_told
        if has_ended:
            self._end_told = min(log.producers.last_end_offset, self.high_watermark - 1)
        for wait in list(self.fetch_waits):
            if has_ended:
                wait.wake()
            else:
                wait.add(count)

    def is_acknowledged(self, end: Offset, *, acks_all: bool) -> bool:
        """Whether an append that ended at `end` can be answered now; raises what is wrong."""
        leader = self.leader
        if leader is None:
            raise self._why_not_leading()
        if not acks_all and not self.flush_before_ack:
            return True
        if not acks_all:
            return self.log is not None and self.log.durable_offset >= end
        code = leader.ack_of(end)
        if code is not NO_ERROR and code is not None:
            self._check_ack(code)
        return code is not None

    def acks_of(self, *, acks_all: bool) -> OffsetWaits:
        """Where appends wait that cannot be acknowledged yet."""
        return self._commit_waits if acks_all else self._durable_waits

    async def wait_committed(
        self, end: Offset, *, timeout_ms: int, leader_epoch: Epoch = NO_EPOCH
    ) -> None:
        """Until everything below `end` is committed in the leadership that appended it: a later
        one may hold other records there."""
        self._check_same(leader_epoch)
        if not self.is_acknowledged(end, acks_all=True):
            self._check_ack(
                await self._commit_waits.wait(end, timeout_ms=timeout_ms, what="committed")
            )

    async def wait_flushed(
        self, end: Offset, *, timeout_ms: int, leader_epoch: Epoch = NO_EPOCH
    ) -> None:
        """The same for acks=1 where a flush comes before every answer: this replica is enough."""
        self._check_same(leader_epoch)
        if not self.is_acknowledged(end, acks_all=False):
            await self._durable_waits.wait(end, timeout_ms=timeout_ms, what="flushed")

    def _check_same(self, leader_epoch: Epoch) -> None:
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            raise NotLeader(f"{self.topic_partition} has a new leader")

    def _check_ack(self, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            raise self.ack_error(code)

    def ack_error(self, code: ErrorCode) -> LograftError:
        """What acks=all is told where the role's verdict is not `none`."""
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, code
        return NotEnoughReplicasAfterAppend(
            f"{self.topic_partition} lost in-sync replicas while the records were written"
        )

    async def wait_low_watermark(self, offset: Offset, *, timeout_ms: int) -> None:
        """Until all replicas that are up have deleted everything below."""
        if self.low_watermark < offset:
            await self._low_waits.wait(offset, timeout_ms=timeout_ms, what="deleted everywhere")

    async def wait_open(self, *, timeout_ms: int) -> None:
        """Until the log is open, or cannot be opened, or the time is over: look again."""
        if not self.is_opening:
            return
        future = asyncio.get_running_loop().create_future()
        self._open_waits.append(future)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            pass
