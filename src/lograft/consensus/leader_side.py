"""What a leader does: answer fetches, commit, change the voters, hand over."""

from lograft.consensus.errors import NotLeading
from lograft.consensus.follower_side import FollowerSide
from lograft.consensus.leadership import Leadership
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchSnapshotRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeRequest,
)
from lograft.consensus.roles import Cause
from lograft.consensus.types import LogEnd, SnapshotId, VoterSet
from lograft.consensus.voter_change import Stage, VoterChange, changed, upgraded
from lograft.model.types import NO_OFFSET, NodeId


class LeaderSide(FollowerSide):
    def _leading(self) -> Leadership:
        if self.leadership is None:
            raise NotLeading(f"node {self.me.node_id} does not lead epoch {self.epoch}")
        return self.leadership

    # ── fetches ──────────────────────────────────────────────────────────────────────────────

    def _epoch_error(self, request: FetchRequest | FetchSnapshotRequest) -> Error:
        if request.epoch < self.epoch:
            return Error.FENCED_EPOCH
        if request.epoch > self.epoch:
            return Error.UNKNOWN_EPOCH
        return Error.NOT_LEADER if self.leadership is None else Error.NONE

    def _on_fetch(self, request: FetchRequest, now_ms: int) -> None:
        error = self._epoch_error(request)
        if error is not Error.NONE:
            self._answer(request, error)
            return
        leadership = self._leading()
        leadership.progress_of(request.sender, self.log, now_ms).heard_ms = now_ms
        difference = self.log.compare(request.log_end)
        if isinstance(difference, SnapshotId):
            self._answer(request, snapshot=difference, high_watermark=self.high_watermark)
        elif isinstance(difference, LogEnd):
            self._answer(request, diverging=difference, high_watermark=self.high_watermark)
        else:
            leadership.on_fetch(request.sender, request.log_end.offset, self.log, now_ms)
            # One question at a time: the same replica's older one need not wait any more.
            if (older := leadership.parked.pop(request.sender, None)) is not None:
                self._answer(older[0], high_watermark=self.high_watermark)
            leadership.parked[request.sender] = (request, now_ms + request.wait_ms)
            self._advance(now_ms)
            self._answer_parked(now_ms)

    def _answer_parked(self, now_ms: int) -> None:
        """Those for whom there is something new, or who waited long enough."""
        if self.leadership is None:
            return
        parked = self.leadership.parked
        for sender, (request, deadline_ms) in list(parked.items()):
            has_more = request.log_end.offset < self.log.end.offset
            if has_more or request.high_watermark < self.high_watermark or now_ms >= deadline_ms:
                del parked[sender]
                self._answer(
                    request,
                    high_watermark=self.high_watermark,
                    read_from=request.log_end.offset if has_more else NO_OFFSET,
                )

    def _on_fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> None:
        error = self._epoch_error(request)
        if error is not Error.NONE:
            self._answer(request, error)
            return
        self._leading().progress_of(request.sender, self.log, now_ms).heard_ms = now_ms
        size_bytes = self.snapshots.get(request.snapshot)
        if size_bytes is None:
            self._answer(request, Error.SNAPSHOT_NOT_FOUND)
        elif not 0 <= request.position < size_bytes:
            self._answer(request, Error.POSITION_OUT_OF_RANGE)
        else:
            self._answer(
                request,
                snapshot=request.snapshot,
                position=request.position,
                size_bytes=size_bytes,
            )

    # ── committing ───────────────────────────────────────────────────────────────────────────

    def _advance(self, now_ms: int) -> None:
        """A replica got further: maybe that moves the high watermark, or the voters' change."""
        leadership = self._leading()
        reached = leadership.committed(self.log)
        if reached > self.high_watermark:
            self._commit(reached)
        self._advance_change(now_ms)
        if self.leadership is not None:
            self._answer_parked(now_ms)

    def _on_voter_change(self, request: VoterChangeRequest, now_ms: int) -> None:
        if not self.is_leader:
            self._answer(request, Error.NOT_LEADER)
            return
        if self.log.voters.is_static:
            voters = self._change_static_voters(request)
        elif not self._may_change_voters():
            voters = Error.CHANGE_IN_PROGRESS
        elif isinstance(request, UpgradeVersionRequest):
            voters = Error.NONE  # it has that level
        else:
            voters = changed(self.log.voters, request)
        if isinstance(voters, Error):
            self._answer(request, voters)
            return
        self._leading().change = VoterChange(
            request,
            voters,
            target=self.log.end.offset,
            deadline_ms=now_ms + self.settings.voter_change_timeout_ms,
        )
        self._advance_change(now_ms)

    def _change_static_voters(self, request: VoterChangeRequest) -> VoterSet | Error:
        """Static voters can only become dynamic ones. NONE: there is nothing to append."""
        static, described = self.log.voters, self._leading().described
        match request:
            case UpdateVoterRequest():
                node_id = request.voter.key.node_id
                if static.find(node_id) is None:
                    return Error.VOTER_NOT_FOUND
                described[node_id] = request.voter
                return Error.NONE
            case UpgradeVersionRequest():
                if not self._may_change_voters():
                    return Error.CHANGE_IN_PROGRESS
                mine = request.voter._replace(key=self.me)
                voters = upgraded(static, {**described, self.me.node_id: mine})
                is_checked = request.validate_only and not isinstance(voters, Error)
                return Error.NONE if is_checked else voters
            case _:
                return Error.STATIC_VOTERS

    def _may_change_voters(self) -> bool:
        """One at a time, each committed before the next, and only once this leader has committed
        something of its own epoch."""
        leadership = self._leading()
        return (
            leadership.change is None
            and self.log.voters_offset < self.high_watermark
            and NO_OFFSET < leadership.epoch_start < self.high_watermark
        )

    def _advance_change(self, now_ms: int) -> None:
        leadership = self._leading()
        change = leadership.change
        if change is not None and change.stage is Stage.CATCHING_UP:
            newcomer = change.newcomer
            if newcomer is None or (
                leadership.progress_of(newcomer, self.log, now_ms).durable >= change.target
            ):
                change.stage = Stage.APPENDING
                self._wish(append_voters=change.voters)
        elif change is not None and NO_OFFSET < change.end <= self.high_watermark:
            leadership.change = None
            self._answer(change.request)
        if not self.is_voter and self.log.voters_offset < self.high_watermark:
            # It led its own removal; that is done, and the others go on without it.
            self._resign(now_ms)

    # ── time ─────────────────────────────────────────────────────────────────────────────────

    def _tend(self, now_ms: int) -> None:
        """What time does to a leader."""
        leadership = self._leading()
        majority_ms = leadership.majority_deadline_ms(self.log)
        disk_ms = leadership.disk_deadline_ms()
        if (majority_ms is not None and now_ms >= majority_ms) or (
            disk_ms is not None and now_ms >= disk_ms
        ):
            self._resign(now_ms)
            return
        change = leadership.change
        if change is not None and now_ms >= change.deadline_ms:
            leadership.change = None
            self._answer(change.request, Error.TIMED_OUT)
        self._answer_parked(now_ms)
        self._begin_epoch(now_ms)

    def _begin_epoch(self, now_ms: int) -> None:
        for key in self._leading().to_begin(self.log, now_ms):
            request = BeginQuorumEpochRequest(
                sender=self.me,
                to=key,
                epoch=self.epoch,
                request_id=self._number(),
                life=self.life,
            )
            self._send(key.node_id, request)

    def _resign(self, now_ms: int, preferred: NodeId | None = None) -> None:
        """Tells the voters in whose turn to stand; stands itself only after all of them."""
        successors = self._leading().successors(self.log, preferred)
        for key in successors:
            request = EndQuorumEpochRequest(
                sender=self.me,
                epoch=self.epoch,
                successors=successors,
                request_id=self._number(),
                life=self.life,
            )
            self._send(key.node_id, request)
        self._leave_role()
        self._move(Cause.RESIGNATION)
        if self.is_voter:
            self._stand_ms = now_ms + 2 * self._election_timeout_ms()
        else:
            self._seek(now_ms)
