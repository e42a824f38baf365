"""The groups of the consumer protocol in a shard: lifecycle, timers and records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lograft.coordination.classic_group import ClassicGroup
from lograft.coordination.classic_member import Client
from lograft.coordination.consumer_change import ChangeContext
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import ConsumerMember, MemberState
from lograft.coordination.consumer_records import (
    group_epoch_record,
    member_tombstones,
    regex_tombstone,
)
from lograft.coordination.consumer_replay import REPLAY
from lograft.coordination.consumer_settings import ConsumerSettings
from lograft.coordination.consumer_targets import metadata_hash
from lograft.coordination.deadlines import Deadline
from lograft.coordination.errors import UnreadableRecord
from lograft.coordination.group import Replay
from lograft.coordination.group_conversion import (
    check_upgrade,
    downgrade_records,
    may_downgrade,
    upgrade_records,
)
from lograft.coordination.pattern_matching import PatternMatching
from lograft.coordination.types import NOTHING, CoordinatorResult, Record, Reply
from lograft.metadata.delta import MetadataDelta
from lograft.model.errors import ErrorCode, Rejected
from lograft.wire.message import Message
from lograft.wire.records.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from lograft.wire.records.consumer_group_metadata_key import ConsumerGroupMetadataKey

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard

#: If the records that remove an expired member could not be appended, the removal is retried after
#: this time.
FENCE_RETRY_MS: Final = 1_000


class ConsumerGroups:
    """A `group.GroupFamily`; its commands are in `consumer_heartbeat`."""

    def __init__(self, shard: "GroupShard") -> None:
        self.shard = shard
        self._settings: dict[str, ConsumerSettings] = {}
        #: By group and member id.
        self._sessions: dict[tuple[str, str], Deadline[CoordinatorResult]] = {}
        self._steps: dict[tuple[str, str], Deadline[CoordinatorResult]] = {}
        self._topics_created_at = 0
        self._matching = PatternMatching()

    # Queries that the commands use.

    def group(self, group_id: str) -> ConsumerGroup:
        found = self.shard.groups.get(group_id)
        if not isinstance(found, ConsumerGroup):
            raise Rejected(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {group_id} not found."
                if found is None
                else f"Group {group_id} is not a consumer group.",
            )
        return found

    def find_or_create_group(self, group_id: str) -> tuple[ConsumerGroup, list[Record]]:
        """The group to join. If it does not exist yet, also returns the records that create it or
        that remove an empty group of another kind."""
        found = self.shard.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found, []
        if found is None or found.is_empty():
            return self._new_group(group_id), [] if found is None else found.tombstones()
        if not isinstance(found, ClassicGroup):
            return self.group(group_id), []
        check_upgrade(found, self.settings(group_id))
        records = upgrade_records(found, self.shard.context.image())
        group = self._new_group(group_id)
        for key, value, _ in records:
            if type(key) in REPLAY:
                REPLAY[type(key)](group, key, value)
        group.is_stale = True
        return group, records

    def on_upgrade_appended(self, group_id: str, now_ms: int) -> list[Reply]:
        """Called before the records of `find_or_create_group` are appended. If they convert a
        classic group, starts new sessions for its members and returns the replies to its parked
        requests."""
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return []
        for member in group.members.values():
            self.extend_session(group_id, member.member_id, now_ms, member.session_timeout_ms)
        return group.reject_all(ErrorCode.REBALANCE_IN_PROGRESS)

    def _new_group(self, group_id: str) -> ConsumerGroup:
        context = self.shard.context
        return ConsumerGroup(
            group_id, lambda topic: context.image().topic_ids.get(topic), context.wall_ms
        )

    def settings(self, group_id: str) -> ConsumerSettings:
        """The current settings, cached until a config changes."""
        found = self._settings.get(group_id)
        if found is None:
            context = self.shard.context
            found = ConsumerSettings.of(group_id, context.config(), context.image())
            if isinstance(self.shard.groups.get(group_id), ConsumerGroup):
                self._settings[group_id] = found  # Only settings of groups that exist are cached.
        return found

    def change_context(self, group_id: str, client: Client) -> ChangeContext:
        return ChangeContext(
            image=self.shard.context.image(),
            settings=self.settings(group_id),
            wall_ms=self.shard.context.wall_ms(),
            topics_created_at=self._topics_created_at,
            matching=self._matching,
            can_describe=client.can_describe,
        )

    def remove(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], now_ms: int
    ) -> CoordinatorResult:
        """Members leave or are fenced."""
        if may_downgrade(
            group,
            [member.member_id for member in members],
            self.settings(group.group_id),
            classic_members_max=self.shard.context.config().group_max_size,
        ):
            return self.downgrade(group, members, now_ms)
        return CoordinatorResult(records=self._removal(group, members))

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerMember],
        now_ms: int,
        *,
        arriving: ConsumerMember | None = None,
    ) -> CoordinatorResult:
        """Converts the group to a classic one when only classic members remain. `arriving` replaces
        the only leaving member; if nothing else changes, no rebalance is necessary."""
        leaving_ids = {member.member_id for member in leaving}
        members = [
            member for member in group.members.values() if member.member_id not in leaving_ids
        ]
        is_settled = False
        if arriving is not None:
            (replaced,) = leaving
            is_settled = (
                arriving.topics == replaced.topics
                and not replaced.regex
                and replaced.held_partitions() == group.target(replaced.member_id)
                and all(member.is_reconciled_to(group.epoch) for member in members)
            )
            members.append(arriving)
        classic = self.shard.classic
        records = downgrade_records(
            group,
            classic.new_group(group.group_id),
            members,
            self.shard.context.image(),
            is_settled=is_settled,
        )
        return CoordinatorResult(
            records=records, then=partial(classic.on_converted, group.group_id, now_ms)
        )

    def _removal(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[Record]:
        """Frees the members' partitions and raises the group epoch."""
        group_id = group.group_id
        records = [
            record for member in members for record in member_tombstones(group_id, member.member_id)
        ]
        topics, regexes = dict(group.topic_counts), dict(group.regex_counts)
        for member in members:
            for name in member.topics:
                topics[name] -= 1
            if member.regex:
                regexes[member.regex] -= 1
        names = [name for name, count in topics.items() if count]
        for regex, resolved in group.resolved.items():
            if regexes.get(regex):
                names += resolved.topics
            else:
                records.append(regex_tombstone(group_id, regex))
        found = metadata_hash(names, self.shard.context.image())
        return [*records, group_epoch_record(group_id, group.epoch + 1, found)]

    # Timers.

    def extend_session(self, group_id: str, member_id: str, now_ms: int, timeout_ms: int) -> None:
        key = (group_id, member_id)
        deadline = self._sessions.get(key)
        if deadline is None:
            self._sessions[key] = self.shard.deadlines.add(
                now_ms + timeout_ms, partial(self._session_expired, group_id, member_id)
            )
        else:
            self.shard.deadlines.move(deadline, now_ms + timeout_ms)

    def update_revocation_timeout(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Starts the rebalance timeout if the member has to revoke partitions, else stops it."""
        self.cancel_step_timeout(group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self.start_step_timeout(group_id, member, now_ms)

    def start_step_timeout(
        self, group_id: str, member: ConsumerMember, now_ms: int, *, restart: bool = False
    ) -> None:
        """Starts the rebalance timeout for the member's next action: to revoke partitions or, for a
        classic member, to rejoin or to request its assignment. `restart` starts the timeout again,
        because the member has completed the previous action."""
        key = (group_id, member.member_id)
        if restart:
            self.cancel_step_timeout(*key)
        if key not in self._steps:
            self._steps[key] = self.shard.deadlines.add(
                now_ms + member.rebalance_timeout_ms, partial(self._step_expired, *key)
            )

    def cancel_step_timeout(self, group_id: str, member_id: str) -> None:
        self.shard.deadlines.cancel(self._steps.pop((group_id, member_id), None))

    def _session_expired(self, group_id: str, member_id: str, now_ms: int) -> CoordinatorResult:
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            # It never became a member: its join was not appended.
            self._cancel_timers(group_id, member_id)
            return NOTHING
        return self.fence(group, member_id, now_ms)

    def _step_expired(self, group_id: str, member_id: str, now_ms: int) -> CoordinatorResult:
        self._steps.pop((group_id, member_id), None)
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return NOTHING
        return self.fence(group, member_id, now_ms)

    def fence(self, group: ConsumerGroup, member_id: str, now_ms: int) -> CoordinatorResult:
        def on_failure(code: ErrorCode) -> Sequence[Reply]:
            self.extend_session(group.group_id, member_id, now_ms, FENCE_RETRY_MS)
            return ()

        outcome = self.remove(group, [group.members[member_id]], now_ms)
        outcome.on_failure = on_failure
        return outcome

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        self.shard.deadlines.cancel(self._sessions.pop((group_id, member_id), None))
        self.cancel_step_timeout(group_id, member_id)

    # The protocol `group.GroupFamily`.

    def replays(self) -> Mapping[type[Message], Replay]:
        return {kind: partial(self._replay, replay) for kind, replay in REPLAY.items()}

    def _replay(
        self, replay: Callable[[ConsumerGroup, Any, Any], None], key: Any, value: Message | None
    ) -> None:
        groups = self.shard.groups
        group = groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # The group to remove does not exist.
            if group is not None and not group.is_empty():
                raise UnreadableRecord(f"group {key.group_id} has members of another protocol")
            group = groups[key.group_id] = self._new_group(key.group_id)
        replay(group, key, value)
        if value is None:
            if type(key) is ConsumerGroupMetadataKey:
                del groups[key.group_id]
                self._settings.pop(key.group_id, None)
            elif type(key) is ConsumerGroupMemberMetadataKey:
                self._cancel_timers(key.group_id, key.member_id)

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        self._topics_created_at = self.shard.context.image().offset
        for group in self._groups():
            group.is_stale = True
            settings = self.settings(group.group_id)
            for member in group.members.values():
                timeout_ms = settings.session_timeout_ms
                if member.classic is not None:
                    timeout_ms = member.classic.session_timeout_ms
                self.extend_session(group.group_id, member.member_id, now_ms, timeout_ms)
                self.update_revocation_timeout(group.group_id, member, now_ms)
        return NOTHING

    def on_unloaded(self) -> Sequence[Reply]:
        return ()

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        image = self.shard.context.image()
        if delta.created_topics:
            self._topics_created_at = image.offset
        if delta.configs:
            self._settings.clear()
        names = {image.topics[topic_id].name for topic_id in delta.created_topics}
        names |= {image.topics[topic_id].name for topic_id in delta.changed_topics}
        names |= {topic.name for topic in delta.deleted_topics.values()}
        if names:
            for group in self._groups():
                if not group.is_stale and any(map(group.is_subscribed_to, names)):
                    group.is_stale = True
        return NOTHING

    def _groups(self) -> Iterator[ConsumerGroup]:
        return (group for group in self.shard.groups.values() if isinstance(group, ConsumerGroup))
