"""A member of a classic group: joins when the program calls for records, learns its partitions from
the member that leads, keeps itself alive with heartbeats.

    OUT ──serve: commit, let go──▶ JOINING ──answers──▶ JOINED ──serve: take partitions──▶ IN
     ▲                                                                                      │
     └────── the group rebalances, or has forgotten us; or the subscription changes ◀───────┘
"""

import asyncio
import logging
from typing import Final

from lograft.client.backoff import backoff_ms
from lograft.client.consuming.assignors import is_cooperative
from lograft.client.consuming.committed_offsets import Identity
from lograft.client.consuming.group_join import Forgotten, GroupJoin, Joined
from lograft.client.consuming.membership import Interest, MembershipContext
from lograft.client.coordinators import Coordinator
from lograft.client.errors import ClientError, FencedInstance, RebalanceInProgress, broker_error
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.seams import Task
from lograft.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lograft.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

LOGGER: Final = logging.getLogger(__name__)

_NO_GENERATION: Final = -1
_MANY_MEMBERS_SINCE: Final = 3
#: The group goes on without us; our partitions are others'.
_FORGOTTEN: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))


class ClassicGroup:
    def __init__(self, around: MembershipContext) -> None:
        self._around = around
        self._core = around.core
        self._settings = around.core.settings
        self._coordinator: Coordinator = around.coordinator
        self._handover = around.handover
        self._joining = GroupJoin(around.core, around.coordinator)
        self._interest = Interest()
        self._names = self._settings.assignors()
        self._is_cooperative = is_cooperative(self._names)
        self._member_id = ""
        self._generation = _NO_GENERATION
        #: What the last assignment gave us, for assignors that stick to it.
        self._last: tuple[frozenset[TopicPartition], int] = frozenset(), _NO_GENERATION
        #: Why we have to join, or None.
        self._reason: str | None = None
        self._task: Task | None = None
        self._joined: Joined | None = None
        #: Our partitions have been given to others without asking us.
        self._is_lost = False
        self._error: ClientError | None = None
        self._keeping: Task | None = None
        self._asking_again: asyncio.TimerHandle | None = None

    def identity(self) -> Identity:
        if self._generation == _NO_GENERATION:
            return Identity(is_out=True)
        return Identity(self._member_id, self._generation, self._settings.group_instance_id)

    def start(self) -> None:
        self._stop_listening = self._core.metadata.on_update(self._on_metadata)
        self._keeping = self._core.runtime.spawn(self._keep_alive(), name="group heartbeats")

    def subscribe(self, interest: Interest) -> None:
        metadata = self._core.metadata
        metadata.use_all_topics(interest.pattern is not None)
        self._interest = interest
        topics = self._topics()
        metadata.set_topics(set(topics))
        self._joining.topics = topics
        self._need_to_join("the subscription has changed")

    def rejoin(self, reason: str) -> None:
        if self._reason is None and self._task is None:
            self._need_to_join(reason)

    # ── in the program's call ────────────────────────────────────────────────────────────────

    def needs_serving(self) -> bool:
        return (
            self._error is not None
            or self._is_lost
            or self._joined is not None
            or (self._reason is not None and self._task is None and self._may_join())
        )

    async def serve(self) -> None:
        if self._is_lost:
            self._is_lost = False
            await self._handover.lose()
        if self._error is not None:
            error = self._error
            if not isinstance(error, FencedInstance):
                # The next call tries again; but two that fence each other would do so for ever.
                self._error = None
            raise error
        if self._joined is not None:
            await self._take(self._joined)
        if self._reason is not None and self._task is None and self._may_join():
            await self._let_go()
            self._begin_joining()
        self._handover.raise_failure()

    def _may_join(self) -> bool:
        """Which topics match a pattern is known when the cluster has told what it has."""
        return self._interest.pattern is None or bool(self._core.metadata.cache.brokers)

    async def _let_go(self) -> None:
        """Before joining: eager members give everything back, the others what they do not read any
        more."""
        await self._handover.commit()
        owned = self._handover.owned
        if self._is_cooperative:
            topics = self._joining.topics
            await self._handover.revoke({one for one in owned if one.topic not in topics})
        else:
            await self._handover.revoke(owned)

    def _begin_joining(self) -> None:
        assert self._reason is not None
        reason, self._reason = self._reason, None
        if self._is_cooperative:
            self._joining.owned = frozenset(self._handover.owned), self._generation
        else:
            self._joining.owned = self._last
        self._task = self._core.runtime.spawn(self._join(reason), name="join group")

    async def _take(self, joined: Joined) -> None:
        """What the leader has given us."""
        self._joined = None
        owned, mine = self._handover.owned, joined.partitions
        LOGGER.info(
            "group %r: generation %d gives %s",
            self._coordinator.key,
            joined.generation,
            ", ".join(map(str, sorted(mine))) or "nothing",
        )
        gone = owned - mine
        if gone:
            assert self._is_cooperative, gone
            await self._handover.revoke(gone)
            self._need_to_join("partitions were let go for others")
        self._last = frozenset(mine), joined.generation
        await self._handover.give(mine)

    async def leave(self, reason: str, timeout_ms: int) -> None:
        deadline_ms = self._core.now_ms() + timeout_ms
        self._stop_listening()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._keeping is not None:
            self._keeping.cancel()
        self._interest = Interest()
        self._watch_for_missing(frozenset())
        self._reason = self._joined = None
        if self._is_lost:
            await self._handover.lose()
        else:
            await self._handover.commit(timeout_ms)
            await self._handover.revoke(self._handover.owned)
        try:
            left_ms = max(0, deadline_ms - self._core.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                await self._send_leave(self._member_id, reason)
        except (ClientError, TimeoutError) as error:
            LOGGER.info("group %r was left without a word: %s", self._coordinator.key, error)

    # ── joining, beside the program ──────────────────────────────────────────────────────────

    async def _join(self, reason: str) -> None:
        """Until it is done, or cannot be. The program's next call takes what it brings."""
        failures = 0
        try:
            while True:
                try:
                    self._joining.member = self._member_id, self._generation
                    self._joined = await self._joining.once(self._names, reason)
                    self._member_id = self._joined.member_id
                    self._generation = self._joined.generation
                    return
                except Forgotten as forgotten:
                    self._forget(forgotten.member_id)
                except RebalanceInProgress as error:
                    LOGGER.debug("group %r rebalances again: %s", self._coordinator.key, error)
                except ClientError as error:
                    if not error.is_retriable:
                        self._error = error
                        self._reason = reason
                        return
                    failures += 1
                    LOGGER.debug("joining group %r failed: %s", self._coordinator.key, error)
                    await self._back_off(failures)
        finally:
            self._task = None
            self._around.on_news()

    def _need_to_join(self, reason: str) -> None:
        self._reason = reason
        self._around.on_news()

    def _forget(self, member_id: str = "") -> None:
        """The group does not know us (any more). What we had is lost."""
        if self._generation != _NO_GENERATION:
            self._is_lost = True
        self._member_id = member_id
        self._generation = _NO_GENERATION
        self._last = self._joining.owned = frozenset(), _NO_GENERATION

    # ── staying alive ────────────────────────────────────────────────────────────────────────

    async def _keep_alive(self) -> None:
        while True:
            pause_ms = self._around.patience.time_to_look_ms(self._settings.heartbeat_ms)
            await asyncio.sleep(pause_ms / 1000)
            if self._generation == _NO_GENERATION or self._task is not None:
                continue
            try:
                if self._around.patience.is_over:
                    await self._give_up()
                else:
                    await self._beat()
            except ClientError as error:
                LOGGER.debug("heartbeat of group %r failed: %s", self._coordinator.key, error)
                if not error.is_retriable:
                    self._forget()
                    self._error = error
                    self._need_to_join("a heartbeat was refused")

    async def _beat(self) -> None:
        generation = self._generation
        answer = await self._coordinator.request(
            HeartbeatRequest(
                group_id=self._coordinator.key,
                generation_id=generation,
                member_id=self._member_id,
                group_instance_id=self._settings.group_instance_id,
            ),
            HeartbeatResponse,
        )
        if generation != self._generation or not answer.error_code:
            return
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self._reason is None and self._task is None:
                self._need_to_join("the group is rebalancing")
        elif answer.error_code in _FORGOTTEN:
            LOGGER.warning("group %r has gone on without this member", self._coordinator.key)
            self._forget()
            self._need_to_join("the group had forgotten this member")
        else:
            self._coordinator.forget_if_moved(answer.error_code)
            raise broker_error(answer.error_code, f"heartbeat of group {self._coordinator.key!r}")

    async def _give_up(self) -> None:
        LOGGER.warning(
            "the program has not called for records for more than max.poll.interval.ms (%d): it"
            " leaves group %r. Raise max.poll.interval.ms or lower max.poll.records",
            self._around.patience.limit_ms,
            self._coordinator.key,
        )
        member_id = self._member_id
        self._forget()
        self._need_to_join("the program was too slow")
        await self._send_leave(member_id, "consumer poll timeout has expired")

    async def _send_leave(self, member_id: str, reason: str) -> None:
        """Static members keep their place until their session ends: they come again."""
        if not member_id or self._settings.group_instance_id is not None:
            return

        def request(version: int) -> LeaveGroupRequest:
            if version < _MANY_MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=self._coordinator.key, member_id=member_id)
            identity = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._coordinator.key, members=[identity])

        answer = await self._coordinator.request(request, LeaveGroupResponse)
        self._coordinator.raise_for(answer.error_code, f"leaving group {self._coordinator.key!r}")

    async def _back_off(self, failures: int) -> None:
        settings = self._settings
        randomness = self._core.runtime.randomness
        wait_ms = backoff_ms(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, failures, randomness
        )
        await asyncio.sleep(wait_ms / 1000)

    # ── what there is to read ────────────────────────────────────────────────────────────────

    def _topics(self) -> frozenset[str]:
        if self._interest.pattern is None:
            return self._interest.topics
        hides = self._settings.exclude_internal_topics
        names = frozenset(
            name
            for name, topic in self._core.metadata.cache.topics.items()
            if not (hides and topic.is_internal)
        )
        return self._interest.matching(names)

    def _on_metadata(self) -> None:
        topics = self._topics()
        if topics != self._joining.topics:
            self._joining.topics = topics
            self._need_to_join("topics have come or gone")
        elif self._generation != _NO_GENERATION and self._joining.is_outdated():
            self._need_to_join("the topics of the group have changed")
        self._watch_for_missing(topics)

    def _watch_for_missing(self, topics: frozenset[str]) -> None:
        """A topic that does not exist may be made any time."""
        if self._asking_again is not None:
            self._asking_again.cancel()
            self._asking_again = None
        metadata = self._core.metadata
        if any(metadata.cache.topic(topic) is None for topic in topics):
            self._asking_again = asyncio.get_running_loop().call_later(
                self._settings.retry_backoff_max_ms / 1000, metadata.request_update
            )
