"""One attempt to join a classic group: JoinGroup, the assignment if this member is the leader, and
SyncGroup."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from lograft.client.consuming.assignors import ASSIGNORS, is_cooperative
from lograft.client.consuming.group_messages import (
    PROTOCOL_TYPE,
    MalformedGroupMessage,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from lograft.client.consuming.group_metrics import GroupMetrics
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

#: Added to the rebalance timeout, which is how long the coordinator waits for the other members.
_RESPONSE_MARGIN_MS: Final = 5_000
#: How long the leader waits for the metadata of a subscribed topic.
_METADATA_WAIT_MS: Final = 3_000
_NOT_A_MEMBER: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION))
#: Causes of a rejected JoinGroup request, whose response contains no message.
_REASONS: Final[dict[int, str]] = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members have no assignor in common with this"
    " consumer: include one that all members have in partition.assignment.strategy",
    ErrorCode.POLICY_VIOLATION: "another group reads one of the subscribed topics point to point"
    " (subscription.mode=ptp)",
    ErrorCode.INVALID_SESSION_TIMEOUT: "session.timeout.ms is not between the broker's"
    " group.min.session.timeout.ms and group.max.session.timeout.ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "it has reached the broker's group.max.size",
}


class TopicLayout(NamedTuple):
    """What the assignment depends on besides the members."""

    #: Partitions of each topic; 0 if it does not exist.
    counts: dict[str, int]
    #: Whether a member has a rack. If not, `racks` is empty, because it has no effect.
    has_racks: bool
    racks: Racks


class JoinResult(NamedTuple):
    member_id: str
    generation: int
    partitions: set[TopicPartition]


class RejoinRequired(Exception):
    """The coordinator does not know this member. It has to join again, with the member id that the
    coordinator has assigned, if any."""

    def __init__(self, member_id: str = "") -> None:
        super().__init__(member_id)
        self.member_id = member_id


class GroupJoin:
    def __init__(
        self, core: ClientCore[ConsumerSettings], coordinator: Coordinator, metrics: GroupMetrics
    ) -> None:
        self._core = core
        self._settings = core.settings
        self._coordinator = coordinator
        self._metrics = metrics
        self.topics: frozenset[str] = frozenset()
        #: The partitions that this member has, or had, and the generation of their assignment.
        self.owned: tuple[frozenset[TopicPartition], int] = frozenset(), -1
        self.member: tuple[str, int] = "", -1
        #: Whether the coordinator may have received the JoinGroup request of this attempt.
        self.is_sent = False
        #: The layout that the last assignment was computed from; None: another member leads.
        self._assigned_layout: TopicLayout | None = None
        #: Includes brokers that are down, so that the restart of one causes no rebalance.
        self._broker_racks: dict[int, str] = {}

    def is_outdated(self) -> bool:
        """Whether the topics have changed since this member, as leader, assigned them."""
        layout = self._assigned_layout
        return layout is not None and layout != self._topic_layout(layout.counts, layout.has_racks)

    async def join(self, assignors: Iterable[str], reason: str) -> JoinResult:
        """Raises RejoinRequired, RebalanceInProgress, or another ClientError."""
        what = f"joining group {self._coordinator.key!r}"
        with self._metrics.measure(self._metrics.joins_ms):
            response = await self._send_join(list(assignors), reason)
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            raise RejoinRequired(response.member_id)
        if code in _NOT_A_MEMBER:
            raise RejoinRequired
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self._coordinator.raise_for(code, what, await self._explain_inconsistency())
        self._coordinator.raise_for(code, what, _REASONS.get(code))
        self._assigned_layout = None
        assignments: list[SyncGroupRequestAssignment] = []
        assignor = response.protocol_name or ""
        if response.leader == response.member_id:
            computed = await self._assign(response, assignor)
            if not response.skip_assignment:
                assignments = computed
        request = SyncGroupRequest(
            group_id=self._coordinator.key,
            generation_id=response.generation_id,
            member_id=response.member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignor,
            assignments=assignments,
        )
        with self._metrics.measure(self._metrics.syncs_ms):
            sync = await self._coordinator.request(
                request, SyncGroupResponse, lane=JOIN_LANE, timeout_ms=self._timeout_ms()
            )
        if sync.error_code in _NOT_A_MEMBER:
            raise RejoinRequired
        self._coordinator.raise_for(sync.error_code, what)
        try:
            partitions = decode_assignment(sync.assignment)
        except MalformedGroupMessage as error:
            raise ClientError(
                f"{what}: the assignment of the group's leader is malformed: {error}"
            ) from None
        return JoinResult(response.member_id, response.generation_id, partitions)

    async def _explain_inconsistency(self) -> str:
        """Returns the cause: the group has another type, or its members have other assignors."""
        coordinator = self._coordinator
        other = (await find_other_types(coordinator.request)).get(coordinator.key)
        if other is None:
            return _REASONS[ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
        is_lograft = (await coordinator.connect()).is_lograft
        return explain_other_type(other.group_type, is_lograft=is_lograft)

    async def _send_join(self, assignors: list[str], reason: str) -> JoinGroupResponse:
        settings = self._settings
        owned, generation = self.owned
        is_eager = not is_cooperative(assignors)
        self.is_sent = False
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
                    metadata=encode_subscription(
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

        def build(_version: int) -> JoinGroupRequest:
            self.is_sent = True
            return request

        return await self._coordinator.request(
            build,
            JoinGroupResponse,
            # Earlier versions have no static members.
            at_least=5 if settings.group_instance_id is not None else 0,
            lane=JOIN_LANE,
            timeout_ms=self._timeout_ms(),
        )

    def _timeout_ms(self) -> int:
        settings = self._settings
        return max(settings.request_timeout_ms, settings.max_poll_interval_ms + _RESPONSE_MARGIN_MS)

    async def _assign(
        self, response: JoinGroupResponse, assignor: str
    ) -> list[SyncGroupRequestAssignment]:
        """Computes the assignment as the leader of the group."""
        try:
            members = [
                decode_member(member.member_id, member.group_instance_id, member.metadata, assignor)
                for member in response.members
            ]
        except MalformedGroupMessage as error:
            raise ClientError(
                f"the subscription of a member of group {self._coordinator.key!r} is malformed:"
                f" {error}"
            ) from None
        topics = {topic for member in members for topic in member.topics}
        await self._wait_for_metadata(topics)
        layout = self._topic_layout(topics, any(member.rack for member in members))
        self._assigned_layout = layout
        existing = {topic: count for topic, count in layout.counts.items() if count}
        assigned = ASSIGNORS[assignor](existing, members, layout.racks)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in assigned.items()
        ]

    async def _wait_for_metadata(self, topics: set[str]) -> None:
        """Waits until the metadata of all topics is known, unless they do not exist."""
        metadata = self._core.metadata

        async def wait_for_topic(topic: str) -> None:
            deadline_ms = self._core.now_ms() + _METADATA_WAIT_MS
            while metadata.use(topic) is None and not metadata.cache.error_of(topic):
                try:
                    await metadata.wait_update(deadline_ms, f"topic {topic!r} is not known")
                except TimedOut:
                    return

        await asyncio.gather(*map(wait_for_topic, sorted(topics)))

    def _topic_layout(self, topics: Iterable[str], has_racks: bool) -> TopicLayout:
        cache = self._core.metadata.cache
        self._broker_racks |= {
            broker.id: broker.rack for broker in cache.brokers.values() if broker.rack
        }
        counts = dict.fromkeys(topics, 0)
        racks: dict[TopicPartition, frozenset[str]] = {}
        for topic in filter(None, map(cache.topic, counts)):
            counts[topic.name] = len(topic.partitions)
            for partition in topic.partitions if has_racks else ():
                racks[TopicPartition(topic.name, partition.index)] = frozenset(
                    self._broker_racks[node]
                    for node in partition.replicas
                    if node in self._broker_racks
                )
        return TopicLayout(counts, has_racks, racks)
