"""Leader and follower of a partition in raft mode, with the interfaces of `roles.py`.

The core exchanges messages. These classes convert a fetch on the stream between two nodes into a
message, and the core's response into a verdict or effects. The core never delays a fetch (its wait
is 0), since the long poll of the stream does that for all partitions together.
"""

from typing import TYPE_CHECKING, Final
from uuid import UUID

from lograft.consensus.errors import CommittedAtRisk
from lograft.consensus.leadership import Progress
from lograft.consensus.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    RenameVoterRequest,
)
from lograft.consensus.types import LogEnd, LogSlice, ReplicaKey
from lograft.model.errors import ErrorCode
from lograft.model.types import (
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    ZERO_UUID,
    BrokerEpoch,
    NodeId,
    Offset,
)
from lograft.replication.errors import TruncatesCommitted
from lograft.replication.raft_port import epochs_of_records
from lograft.replication.replica_view import NEVER_MS, ReplicaStatus
from lograft.replication.types import (
    ACCEPTED,
    NO_BROKER_EPOCH,
    NO_EFFECTS,
    NO_EPOCH_END,
    NO_FOLLOWER_EFFECTS,
    AcceptedIsr,
    Effects,
    EpochEnd,
    FetchVerdict,
    FollowerEffects,
    FollowerFetch,
    IsrProposal,
    LeaderResponse,
)

if TYPE_CHECKING:
    from lograft.replication.raft_replica import RaftReplica

#: A follower counts as in sync if it was caught up, and sent a sign of life, within this time.
IN_SYNC_MS: Final = 10_000
CODE_OF: Final = {
    Error.FENCED_EPOCH: ErrorCode.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_EPOCH: ErrorCode.UNKNOWN_LEADER_EPOCH,
    Error.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Error.WRONG_LIFE: ErrorCode.FENCED_LEADER_EPOCH,
    Error.INVALID: ErrorCode.INVALID_REQUEST,
}
ERROR_OF: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: Error.FENCED_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Error.UNKNOWN_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Error.NOT_LEADER,
}


