"""One attempt to join a classic group: JoinGroup, the leader's decision, SyncGroup."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from lograft.client.consuming.assignors import ASSIGNORS, is_cooperative
from lograft.client.consuming.group_messages import (
    PROTOCOL_TYPE,
    MemberUnreadable,
    read_assignment,
    read_member,
    written_assignment,
    written_subscription,
)
from lograft.client.consuming.range_assignor import Racks
from lograft.client.consuming.settings import ConsumerSettings
from lograft.client.coordinators import JOIN_LANE, Coordinator
from lograft.client.core import ClientCore
from lograft.client.errors import ClientError, TimedOut
from lograft.client.group_types import explain_other_type, find_other_types
from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lograft.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

#: What an answer may take beyond the time that the coordinator gives the others to join.
_LAPSE_MS: Final = 5_000
#: How long the leader waits to hear of a topic that a member reads.
_METADATA_WAIT_MS: Final = 3_000
_FORGOTTEN: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))
#: What a refusal to let us join means; its answer has no room for words.
_REASONS: Final[dict[int, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members know none of the assignors of this one:"
    " give all of them one name in partition.assignment.strategy",
    ErrorCode.POLICY_VIOLATION: "a topic that it subscribes to is read point to point"
    " (subscription.mode=ptp), by another group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms is not between the broker's"
    " group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it is as large as the broker's group.max.size allows",
}


class Layout(NamedTuple):
    #: Partitions of each topic; 0 where it is not there.
    counts: dict[str, int]
    #: Of replicas; they matter, and are kept, when a member has a rack.
    has_racks: bool
    racks: Racks


class Joined(NamedTuple):
    member_id: str
    generation: int
    partitions: set[TopicPartition]


class Forgotten(Exception):
    """The group does not know this member; it joins anew, under the id that it was given."""

    def __init__(self, member_id: str = "") -> None:
        super().__init__(member_id)
        self.member_id = member_id


class GroupJoin:
    def __init__(self, core: ClientCore[ConsumerSettings], coordinator: Coordinator) -> None:
        self._core = core
        self._settings = core.settings
        self._coordinator = coordinator
        self.topics: frozenset[str] = frozenset()
        #: What this member has, or had, and since which generation.
        self.owned: tuple[frozenset[TopicPartition], int] = frozenset(), -1
        self.member: tuple[str, int] = "", -1
        #: How the topics of the group were when we decided; None: others lead.
        self._decided_on: Layout | None = None
        #: Of brokers that are gone too: the group does not rebalance because one restarts.
        self._rack_of: dict[int, str] = {}

    def is_outdated(self) -> bool:
        """Whether what we decided as leader fits the topics no longer."""
        decided = self._decided_on
        return decided is not None and decided != self._layout(decided.counts, decided.has_racks)

    async def once(self, assignors: Iterable[str], reason: str) -> Joined:
        """Raises Forgotten, RebalanceInProgress, or what passes or does not."""
        what = f"joining group {self._coordinator.key!r}"
        answer = await self._ask_to_join(list(assignors), reason)
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            raise Forgotten(answer.member_id)
        if code in _FORGOTTEN:
            raise Forgotten
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self._coordinator.raise_for(code, what, await self._explain_inconsistency())
        self._coordinator.raise_for(code, what, _REASONS.get(code))
        self._decided_on = None
        assignments: list[SyncGroupRequestAssignment] = []
        assignor = answer.protocol_name or ""
        if answer.leader == answer.member_id:
            decided = await self._decide(answer, assignor)
            if not answer.skip_assignment:
                assignments = decided
        sync = await self._coordinator.request(
            SyncGroupRequest(
                group_id=self._coordinator.key,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                group_instance_id=self._settings.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=assignor,
                assignments=assignments,
            ),
            SyncGroupResponse,
            lane=JOIN_LANE,
            timeout_ms=self._patience_ms(),
        )
        if sync.error_code in _FORGOTTEN:
            raise Forgotten
        self._coordinator.raise_for(sync.error_code, what)
        try:
            partitions = read_assignment(sync.assignment)
        except MemberUnreadable as error:
            raise ClientError(f"{what}: its leader's assignment cannot be read: {error}") from None
        return Joined(answer.member_id, answer.generation_id, partitions)

    async def _explain_inconsistency(self) -> str:
        """Another type of group is one cause, different assignors are the other."""
        coordinator = self._coordinator
        other = (await find_other_types(coordinator.request)).get(coordinator.key)
        if other is None:
            return _REASONS[ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
        is_lograft = (await coordinator.connect()).is_lograft
        return explain_other_type(other.group_type, is_lograft=is_lograft)

    async def _ask_to_join(self, assignors: list[str], reason: str) -> JoinGroupResponse:
        settings = self._settings
        owned, generation = self.owned
        is_eager = not is_cooperative(assignors)
        request = JoinGroupRequest(
            group_id=self._coordinator.key,
            session_timeout_ms=settings.session_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member[0],
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=written_subscription(
                        name,
                        self.topics,
                        owned,
                        generation,
                        settings.client_rack,
                        is_eager=is_eager,
                    ),
                )
                for name in assignors
            ],
            reason=reason,
        )
        return await self._coordinator.request(
            request,
            JoinGroupResponse,
            # Static members are not known before.
            at_least=5 if settings.group_instance_id is not None else 0,
            lane=JOIN_LANE,
            timeout_ms=self._patience_ms(),
        )

    def _patience_ms(self) -> int:
        settings = self._settings
        return max(settings.request_timeout_ms, settings.max_poll_interval_ms + _LAPSE_MS)

    async def _decide(
        self, answer: JoinGroupResponse, assignor: str
    ) -> list[SyncGroupRequestAssignment]:
        try:
            members = [
                read_member(one.member_id, one.group_instance_id, one.metadata, assignor)
                for one in answer.members
            ]
        except MemberUnreadable as error:
            raise ClientError(
                f"group {self._coordinator.key!r} has a member whose subscription cannot be read:"
                f" {error}"
            ) from None
        topics = {topic for member in members for topic in member.topics}
        await self._learn(topics)
        layout = self._layout(topics, any(member.rack for member in members))
        self._decided_on = layout
        there = {topic: count for topic, count in layout.counts.items() if count}
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=written_assignment(partitions))
            for member, partitions in ASSIGNORS[assignor](there, members, layout.racks).items()
        ]

    async def _learn(self, topics: set[str]) -> None:
        """Makes the topics of all members known, as far as they exist."""
        metadata = self._core.metadata

        async def learn(topic: str) -> None:
            deadline_ms = self._core.now_ms() + _METADATA_WAIT_MS
            while metadata.use(topic) is None and not metadata.cache.error_of(topic):
                try:
                    await metadata.wait_update(deadline_ms, f"topic {topic!r} is not known")
                except TimedOut:
                    return

        await asyncio.gather(*map(learn, sorted(topics)))

    def _layout(self, topics: Iterable[str], has_racks: bool) -> Layout:
        cache = self._core.metadata.cache
        self._rack_of |= {one.id: one.rack for one in cache.brokers.values() if one.rack}
        counts = dict.fromkeys(topics, 0)
        racks: dict[TopicPartition, frozenset[str]] = {}
        for known in filter(None, map(cache.topic, counts)):
            counts[known.name] = len(known.partitions)
            for one in known.partitions if has_racks else ():
                racks[TopicPartition(known.name, one.index)] = frozenset(
                    self._rack_of[node] for node in one.replicas if node in self._rack_of
                )
        return Layout(counts, has_racks, racks)
