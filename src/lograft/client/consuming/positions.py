"""Finds a position for every partition that has none: what the group has committed, else what the
policy says; and makes sure that a new leader's log goes on where we stopped reading. Partitions
that a program assigns itself for a group are fetched once the brokers let that group read them.

A task works while there is something to find; it asks again after a back-off what failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from lograft.client.consuming.offset_lookup import EpochEnd, Found, OffsetLookup
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

#: Asks for what a group has committed; partitions without are left out. Raises ClientError.
Committed: TypeAlias = Callable[
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
        committed: Committed | None,
        on_news: Callable[[], None],
        check_access: CheckAccess | None = None,
    ) -> None:
        """`committed`, `check_access`: None where there is no group; `on_news`: something can be
        fetched now, or somebody is to be told of an error."""
        self._core = core
        self._subscription = subscription
        self._lookup = lookup
        self._committed = committed
        self._check_access = check_access
        self._on_news = on_news
        self._wake = asyncio.Event()
        self._round = asyncio.Event()
        self._policy = core.settings.reset_policy

    def start(self) -> None:
        self._core.metadata.on_update(self._on_metadata)
        self._core.runtime.spawn(self._run(), name="consumer positions")

    def wake(self) -> None:
        self._wake.set()

    async def next_round(self, deadline_ms: int) -> None:
        """Waits until the partitions have been looked at once more, or until the deadline."""
        rest_ms = max(0, deadline_ms - self._core.now_ms())
        try:
            async with asyncio.timeout(rest_ms / 1000):
                self._wake.set()
                await self._round.wait()
        except TimeoutError:
            pass

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            if not any(map(_needs_position, self._subscription)):
                self._tell()
                await self._wake.wait()
                continue
            failed = await self._find()
            self._tell()
            failures = failures + 1 if failed else 0
            if failed:
                await self._lookup.back_off(failures)

    def _tell(self) -> None:
        # Who waits now is woken, who waits from now on is not.
        self._round.set()
        self._round.clear()
        self._on_news()

    async def _find(self) -> bool:
        """One round; whether something has to be asked for again."""
        failed = await self._admit()
        failed |= await self._take_committed()
        failed |= await self._reset()
        failed |= await self._validate()
        return failed

    # ── whether the group may read ────────────────────────────────────────────────────────────

    async def _admit(self) -> bool:
        """For partitions whose position the program has set. The others are admitted by the answer
        with their committed offset."""
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

    # ── what the group has committed ─────────────────────────────────────────────────────────

    async def _take_committed(self) -> bool:
        states = self._in(Status.UNKNOWN)
        if not states:
            return False
        committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        versions = {state.partition: state.version for state in states}
        if self._committed is not None:
            try:
                committed = await self._committed(set(versions))
            except ClientError as error:
                if not error.is_retriable:
                    self._fail(states, versions, error)
                return True
        for state in states:
            state.is_admitted = True
            if state.version != versions[state.partition]:
                continue
            found = committed.get(state.partition)
            if found is not None:
                state.seek(Position(found.offset, found.leader_epoch))
            elif self._policy.kind is ResetKind.NONE:
                state.error = NoPosition(
                    f"{state.partition}: nothing is committed, and auto.offset.reset is none: seek,"
                    " or choose another auto.offset.reset"
                )
            else:
                state.request_reset(self._policy)
        return False

    # ── what the policy says ─────────────────────────────────────────────────────────────────

    async def _reset(self) -> bool:
        states = self._in(Status.RESETTING)
        if not states:
            return False
        versions = {state.partition: state.version for state in states}
        now_ms = self._core.runtime.clock.wall_ms()
        wanted = {state.partition: _timestamp(state.reset, now_ms) for state in states}
        answers = await self._lookup.ask(wanted)
        beyond = {one: LATEST for one, found in answers.found.items() if found.offset < 0}
        if beyond:
            # Nothing is as young as the duration says: what comes next is.
            answers.found.update((await self._lookup.ask(beyond)).found)
        for state in states:
            if state.version != versions[state.partition]:
                continue
            found: Found | None = answers.found.get(state.partition)
            error = answers.failed.get(state.partition)
            if error is not None and not error.is_retriable:
                state.error = error
            elif found is not None and found.offset >= 0:
                LOGGER.info("%s is read from offset %d on", state.partition, found.offset)
                state.seek(Position(found.offset))
        return any(map(_is_resetting, states))

    # ── whether the leader's log goes on where we are ────────────────────────────────────────

    def _on_metadata(self) -> None:
        for state in self._subscription:
            if state.status is Status.FETCHING:
                known = self._core.metadata.cache.partition(*state.partition)
                if known is None or known.leader_epoch in (NO_EPOCH, state.leader_epoch):
                    continue
                if state.fetch_position.epoch in (NO_EPOCH, known.leader_epoch):
                    # Nothing to compare, or what we read last was written by this very leader.
                    state.leader_epoch = known.leader_epoch
                else:
                    state.validate()
        self.wake()

    async def _validate(self) -> bool:
        states = self._in(Status.VALIDATING)
        if not states:
            return False
        cache = self._core.metadata.cache
        asked: dict[TopicPartition, tuple[int, int, Position]] = {}
        for state in states:
            known = cache.partition(*state.partition)
            epoch = NO_EPOCH if known is None else known.leader_epoch
            asked[state.partition] = state.version, epoch, state.fetch_position
        answers = await self._lookup.ask_epochs(
            {partition: place.epoch for partition, (_, _, place) in asked.items()}
        )
        for state in states:
            version, leader_epoch, place = asked[state.partition]
            if state.version != version or state.status is not Status.VALIDATING:
                continue
            error = answers.failed.get(state.partition)
            if isinstance(error, UnsupportedByBroker):
                state.validated(leader_epoch)
            elif error is not None and not error.is_retriable:
                state.error = error
            elif error is None:
                self._compare(state, place, answers.found[state.partition], leader_epoch)
        return any(state.status is Status.VALIDATING and not state.error for state in states)

    def _compare(
        self, state: PartitionState, place: Position, end: EpochEnd, leader_epoch: int
    ) -> None:
        """A fetch that was under way may have brought records since we asked about `place`: the
        answer is older than they are, and says nothing about them. It is asked for again then."""
        if end.end_offset < 0 or end.epoch < 0:
            self._truncated(state, None)
        elif end.end_offset < place.offset:
            self._truncated(state, Position(end.end_offset, end.epoch))
        elif place == state.fetch_position:
            state.validated(leader_epoch)

    def _truncated(self, state: PartitionState, shared: Position | None) -> None:
        """The log that we read has ended at `shared`; a new leader has gone on differently."""
        place = state.fetch_position
        what = (
            f"{state.partition}: offset {place.offset} of epoch {place.epoch} is not in the log of"
            " the new leader"
        )
        if self._policy.kind is ResetKind.NONE:
            state.error = LogTruncated(f"{what}: records that were read are lost; seek to go on")
            return
        if shared is None:
            LOGGER.warning("%s; its position is reset", what)
            state.request_reset(self._policy)
            return
        LOGGER.warning("%s; it is read from offset %d on", what, shared.offset)
        state.seek(min(state.position, shared))

    # ── helpers of all three ─────────────────────────────────────────────────────────────────

    def _in(self, status: Status) -> list[PartitionState]:
        return [state for state in self._subscription if _needs(state, status)]

    def _fail(
        self,
        states: list[PartitionState],
        versions: Mapping[TopicPartition, int],
        error: ClientError,
    ) -> None:
        for state in states:
            if state.version == versions[state.partition]:
                state.error = error


def _needs(state: PartitionState, status: Status) -> bool:
    return state.status is status and state.error is None


def _needs_position(state: PartitionState) -> bool:
    return state.error is None and not (state.status is Status.FETCHING and state.is_admitted)


def _is_resetting(state: PartitionState) -> bool:
    return _needs(state, Status.RESETTING)


def _timestamp(policy: ResetPolicy | None, now_ms: int) -> int:
    timestamp = None if policy is None else policy.timestamp(now_ms)
    return EARLIEST if timestamp is None else timestamp
