"""Finds the position of every partition that has none: the committed offset of the group, otherwise
that of the reset policy. Also validates positions after a change of leader, and checks whether the
group may read partitions that the application has assigned itself, which are not fetched before.

A task does this whenever a partition needs it, and retries with a backoff.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from lograft.client.consuming.offset_lookup import EpochEnd, FoundOffset, OffsetLookup
from lograft.client.consuming.reset_policy import EARLIEST, LATEST, ResetKind, ResetPolicy
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.consuming.subscription import (
    PartitionState,
    Position,
    Status,
    Subscription,
)
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, LogTruncated, NoPosition, UnsupportedByBroker
from lograft.client.types import OffsetAndMetadata, TopicPartition
from lograft.model.types import NO_EPOCH

LOGGER: Final = logging.getLogger(__name__)

#: Returns the committed offsets of the partitions that have one. Raises ClientError.
FetchCommitted: TypeAlias = Callable[
    [set[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]
]
#: Raises ClientError if the group may not read one of the partitions.
CheckAccess: TypeAlias = Callable[[set[TopicPartition]], Awaitable[None]]


class Positions:
    def __init__(
        self,
        core: ClientCore[ConsumerSettings],
        subscription: Subscription,
        lookup: OffsetLookup,
        *,
        fetch_committed: FetchCommitted | None,
        on_change: Callable[[], None],
        check_access: CheckAccess | None = None,
    ) -> None:
        """`fetch_committed`, `check_access`: None without a group; `on_change`: a partition can be
        fetched now, or has an error."""
        self._core = core
        self._subscription = subscription
        self._lookup = lookup
        self._fetch_committed = fetch_committed
        self._check_access = check_access
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._round = asyncio.Event()
        self._policy = core.settings.reset_policy

    def start(self) -> None:
        self._core.metadata.on_update(self._on_metadata)
        self._core.runtime.spawn(self._run(), name="consumer positions")

    def wake(self) -> None:
        self._wake.set()

    async def wait_for_round(self, deadline_ms: int) -> None:
        """Waits until all partitions have been checked once more, or until the deadline."""
        timeout_ms = max(0, deadline_ms - self._core.now_ms())
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self._wake.set()
                await self._round.wait()
        except TimeoutError:
            pass

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            if not any(map(_needs_position, self._subscription)):
                self._complete_round()
                await self._wake.wait()
                continue
            failed = await self._find_positions()
            self._complete_round()
            failures = failures + 1 if failed else 0
            if failed:
                await self._lookup.back_off(failures)

    def _complete_round(self) -> None:
        # Wakes the current waiters; later ones wait for the next round.
        self._round.set()
        self._round.clear()
        self._on_change()

    async def _find_positions(self) -> bool:
        """Runs one round. Returns whether a request has to be retried."""
        failed = await self._check_admission()
        failed |= await self._use_committed_offsets()
        failed |= await self._reset()
        failed |= await self._validate()
        return failed

    # ── access of the group ──────────────────────────────────────────────────────────────────

    async def _check_admission(self) -> bool:
        """Checks the partitions whose position the application has set. The others are admitted by
        the response that contains their committed offset."""
        states = [
            state
            for state in self._subscription
            if not state.is_admitted and state.status is not Status.UNKNOWN and not state.error
        ]
        if not states:
            return False
        versions = {state.partition: state.version for state in states}
        if self._check_access is not None:
            try:
                await self._check_access(set(versions))
            except ClientError as error:
                if not error.is_retriable:
                    self._fail(states, versions, error)
                return True
        for state in states:
            state.is_admitted = True
        return False

    # ── committed offsets ────────────────────────────────────────────────────────────────────

    async def _use_committed_offsets(self) -> bool:
        states = self._states_with(Status.UNKNOWN)
        if not states:
            return False
        offsets: Mapping[TopicPartition, OffsetAndMetadata] = {}
        versions = {state.partition: state.version for state in states}
        if self._fetch_committed is not None:
            try:
                offsets = await self._fetch_committed(set(versions))
            except ClientError as error:
                if not error.is_retriable:
                    self._fail(states, versions, error)
                return True
        for state in states:
            state.is_admitted = True
            if state.version != versions[state.partition]:
                continue
            committed = offsets.get(state.partition)
            if committed is not None:
                state.seek(Position(committed.offset, committed.leader_epoch))
            elif self._policy.kind is ResetKind.NONE:
                state.error = NoPosition(
                    f"{state.partition}: there is no committed offset, and auto.offset.reset is"
                    " none: seek to an offset, or change auto.offset.reset"
                )
            else:
                state.request_reset(self._policy)
        return False

    # ── offsets of the reset policy ──────────────────────────────────────────────────────────

    async def _reset(self) -> bool:
        states = self._states_with(Status.RESETTING)
        if not states:
            return False
        versions = {state.partition: state.version for state in states}
        now_ms = self._core.runtime.clock.wall_ms()
        timestamps = {state.partition: _timestamp(state.reset, now_ms) for state in states}
        outcome = await self._lookup.request_offsets(timestamps)
        without_record = {
            partition: LATEST for partition, found in outcome.found.items() if found.offset < 0
        }
        if without_record:
            # No record is as recent as the duration requires: start at the end.
            outcome.found.update((await self._lookup.request_offsets(without_record)).found)
        for state in states:
            if state.version != versions[state.partition]:
                continue
            found: FoundOffset | None = outcome.found.get(state.partition)
            error = outcome.failed.get(state.partition)
            if error is not None and not error.is_retriable:
                state.error = error
            elif found is not None and found.offset >= 0:
                LOGGER.info("reset the position of %s to offset %d", state.partition, found.offset)
                state.seek(Position(found.offset))
        return any(map(_is_resetting, states))

    # ── validation after a change of leader ──────────────────────────────────────────────────

    def _on_metadata(self) -> None:
        for state in self._subscription:
            if state.status is Status.FETCHING:
                known = self._core.metadata.cache.partition(*state.partition)
                if known is None or known.leader_epoch in (NO_EPOCH, state.leader_epoch):
                    continue
                if state.fetch_position.epoch in (NO_EPOCH, known.leader_epoch):
                    # Nothing to compare, or this leader itself wrote the last record.
                    state.leader_epoch = known.leader_epoch
                else:
                    state.start_validation()
        self.wake()

    async def _validate(self) -> bool:
        states = self._states_with(Status.VALIDATING)
        if not states:
            return False
        cache = self._core.metadata.cache
        requested: dict[TopicPartition, tuple[int, int, Position]] = {}
        for state in states:
            known = cache.partition(*state.partition)
            epoch = NO_EPOCH if known is None else known.leader_epoch
            requested[state.partition] = state.version, epoch, state.fetch_position
        outcome = await self._lookup.request_epoch_ends(
            {partition: position.epoch for partition, (_, _, position) in requested.items()}
        )
        for state in states:
            version, leader_epoch, position = requested[state.partition]
            if state.version != version or state.status is not Status.VALIDATING:
                continue
            error = outcome.failed.get(state.partition)
            if isinstance(error, UnsupportedByBroker):
                state.complete_validation(leader_epoch)
            elif error is not None and not error.is_retriable:
                state.error = error
            elif error is None:
                self._compare(state, position, outcome.found[state.partition], leader_epoch)
        return any(state.status is Status.VALIDATING and not state.error for state in states)

    def _compare(
        self, state: PartitionState, position: Position, end: EpochEnd, leader_epoch: int
    ) -> None:
        """Compares a position with the end of its epoch in the leader's log. A fetch that was in
        flight may have advanced the fetch position since the request was sent; then the response
        does not cover the new records, and the request is repeated."""
        if end.end_offset < 0 or end.epoch < 0:
            self._handle_truncation(state, None)
        elif end.end_offset < position.offset:
            self._handle_truncation(state, Position(end.end_offset, end.epoch))
        elif position == state.fetch_position:
            state.complete_validation(leader_epoch)

    def _handle_truncation(self, state: PartitionState, shared: Position | None) -> None:
        """The leader's log diverges from the fetched one at `shared`; None: that is not known."""
        position = state.fetch_position
        what = (
            f"{state.partition}: offset {position.offset} of epoch {position.epoch} is not in the"
            " log of the new leader"
        )
        if self._policy.kind is ResetKind.NONE:
            state.error = LogTruncated(
                f"{what}: the log was truncated, and records that were fetched are lost; seek to"
                " continue"
            )
            return
        if shared is None:
            LOGGER.warning("%s; resetting its position", what)
            state.request_reset(self._policy)
            return
        LOGGER.warning("%s; continuing at offset %d", what, shared.offset)
        state.seek(min(state.position, shared))

    # ── common parts ─────────────────────────────────────────────────────────────────────────

    def _states_with(self, status: Status) -> list[PartitionState]:
        return [state for state in self._subscription if _has_status(state, status)]

    def _fail(
        self,
        states: list[PartitionState],
        versions: Mapping[TopicPartition, int],
        error: ClientError,
    ) -> None:
        for state in states:
            if state.version == versions[state.partition]:
                state.error = error


def _has_status(state: PartitionState, status: Status) -> bool:
    return state.status is status and state.error is None


def _needs_position(state: PartitionState) -> bool:
    return state.error is None and not (state.status is Status.FETCHING and state.is_admitted)


def _is_resetting(state: PartitionState) -> bool:
    return _has_status(state, Status.RESETTING)


def _timestamp(policy: ResetPolicy | None, now_ms: int) -> int:
    timestamp = None if policy is None else policy.timestamp(now_ms)
    return EARLIEST if timestamp is None else timestamp