class RaftLeader:
    """The leader of a partition in raft mode (`roles.LeaderRole`)."""

    __slots__ = ("_log_starts", "_moved", "_replica", "leader_epoch")

    def __init__(self, replica: "RaftReplica") -> None:
        self._replica = replica
        self.leader_epoch = replica.core.epoch
        #: Log start offsets of the followers, from their last fetches.
        self._log_starts: dict[NodeId, Offset] = {}
        #: Followers that, according to their last fetch, moved to another log dir than that in the
        #: voter set: the key in use, and the log dir.
        self._moved: dict[NodeId, tuple[ReplicaKey, UUID]] = {}

    @property
    def high_watermark(self) -> Offset:
        return self._replica.high_watermark

    # The commit rule.

    def on_appended(self, end: Offset) -> bool:
        replica = self._replica
        if end <= replica.core.log.end.offset:
            # The core requested this append (a control batch) and knows it already.
            return False
        now_ms = replica.port.now_ms()
        if replica.core.note_appended(end, now_ms):
            replica.report_deadline()
            return False
        return replica.execute(replica.core.on_appended(end, now_ms))

    def on_durable(self, durable: Offset) -> bool:
        return self._replica.on_durable(durable)

    # Acknowledgements and reading.

    @property
    def is_serving(self) -> bool:
        """Whether a record of the leader's epoch is committed. Only from then on is it certain that
        the records acknowledged by earlier leaders are present and committed."""
        core = self._replica.core
        leadership = core.leadership
        return (
            leadership is not None
            and core.is_leader
            and self._replica.successor is None
            and leadership.epoch_start != NO_OFFSET
            and core.high_watermark > leadership.epoch_start
        )

    def check_append(self, *, acks_all: bool) -> ErrorCode:
        return ErrorCode.NONE if self.is_serving else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def ack_of(self, end: Offset) -> ErrorCode | None:
        return ErrorCode.NONE if end <= self.high_watermark else None

    @property
    def can_report_latest(self) -> bool:
        return self.is_serving

    def low_watermark(self, log_start: Offset) -> Offset:
        """Followers without recent contact do not hold the low watermark back."""
        core, now_ms = self._replica.core, self._replica.port.now_ms()
        lowest = log_start
        if core.leadership is not None:
            for progress in core.leadership.replicas():
                its_start = self._log_starts.get(progress.key.node_id, log_start)
                if its_start < lowest and now_ms - progress.last_contact_ms <= IN_SYNC_MS:
                    lowest = its_start
        return lowest

    def statuses(self, log_start: Offset) -> list[ReplicaStatus]:
        core, now_ms = self._replica.core, self._replica.port.now_ms()
        end = core.log.end.offset
        me = core.me.node_id
        own = ReplicaStatus(me, log_start, end, 0, True, now_ms, now_ms, NO_BROKER_EPOCH)
        found = [own]
        if core.leadership is None:
            return found
        for progress in core.leadership.replicas():
            node = progress.key.node_id
            durable = progress.durable
            known = durable != NO_OFFSET
            caught_up_ms = progress.caught_up_ms
            if known and durable >= end:
                # The polls of an idle follower carry no offsets.
                caught_up_ms = max(caught_up_ms, progress.last_contact_ms)
            found.append(
                ReplicaStatus(
                    node,
                    self._log_starts.get(node, NO_OFFSET),
                    durable,
                    max(0, end - durable) if known else -1,
                    known and self._keeps_up(progress, now_ms),
                    progress.last_contact_ms if known else NEVER_MS,
                    caught_up_ms if caught_up_ms >= 0 else NEVER_MS,
                    NO_BROKER_EPOCH,
                )
            )
        return found

    def _keeps_up(self, progress: Progress, now_ms: int) -> bool:
        """Whether the follower is reported as in sync; the commit rule does not use it. An idle
        follower sends no fetches for the partition, but polls on the stream. One without contact is
        not in sync, whatever it has on disk."""
        core = self._replica.core
        alive_ms = self._replica.alive_ms.get(progress.key.node_id, NEVER_MS)
        if now_ms - max(progress.last_contact_ms, alive_ms) > IN_SYNC_MS:
            return False
        caught_up = now_ms - progress.caught_up_ms <= IN_SYNC_MS and progress.caught_up_ms >= 0
        return core.log.voters.has(progress.key) and (
            caught_up or progress.durable >= core.high_watermark
        )

    # Followers.

    def on_follower_fetch(
        self, fetch: FollowerFetch, *, log_start: Offset, epoch_end: EpochEnd, now_ms: int
    ) -> FetchVerdict:
        error = self._check_fetch(fetch, log_start=log_start, epoch_end=epoch_end)
        if error is not ErrorCode.NONE:
            return FetchVerdict(error, None, NO_EFFECTS)
        replica = self._replica
        sender = ReplicaKey(fetch.node_id, fetch.directory_id)
        voter = replica.core.voters.find(fetch.node_id)
        if fetch.life == NO_EPOCH and voter is not None:
            # It still follows the rules of isr mode in the first epoch of the life, and so sends
            # no directory id.
            sender = voter.key
        if fetch.moved_to != ZERO_UUID and fetch.life != NO_EPOCH:
            self._moved[fetch.node_id] = sender, fetch.moved_to
        elif self._moved:
            self._moved.pop(fetch.node_id, None)
        log_end = LogEnd(fetch.last_fetched_epoch, fetch.offset)
        if fetch.leader_epoch == replica.core.epoch:
            plain = replica.core.note_progress(now_ms, sender=sender, log_end=log_end)
            if plain is not None:
                self._log_starts[fetch.node_id] = fetch.log_start_offset
                if replica.successor is not None:
                    replica.advance_hand_over()
                if not plain:
                    return ACCEPTED
                return FetchVerdict(
                    ErrorCode.NONE, None, Effects(high_watermark=replica.high_watermark)
                )
        request = FetchRequest(
            sender=sender, epoch=fetch.leader_epoch, log_end=log_end, life=replica.core.life
        )
        moved = replica.execute(replica.core.step(request, now_ms))
        response = replica.take_response()
        if response is None:
            # The response is held back until a newer epoch is on disk: this is no longer the
            # leader.
            return FetchVerdict(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, NO_EFFECTS)
        if response.error is not Error.NONE:
            return FetchVerdict(CODE_OF[response.error], None, NO_EFFECTS)
        effects = Effects(high_watermark=replica.high_watermark) if moved else NO_EFFECTS
        if response.diverging is not None:
            diverging = EpochEnd(response.diverging.epoch, response.diverging.offset)
            return FetchVerdict(ErrorCode.NONE, diverging, effects)
        self._log_starts[fetch.node_id] = fetch.log_start_offset
        if replica.successor is not None:
            replica.advance_hand_over()
        return FetchVerdict(ErrorCode.NONE, None, effects) if moved else ACCEPTED

    def find_moved_voter(self) -> RenameVoterRequest | None:
        """Returns the change for a voter whose log dir differs from that in the voter set, or is
        missing there. Only the voter itself can confirm that it is the same replica: a node with a
        new disk has lost its votes."""
        core = self._replica.core
        if core.unlisted_directory != ZERO_UUID:
            voter = core.voters.find(core.key.node_id)
            assert voter is not None, core.key
            return RenameVoterRequest(key=voter.key, directory_id=core.unlisted_directory)
        for key, directory_id in self._moved.values():
            voter = core.voters.find(key.node_id)
            if voter is None or voter.key.directory_id == directory_id:
                continue
            if voter.key.matches(key):
                return RenameVoterRequest(key=voter.key, directory_id=directory_id)
        return None

    def _check_fetch(
        self, fetch: FollowerFetch, *, log_start: Offset, epoch_end: EpochEnd
    ) -> ErrorCode:
        core = self._replica.core
        if fetch.life != core.life and not (
            # It does not know yet that its entering epoch has become the start of a life.
            fetch.life == NO_EPOCH and fetch.leader_epoch == core.epoch == core.life
        ):
            is_behind = fetch.life > core.life
            return ErrorCode.UNKNOWN_LEADER_EPOCH if is_behind else ErrorCode.FENCED_LEADER_EPOCH
        if fetch.node_id not in self._replica.replicas:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if fetch.offset < log_start:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if fetch.last_fetched_epoch != NO_EPOCH and epoch_end == NO_EPOCH_END:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if fetch.last_fetched_epoch == NO_EPOCH and fetch.offset > core.log.end.offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def on_follower_poll(
        self, node_id: NodeId, *, broker_epoch: BrokerEpoch, now_ms: int
    ) -> Effects:
        """Records the sign of life, which is reported to the core at its next deadline and mostly
        just postpones it."""
        self._replica.alive_ms[node_id] = now_ms
        return NO_EFFECTS

    def on_follower_alive(self, node_id: NodeId, *, now_ms: int) -> None:
        """Records the sign of life for the quorum check; the replica's durable offset is
        unchanged."""
        self._replica.alive_ms[node_id] = now_ms

    # In raft mode the leader does not manage an ISR.

    def tick(self, now_ms: int) -> Effects:
        return NO_EFFECTS

    def on_accepted(self, proposal: IsrProposal, accepted: AcceptedIsr, *, now_ms: int) -> Effects:
        return NO_EFFECTS

    def on_rejected(self, proposal: IsrProposal, error: ErrorCode) -> Effects:
        return NO_EFFECTS


