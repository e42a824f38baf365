"""What a follower does: fetch, cut, append, load a snapshot, and notice that its leader is gone."""

from lograft.consensus.errors import CommittedAtRisk
from lograft.consensus.fetcher import Fetcher, SnapshotDownload
from lograft.consensus.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchResponse,
    FetchSnapshotResponse,
)
from lograft.consensus.roles import Role
from lograft.consensus.types import LogSlice
from lograft.consensus.voter_side import VoterSide
from lograft.model.types import NO_NODE, Offset


class FollowerSide(VoterSide):
    def _on_begin_epoch(self, request: BeginQuorumEpochRequest, now_ms: int) -> None:
        if not self._is_meant(request):
            self._answer(request, Error.WRONG_VOTER)
            return
        if request.epoch < self.epoch or (
            request.epoch == self.epoch and self.leader not in (NO_NODE, request.sender.node_id)
        ):
            self._answer(request, Error.FENCED_EPOCH)
            return
        self._learn(request.epoch, request.sender.node_id, now_ms)
        is_mine = request.sender.node_id == self.leader != self.me.node_id
        if self.role is Role.PROSPECTIVE and is_mine:
            # It had lost patience with this very leader.
            self._become_follower(self.leader, now_ms)
        self._answer(request)

    def _on_end_epoch(self, request: EndQuorumEpochRequest, now_ms: int) -> None:
        if request.epoch < self.epoch:
            self._answer(request, Error.FENCED_EPOCH)
            return
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms)
        follows = self.role is Role.FOLLOWER and self.leader == request.sender.node_id
        if self.is_voter and (follows or self.role in (Role.UNATTACHED, Role.VOTED)):
            nodes = [key.node_id for key in request.successors]
            if self.me.node_id in nodes:
                self._stand_in_turn(nodes.index(self.me.node_id), now_ms, is_named=True)
        self._answer(request)

    def _stand_in_turn(self, position: int, now_ms: int, *, is_named: bool = False) -> None:
        """The leader is known to be gone: the successors stand one slot apart, and meanwhile help
        each other. Hearing of it again, as of every refused connection, puts nothing off. Only the
        turn that a resigning leader names replaces the one that was guessed when it answered a
        fetch with NOT_LEADER, which may arrive before its EndQuorumEpoch."""
        slot_ms = self.settings.succession_slot_ms
        when_ms = now_ms + position * slot_ms + self._chance(max(slot_ms // 2, 1))
        fetcher = self.fetcher
        if fetcher is None:
            self._stand_ms = when_ms
            return
        fetcher.heard = False
        if is_named and not fetcher.has_turn:
            fetcher.has_turn = True
            fetcher.silence_deadline_ms = when_ms
        else:
            fetcher.silence_deadline_ms = min(fetcher.silence_deadline_ms, when_ms)

    def _on_leader_gone(self, fetcher: Fetcher, now_ms: int, *, slots_later: int = 0) -> None:
        if self.is_voter:
            others = [node for node in self.voters.node_ids if node != fetcher.target]
            self._stand_in_turn(others.index(self.me.node_id) + slots_later, now_ms)
        else:
            # An observer asks the next one; not at once, for maybe nobody is there.
            fetcher.silence_deadline_ms = fetcher.next_ms

    def _mind_fetcher(self, fetcher: Fetcher, now_ms: int) -> None:
        if fetcher.in_flight is not None and now_ms >= fetcher.request_deadline_ms:
            fetcher.on_failure(now_ms)
        if now_ms < fetcher.silence_deadline_ms:
            return
        if not self.is_voter:
            self._seek(now_ms)
        elif self.log.durable < self.log.end.offset or self._installing is not None:
            # It did not ask, because its own disk is slow: no reason to stand, but none to stand
            # in the way of others either.
            fetcher.heard = False
            fetcher.silence_deadline_ms = now_ms + self.settings.fetch_timeout_ms
        else:
            self._stand(now_ms)

    def _fetcher_of(
        self, response: FetchResponse | FetchSnapshotResponse, now_ms: int
    ) -> Fetcher | None:
        """The fetcher that waits for this answer; None: nobody does, or it brings an error."""
        if self.is_barred:
            return None
        self._learn(response.epoch, response.leader, now_ms)
        fetcher = self.fetcher
        if (
            fetcher is None
            or fetcher.in_flight != response.request_id
            or fetcher.target != response.sender
        ):
            return None
        is_leaders = response.epoch == self.epoch and response.sender == self.leader
        if response.error is not Error.NONE or not is_leaders or self.role is not Role.FOLLOWER:
            fetcher.on_failure(now_ms)
            if response.error in (Error.SNAPSHOT_NOT_FOUND, Error.POSITION_OUT_OF_RANGE):
                fetcher.download = None
            if not self.is_voter:
                fetcher.silence_deadline_ms = min(fetcher.silence_deadline_ms, fetcher.next_ms)
            elif is_leaders and response.error is Error.NOT_LEADER and fetcher.heard:
                # It resigned, and its EndQuorumEpoch is on its way or lost; or it restarted.
                self._on_leader_gone(fetcher, now_ms, slots_later=1)
            return None
        fetcher.on_answer(now_ms)
        fetcher.on_heard(now_ms)
        return fetcher

    def _on_fetch_response(self, response: FetchResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None:
            return
        if response.snapshot is not None:
            if response.snapshot.end_offset < self.high_watermark:
                raise CommittedAtRisk(f"{response.snapshot} lies below {self.high_watermark}")
            fetcher.download = SnapshotDownload(response.snapshot)
        elif response.diverging is not None:
            self._truncate(self.log.truncation_for(response.diverging))
        else:
            if response.entries is not None:
                self._append(response.entries)
            committed = min(response.high_watermark, self.log.end.offset)
            if committed > self.high_watermark:
                self._commit(committed)

    def _truncate(self, to: Offset) -> None:
        if to < self.high_watermark or to >= self.log.end.offset:
            raise CommittedAtRisk(
                f"the leader of epoch {self.epoch} wants the log cut at {to};"
                f" committed {self.high_watermark}, end {self.log.end.offset}"
            )
        self.log.truncate(to)
        self._wish(truncate=to)

    def _append(self, entries: LogSlice) -> None:
        if not entries.follows(self.log.end):
            raise CommittedAtRisk(f"{entries} does not follow {self.log.end}")
        last = entries.epochs[-1][0]
        if last > self.epoch:
            raise CommittedAtRisk(f"records of epoch {last} from the leader of {self.epoch}")
        self.log.append(entries)
        self._wish(append=entries)

    def _on_fetch_snapshot_response(self, response: FetchSnapshotResponse, now_ms: int) -> None:
        fetcher = self._fetcher_of(response, now_ms)
        if fetcher is None or fetcher.download is None:
            return
        chunk = fetcher.download.on_chunk(response)
        if chunk is None:
            fetcher.on_failure(now_ms)
            return
        self._wish(chunk=chunk)
        if fetcher.download.is_complete:
            fetcher.download = None
            self._installing = chunk.snapshot
            self._wish(install=chunk.snapshot)
