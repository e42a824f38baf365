"""One partition on this broker: its log, its role, and the requests that wait for it.

Append and read are synchronous: nothing else runs between their checks and the operation. Methods
that wait are named `wait_…`.

A partition is in the table as soon as the metadata image contains it, before its files exist. Until
a worker has opened the log, requests get PartitionNotYetOpen and wait (`wait_open`). The assignment
in the metadata becomes a role (`leader`, `follower` or neither) once the log is open, is not being
truncated, and the image contains this broker's registration (`host.is_registered`). `state` defines
access to the log and changes according to the table in `lifecycle.py`. Other files report events by
method calls and set none of its attributes (a tidy test checks that).
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
    PartitionNotYetOpen,
    PartitionOffline,
    UnknownLeaderEpoch,
)
from lograft.broker.partitions.flush_policy import FlushPolicy
from lograft.broker.partitions.lifecycle import HELD, Cause, PartitionState, next_state
from lograft.broker.partitions.log_directory import LogDirectory
from lograft.broker.partitions.topic_traffic import TopicTraffic
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

#: Looked up once, since acknowledgements are frequent.
NO_ERROR: Final = ErrorCode.NONE
#: Also looked up once, since every append and read checks the state.
ONLINE: Final = PartitionState.ONLINE
OFFLINE: Final = PartitionState.OFFLINE


class KeptOffsets(NamedTuple):
    """Checkpoint entries of a log that is unavailable: it could not be opened, or is being moved
    or truncated."""

    recovery_point: Offset
    log_start: Offset


class PartitionHost(Protocol):
    """The services that a partition needs for replication (`replicas/replicas.py`)."""

    @property
    def is_registered(self) -> bool:
        """Whether the image contains this broker's registration. Before that, its assignments may
        refer to an earlier process of this broker."""

    def now_ms(self) -> int: ...

    def build_replica(
        self, partition: "Partition", log: Log, high_watermark: Offset
    ) -> PartitionReplica: ...

    def build_mode_replica(
        self, partition: "Partition", replica: PartitionReplica
    ) -> PartitionReplica:
        """Returns the same replica, now able to be in raft mode, too."""

    def configure(self, partition: "Partition", replica: PartitionReplica) -> Effects:
        """Applies changed settings of the partition."""

    def propose(self, partition: "Partition", proposal: IsrProposal) -> None:
        """Sends the leader's proposal of another ISR to the controller."""

    def role_changed(self, partition: "Partition") -> None:
        """The partition became leader or follower, or lost its role (deleted, offline)."""


class PartitionFetches(Protocol):
    """Fetching of a follower from its leader (broker/replicas/follower_partition.py)."""

    role: FollowerRole
    is_over: bool

    @property
    def last_contact_ms(self) -> int: ...

    def consider(self) -> None:
        """The role may have a fetch to send."""

    def on_flushed(self) -> None: ...


class LogWatcher(Protocol):
    """A follower's fetch session, which the leader's partition notifies."""

    def on_moved(self, partition: "Partition") -> None:
        """Records were appended, or something else changed that followers should learn."""

    def on_committed(self, partition: "Partition") -> None:
        """The high watermark advanced."""