class RaftFollower:
    """The follower of a partition in raft mode (`roles.FollowerRole`)."""

    __slots__ = ("_replica", "_response", "_sent", "is_truncating", "leader", "leader_epoch")

    def __init__(self, replica: "RaftReplica", leader: NodeId) -> None:
        self._replica = replica
        self.leader = leader
        self.leader_epoch = replica.core.epoch
        self._sent: tuple[FollowerFetch, FetchRequest] | None = None
        self._response = LeaderResponse()
        #: The shell is truncating the log: nothing may be decided.
        self.is_truncating = False

    @property
    def high_watermark(self) -> Offset:
        return self._replica.high_watermark

    @property
    def retry_at_ms(self) -> int:
        fetcher = self._replica.core.fetcher
        return 0 if fetcher is None else fetcher.next_ms

    @property
    def waits_for_flush(self) -> bool:
        log = self._replica.log
        return log.durable_offset < log.end_offset

    def next_fetch(self, now_ms: int) -> FollowerFetch | None:
        replica = self._replica
        if self.is_truncating or replica.follower is not self:
            return None
        replica.on_durable(replica.log.durable_offset)
        request = replica.take_request(now_ms)
        if request is None or replica.follower is not self:
            return None
        fetch = FollowerFetch(
            replica.core.me.node_id,
            replica.broker_epoch,
            request.epoch,
            request.log_end.offset,
            request.log_end.epoch,
            replica.log.log_start_offset,
            request.life,
            replica.core.me.directory_id,
            replica.core.unlisted_directory,
        )
        self._sent = (fetch, request)
        return fetch

    def _request_in_flight(self, fetch: FollowerFetch) -> FetchRequest | None:
        sent, replica = self._sent, self._replica
        if sent is None or sent[0] is not fetch or replica.follower is not self:
            return None
        fetcher = replica.core.fetcher
        if fetcher is None or fetcher.in_flight != sent[1].request_id or replica.is_truncating:
            return None
        return sent[1]

    def on_response(
        self, fetch: FollowerFetch, response: LeaderResponse, *, now_ms: int
    ) -> FollowerEffects:
        request = self._request_in_flight(fetch)
        if request is None:
            return NO_FOLLOWER_EFFECTS
        if response.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return FollowerEffects(fetch_bounds=True)
        if response.error is not ErrorCode.NONE:
            return self._on_error_response(request, response, now_ms)
        if self._is_all_deleted(response.log_start_offset):
            return self._restart_log(response.log_start_offset)
        self._response = response
        if response.has_records:
            return FollowerEffects(append=True)
        diverging = None
        if response.diverging is not None:
            diverging = LogEnd(response.diverging.epoch, response.diverging.end_offset)
        return self._step(request, now_ms, diverging=diverging)

    def _on_error_response(
        self, request: FetchRequest, response: LeaderResponse, now_ms: int
    ) -> FollowerEffects:
        error = ERROR_OF.get(response.error)
        replica = self._replica
        if error is None:
            replica.execute(replica.core.on_request_failed(request.request_id, now_ms))
            return NO_FOLLOWER_EFFECTS
        message = FetchResponse(
            sender=self.leader,
            epoch=response.leader_epoch if response.leader_epoch != NO_EPOCH else request.epoch,
            leader=response.leader if response.leader_epoch != NO_EPOCH else NO_NODE,
            error=error,
            request_id=request.request_id,
        )
        replica.execute(replica.core.step(message, now_ms))
        return NO_FOLLOWER_EFFECTS

    def _step(
        self,
        request: FetchRequest,
        now_ms: int,
        *,
        diverging: LogEnd | None = None,
        entries: LogSlice | None = None,
    ) -> FollowerEffects:
        replica = self._replica
        response = FetchResponse(
            sender=self.leader,
            epoch=request.epoch,
            leader=self.leader,
            high_watermark=self._response.high_watermark,
            diverging=diverging,
            entries=entries,
            request_id=request.request_id,
        )
        try:
            moved = replica.execute(replica.core.step(response, now_ms))
        except CommittedAtRisk as error:
            cut = NO_OFFSET if diverging is None else diverging.offset
            raise TruncatesCommitted(cut, high_watermark=replica.high_watermark) from error
        truncate_to = replica.take_truncation()
        if truncate_to is not None:
            self.is_truncating = True
            return FollowerEffects(truncate_to=truncate_to)
        start = self._response.log_start_offset
        advance = (
            start
            if replica.log.log_start_offset < start <= replica.high_watermark
            and start <= replica.log.end_offset
            else None
        )
        if not moved and advance is None:
            return NO_FOLLOWER_EFFECTS
        return FollowerEffects(
            high_watermark=replica.high_watermark if moved else None, advance_log_start=advance
        )

    def on_request_failed(self, fetch: FollowerFetch, *, now_ms: int) -> None:
        request = self._request_in_flight(fetch)
        if request is not None:
            self._replica.execute(self._replica.core.on_request_failed(request.request_id, now_ms))

    def on_appended(self) -> FollowerEffects:
        """The records of the response are in the log: reports them to the core."""
        replica = self._replica
        assert self._sent is not None
        request = self._sent[1]
        now_ms = replica.port.now_ms()
        base, end = replica.core.log.end.offset, replica.log.end_offset
        if end == base:
            return self._step(request, now_ms)
        entries = LogSlice(
            base,
            end,
            tuple(epochs_of_records(replica.port.epochs(), start=base, end=end)),
            tuple(replica.port.voters_since(base)),
        )
        return self._step(request, now_ms, entries=entries)

    def on_append_failed(self, *, now_ms: int) -> None:
        assert self._sent is not None
        self._replica.execute(
            self._replica.core.on_request_failed(self._sent[1].request_id, now_ms)
        )

    # Out of range: the leader has deleted the records that this replica would fetch next.

    def _is_all_deleted(self, leader_start: Offset) -> bool:
        log = self._replica.log
        return log.log_start_offset < log.end_offset < leader_start

    def on_leader_bounds(
        self, error: ErrorCode, *, log_start: Offset, end: Offset, now_ms: int
    ) -> FollowerEffects:
        assert self._sent is not None
        fetch, request = self._sent
        if self._request_in_flight(fetch) is None:
            return NO_FOLLOWER_EFFECTS
        replica = self._replica
        if error is ErrorCode.NONE and log_start > replica.log.end_offset:
            return self._restart_log(log_start)
        keep = max(replica.high_watermark, log_start)
        if error is ErrorCode.NONE and keep < replica.log.end_offset:
            # Above the committed offset, this log has no records in common with the leader's.
            replica.core.log.truncate(Offset(keep))
            self.is_truncating = True
            return FollowerEffects(truncate_to=Offset(keep))
        replica.execute(replica.core.on_request_failed(request.request_id, now_ms))
        return NO_FOLLOWER_EFFECTS

    def _restart_log(self, leader_start: Offset) -> FollowerEffects:
        self.is_truncating = True
        return FollowerEffects(restart_at=leader_start)

    def on_log_truncated(self) -> FollowerEffects:
        """The log was truncated to the offset, or to the start of the batch that contains it."""
        self.is_truncating = False
        before = self._replica.high_watermark
        self._replica.on_log_truncated()
        after = self._replica.high_watermark
        if after == before:
            return NO_FOLLOWER_EFFECTS
        return FollowerEffects(high_watermark=after)