class NoRole:
    """Neither leader nor follower: the high watermark is constant."""

    __slots__ = ("high_watermark",)

    def __init__(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark


class Partition:
    __slots__ = (
        "_commit_waits",
        "_durable_waits",
        "_host",
        "_low_waits",
        "_notified_end",
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
        "traffic",
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
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`traffic` counts for all partitions of the topic."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.me = me
        self.config = config
        self._host = host
        self.traffic = traffic or TopicTraffic()
        #: The newest assignment in the metadata; the role may still be an older one.
        self.assignment = NO_ASSIGNMENT
        self.state = PartitionState.OPENING
        #: The reason why it is offline; empty if it is not.
        self.offline = ""
        #: None while a worker opens it.
        self.log: Log | None = None
        self.directory: LogDirectory | None = None
        #: Ids of the log dirs in which the replica was before, as a voter.
        self.past_directories: tuple[UUID, ...] = ()
        #: Checkpoint entries while a worker has exclusive access to the log: always in the states
        #: HELD, and until the worker is done if the partition failed or was deleted in between.
        self.kept_offsets: KeptOffsets | None = None
        #: The replica; None until the log is open. Its roles are copied here for speed, and `rule`
        #: is the role that determines the high watermark.
        self.replica: PartitionReplica | None = None
        self.leader: LeaderRole | None = None
        self.follower: FollowerRole | None = None
        self.rule: Watermarked = NoRole(Offset(0))
        #: Whether the replica can be in raft mode; it is converted when that is first needed.
        self.is_switchable = False
        #: False while a leader in raft mode cannot append for clients (yet); set by the role.
        self.is_ready = True
        #: Fetching from the leader; set by the host.
        self.following: PartitionFetches | None = None
        #: Long polls of consumers, notified when more is committed.
        self.fetch_waits: dict[LongPoll, None] = {}
        #: Sessions of followers, notified when more is appended.
        self.watchers: dict[LogWatcher, None] = {}
        self._commit_waits = OffsetWaits()
        self._durable_waits = OffsetWaits()
        self._low_waits = OffsetWaits()
        self._open_waits: list[asyncio.Future[None]] = []
        #: Bytes appended above the high watermark, reported to long polls once it advances.
        self._uncommitted_bytes = 0
        #: Offset up to which ends of transactions were reported to long polls.
        self._notified_end = -1
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
        """Whether it will lead as soon as its log is open: requests wait instead of failing."""
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
        """Whether clients can append now, if it leads."""
        return self.is_ready and self.state is ONLINE

    @property
    def flush_before_ack(self) -> bool:
        return self.flushing.before_ack

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch}>"

    # Life cycle: events from the metadata image and the log manager.

    def _move(self, cause: Cause) -> None:
        """Changes the state, as its only writer; raises IllegalTransition."""
        self.state = next_state(self.state, cause)

    def assign_directory(
        self, directory: LogDirectory, past_directories: tuple[UUID, ...] = ()
    ) -> None:
        """Sets the log dir that contains the log, or will once a worker has created it."""
        assert self.log is None, self
        self.directory = directory
        self.past_directories = past_directories

    def on_opened(
        self, log: Log, directory: LogDirectory, *, high_watermark: Offset = NO_OFFSET
    ) -> None:
        """A worker has opened the log. `high_watermark` is from the checkpoint; NO_OFFSET if it
        has none."""
        self._move(Cause.OPENED)
        # The settings may have changed while the worker was opening it.
        log.config = self.config
        self.log = log
        self.directory = directory
        self.replica = self._host.build_replica(self, log, high_watermark)
        self.rule = NoRole(self.replica.high_watermark)
        self.update_role()
        self._notify_opened()

    def on_assignment(self, assignment: Assignment) -> None:
        """The metadata image has a new assignment."""
        if assignment.partition_epoch <= self.assignment.partition_epoch:
            return
        self.assignment = assignment
        self.update_role()

    def update_role(self) -> None:
        """Applies the assignment, as soon as that is possible."""
        replica = self.replica
        if (
            replica is None
            or self.kept_offsets is not None
            or self.is_deleted
            or not self._host.is_registered
        ):
            return
        if self.assignment.mode is not ReplicationMode.ISR and not self.is_switchable:
            replica = self.replica = self._host.build_mode_replica(self, replica)
            self.is_switchable = True
        self.flushing.set(self.config, self.assignment.mode)
        change, effects = replica.on_assignment(self.assignment, now_ms=self._host.now_ms())
        if change is RoleChange.UPDATED:
            self._host.role_changed(self)
        elif change is RoleChange.CONTINUES:
            self._set_role(replica)
            self._host.role_changed(self)
            # The new role must check the waiting fetches.
            self._notify_watchers()
        elif change is not RoleChange.STALE:
            self._set_role(replica)
            self._uncommitted_bytes = 0
            if self.leader is not None:
                assert self.log is not None
                self.log.assign_epoch(self.leader_epoch)
            # Requests that wait for an older leadership fail, so that clients find the new leader.
            self._fail_waits(lambda: NotLeader(f"{self.topic_partition} has a new leader"))
            self._host.role_changed(self)
        self.apply(effects)

    def _set_role(self, replica: PartitionReplica) -> None:
        self.leader, self.follower = replica.leader, replica.follower
        self.rule = self.leader or self.follower or NoRole(replica.high_watermark)

    def on_elected(self, leader: NodeId, leader_epoch: Epoch) -> None:
        """In raft mode the replicas elected a leader, which is not in the metadata yet."""
        replica = self.replica
        assert replica is not None, self
        self.assignment = self.assignment._replace(leader=leader, leader_epoch=leader_epoch)
        if self.leader is replica.leader and self.follower is replica.follower:
            return
        self._set_role(replica)
        self._uncommitted_bytes = 0
        self._fail_waits(lambda: NotLeader(f"{self.topic_partition} has a new leader"))
        self._host.role_changed(self)

    def on_registered(self, broker_epoch: BrokerEpoch) -> None:
        """The metadata image contains this broker's registration."""
        if self.replica is not None:
            self.replica.on_registered(broker_epoch)
        self.update_role()

    def overlay_leader(self, leader: NodeId, leader_epoch: Epoch, *, is_ready: bool) -> None:
        """Sets a leader elected in raft mode, which is newer than the one in the metadata."""
        self.assignment = self.assignment._replace(leader=leader, leader_epoch=leader_epoch)
        self.is_ready = is_ready

    def on_ready(self) -> None:
        """The leader can append for clients."""
        self.is_ready = True

    def pause_appends(self) -> None:
        """The leader is handing over: producers wait for the next leader, or for `on_ready`."""
        self.is_ready = False

    def start_following(self, following: PartitionFetches) -> None:
        self.following = following

    def stop_following(self) -> None:
        self.following = None

    def begin_move(self, kept: KeptOffsets) -> None:
        """The log is being moved to another log dir: appends wait, nothing else changes it."""
        self._move(Cause.MOVE_BEGUN)
        self.kept_offsets = kept

    def on_moved(self, directory: LogDirectory, past_directories: tuple[UUID, ...] = ()) -> None:
        """The log now uses the files in another log dir."""
        assert self.kept_offsets is not None, self
        self.directory = directory
        self.past_directories = past_directories

    def end_move(self, resume: Callable[[], None] | None = None) -> None:
        """The move has ended: the log is in one of the two log dirs, on disk. `resume` continues a
        replica that was paused."""
        self._move(Cause.MOVE_ENDED)
        self._forget_kept()
        if resume is not None and not self.is_deleted:
            resume()
            self._host.role_changed(self)
        if self.state is ONLINE:
            self.on_durable()
        self.on_truncated()
        if self.following is not None:
            self.following.consider()

    def begin_truncation(self, kept: KeptOffsets) -> None:
        """The log is being truncated: nothing else may change it."""
        self._move(Cause.TRUNCATION_BEGUN)
        self.kept_offsets = kept

    def end_truncation(self) -> None:
        """The worker has truncated the log, or will not; `on_truncated` follows."""
        self._move(Cause.TRUNCATION_ENDED)
        self._forget_kept()

    def _forget_kept(self) -> None:
        if self.state not in HELD:
            self.kept_offsets = None

    def on_truncated(self) -> None:
        """A worker has released the log: applies assignments that arrived in the meantime."""
        if self.state is ONLINE:
            self.update_role()
            if self.flush_before_ack:
                # A flush that was requested in the meantime was not done.
                self.request_flush()
            self._notify_opened()

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
        self._fail_waits(lambda: NotLeader(f"{self.topic_partition} was deleted"))
        self._host.role_changed(self)

    def on_offline(self, reason: str) -> None:
        """Its log dir failed, or its log could not be opened: it stays offline until a restart."""
        self._move(Cause.FAILED)
        if self.is_deleted:
            return
        self.offline = reason
        self.flushing.cancel()
        self._fail_waits(lambda: PartitionOffline(reason))
        self._host.role_changed(self)

    def on_disk_failed(self, error: DiskFailed) -> None:
        """An operation on this partition's log failed with a disk error."""
        if self.directory is not None:
            self.directory.fail(error)

    def apply(self, effects: Effects) -> None:
        """Executes the effects of a role."""
        if effects is NO_EFFECTS:
            return
        if effects.high_watermark is not None:
            self.notify_committed()
        if effects.propose is not None:
            self._host.propose(self, effects.propose)
        if effects.log_start_moved and self._low_waits.waits:
            self._low_waits.release(self.low_watermark)

    def _fail_waits(self, make_error: Callable[[], LograftError]) -> None:
        for waits in (self._commit_waits, self._durable_waits, self._low_waits):
            waits.dismiss(make_error)
        self._notify_opened()
        for wait in list(self.fetch_waits):
            wait.wake()
        self._notify_watchers()

    def _notify_opened(self) -> None:
        opens, self._open_waits = self._open_waits, []
        for future in opens:
            if not future.done():
                future.set_result(None)

    def _notify_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher.on_moved(self)

    # Reading and writing.

    def leader_log(self) -> Log:
        """Returns the log if this node leads the partition; raises the error otherwise."""
        log = self.log
        if self.leader is None or log is None or self.state is OFFLINE:
            raise self._not_leading_error()
        return log

    def _not_leading_error(self) -> LograftError:
        if self.state is OFFLINE and self.leader_id == self.me:
            return PartitionOffline(self.offline)
        if self.is_opening and self.leader_id == self.me:
            return PartitionNotYetOpen(f"the log of {self.topic_partition} is being opened")
        return NotLeader(f"the leader of {self.topic_partition} is broker {self.leader_id}")

    def _not_appending_error(self) -> LograftError:
        if self.leader is None or self.state not in HELD | {ONLINE}:
            return self._not_leading_error()
        return PartitionNotYetOpen(f"the leader of {self.topic_partition} is not ready yet")

    def serving_log(self) -> Log:
        """Returns the log if this node can serve it as leader or follower."""
        if self.follower is None:
            return self.leader_log()
        if self.state is OFFLINE:
            raise PartitionOffline(self.offline)
        if self.kept_offsets is not None or self.log is None:
            raise NotLeader(
                f"the log of {self.topic_partition} is not available: it is being opened, moved or"
                " truncated"
            )
        return self.log

    def check_epoch(self, epoch: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch if a client has another leader epoch.
        `epoch` is -1 if the request contains none."""
        current = self.assignment.leader_epoch
        if epoch in (current, NO_EPOCH):
            return
        if epoch < current:
            raise FencedLeaderEpoch(f"epoch {epoch} is older than {current}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is newer than {current}")

    def append(
        self,
        batches: memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        checked_by: AppendRules | None = None,
        verification: Verification | None = None,
    ) -> AppendResult:
        """Appends to the page cache and advances the high watermark if the commit rule allows it.
        Raises NeedsWorker if the log does."""
        log, directory, leader = self.log, self.directory, self.leader
        if leader is None or self.state is not ONLINE or not self.is_ready:
            raise self._not_appending_error()
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
        if not result.duplicate:
            traffic = self.traffic
            traffic.bytes_in += len(batches)
            traffic.records_in += result.end_offset - result.base_offset
        if leader.on_appended(log.end_offset):
            if self.fetch_waits or self._commit_waits.waits or self.watchers:
                self._uncommitted_bytes += len(batches)
                self.notify_committed()
        else:
            self._uncommitted_bytes += len(batches)
        if self.watchers:
            self._notify_watchers()
        if log.unflushed_files:
            self.flushing.consider_rolled(log)
        if self.flushing.is_on:
            self.flushing.consider(log)
        return result

    def append_marker(self, end: TransactionEnd, *, now_ms: int) -> AppendResult:
        """Ends a producer's transaction on this partition; rejected whenever acks=all appends
        would be."""
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
        """The offset below which no record belongs to an open transaction; at most the high
        watermark."""
        log = self.log
        high_watermark = self.rule.high_watermark
        return high_watermark if log is None else log.last_stable_offset(high_watermark)

    def advance_log_start(self, to: Offset) -> Offset:
        """Advances the log start for DeleteRecords, on leader and followers; returns the new
        one."""
        log = self.serving_log()
        log.advance_start(to)
        self.on_log_start_moved()
        return log.log_start_offset

    def on_log_start_moved(self) -> None:
        """Notifies followers, which delete what their leader has deleted, even without appends."""
        assert self.directory is not None
        self.directory.changes += 1
        self._notify_watchers()

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> None:
        """Appends batches from the leader; the caller reports that to the follower's role."""
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
        self.traffic.replication_bytes_in += len(batches)
        if log.unflushed_files:
            self.flushing.consider_rolled(log)
        if self.flushing.is_on:
            self.flushing.consider(log)

    # Queries that the roles answer.

    def check_append(self, *, acks_all: bool) -> None:
        """Raises NotEnoughReplicas if an append must be rejected."""
        leader = self.leader
        if leader is not None and leader.check_append(acks_all=acks_all) is not NO_ERROR:
            raise NotEnoughReplicas(
                f"{self.topic_partition} has fewer in-sync replicas than"
                f" min.insync.replicas={self.config.min_insync_replicas}"
            )

    def count_delayed(self) -> tuple[int, int, int]:
        """Returns how many requests wait here: produces, fetches of consumers, deletions."""
        return (
            len(self._commit_waits.waits) + len(self._durable_waits.waits),
            len(self.fetch_waits),
            len(self._low_waits.waits),
        )

    @property
    def low_watermark(self) -> Offset:
        """The offset below which all live replicas have deleted their records."""
        log, leader = self.log, self.leader
        if log is None or leader is None:
            return NO_OFFSET
        return leader.low_watermark(log.log_start_offset)

    def statuses(self) -> list[ReplicaStatus]:
        """Returns the status of every replica on the leader; empty on other brokers."""
        log, leader = self.log, self.leader
        return [] if log is None or leader is None else leader.statuses(log.log_start_offset)

    # Flushing: the directory's flusher fsyncs for many partitions at once.

    def on_durable(self) -> None:
        """The flusher has advanced the durable offset of the log."""
        log = self.log
        assert log is not None
        if self.leader is not None and self.leader.on_durable(log.durable_offset):
            self.notify_committed()
        if self._durable_waits.waits:
            self._durable_waits.release(log.durable_offset)
        if self.following is not None:
            self.following.on_flushed()
        if self.flushing.is_on and log.durable_offset < log.end_offset:
            self.flushing.consider(log)

    def request_flush(self) -> None:
        """Requests an fsync of everything appended so far."""
        self.flushing.request()

    def append_control(self, batch: bytearray, *, epoch: Epoch, now_ms: int) -> Offset:
        """Appends a control batch of Raft; returns the new log end offset."""
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
        self._notify_watchers()
        return log.end_offset

    # Waiting.

    def notify_committed(self) -> None:
        """Notifies all waits that the high watermark has advanced."""
        count, self._uncommitted_bytes = self._uncommitted_bytes, 0
        if not self.is_ready and self.leader is not None and self.leader.can_report_latest:
            # The leader has committed the first record of its epoch.
            self._host.role_changed(self)
            self._notify_opened()
        if self.fetch_waits:
            self._notify_readers(count)
        for watcher in self.watchers:
            watcher.on_committed(self)
        if self._commit_waits.waits and self.leader is not None:
            reached = self.leader.high_watermark
            code = self.leader.ack_of(reached)
            assert code is not None, self
            self._commit_waits.release(reached, code)

    def _notify_readers(self, count: int) -> None:
        log = self.log
        assert log is not None
        # The end of a transaction makes all its records readable, much more than the marker's
        # bytes.
        has_ended = log.producers.last_end_offset > self._notified_end
        if has_ended:
            self._notified_end = min(log.producers.last_end_offset, self.high_watermark - 1)
        for wait in list(self.fetch_waits):
            if has_ended:
                wait.wake()
            else:
                wait.add(count)

    def is_acknowledged(self, end: Offset, *, acks_all: bool) -> bool:
        """Whether an append that ended at `end` can be acknowledged now; raises its error if
        any."""
        leader = self.leader
        if leader is None:
            raise self._not_leading_error()
        if not acks_all and not self.flush_before_ack:
            return True
        if not acks_all:
            return self.log is not None and self.log.durable_offset >= end
        code = leader.ack_of(end)
        if code is not NO_ERROR and code is not None:
            self._check_ack(code)
        return code is not None

    def acks_of(self, *, acks_all: bool) -> OffsetWaits:
        """Returns the waits of appends that cannot be acknowledged yet."""
        return self._commit_waits if acks_all else self._durable_waits

    async def wait_committed(
        self, end: Offset, *, timeout_ms: int, leader_epoch: Epoch = NO_EPOCH
    ) -> None:
        """Waits until everything below `end` is committed in the leadership that appended it: a
        later leader may have other records there."""
        self._check_same(leader_epoch)
        if not self.is_acknowledged(end, acks_all=True):
            self._check_ack(
                await self._commit_waits.wait(end, timeout_ms=timeout_ms, what="committed")
            )

    async def wait_flushed(
        self, end: Offset, *, timeout_ms: int, leader_epoch: Epoch = NO_EPOCH
    ) -> None:
        """Waits until everything below `end` is flushed on this replica: for acks=1 if each
        response requires a flush."""
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
        """Returns the error of an acks=all append for a code other than NONE."""
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, code
        return NotEnoughReplicasAfterAppend(
            f"{self.topic_partition} lost in-sync replicas while the records were written"
        )

    async def wait_low_watermark(self, offset: Offset, *, timeout_ms: int) -> None:
        """Waits until all live replicas have deleted everything below `offset`."""
        if self.low_watermark < offset:
            await self._low_waits.wait(offset, timeout_ms=timeout_ms, what="deleted everywhere")

    async def wait_open(self, *, timeout_ms: int) -> None:
        """Waits until the log is open, cannot be opened, or the timeout expires; the caller checks
        again."""
        if not self.is_opening:
            return
        future = asyncio.get_running_loop().create_future()
        self._open_waits.append(future)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            pass
