"""The groups of the consumer protocol in a shard: their life, timers and records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lograft.coordination.consumer_change import Circumstances
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import ConsumerMember, MemberState
from lograft.coordination.consumer_records import forgotten_regex, group_epoch, removed_member
from lograft.coordination.consumer_replay import REPLAY
from lograft.coordination.consumer_settings import ConsumerSettings
from lograft.coordination.consumer_targets import metadata_hash
from lograft.coordination.deadlines import Deadline
from lograft.coordination.errors import UnreadableRecord
from lograft.coordination.group import Replay
from lograft.coordination.types import NOTHING, Outcome, Record, Reply
from lograft.metadata.delta import MetadataDelta
from lograft.metadata.errors import Refused
from lograft.model.errors import ErrorCode
from lograft.wire.message import Message
from lograft.wire.records.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from lograft.wire.records.consumer_group_metadata_key import ConsumerGroupMetadataKey

if TYPE_CHECKING:
    from lograft.coordination.group_shard import GroupShard

#: A member whose time is over, when the log did not take it, is removed so much later.
FENCE_RETRY_MS: Final = 1_000


class ConsumerGroups:
    """A `group.GroupFamily`; `consumer_heartbeat` has its commands."""

    def __init__(self, shard: "GroupShard") -> None:
        self.shard = shard
        self._settings: dict[str, ConsumerSettings] = {}
        #: By group and member.
        self._sessions: dict[tuple[str, str], Deadline[Outcome]] = {}
        self._revocations: dict[tuple[str, str], Deadline[Outcome]] = {}
        self._topics_created_at = 0

    # What commands ask.

    def group(self, group_id: str) -> ConsumerGroup:
        found = self.shard.groups.get(group_id)
        if not isinstance(found, ConsumerGroup):
            raise Refused(
                ErrorCode.group_id_not_found,
                f"Group {group_id} not found."
                if found is None
                else f"Group {group_id} is not a consumer group.",
            )
        return found

    def group_to_join(self, group_id: str) -> tuple[ConsumerGroup, list[Record]]:
        """Also one that is not there yet, with the records that make room for it."""
        found = self.shard.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found, []
        if found is None or found.is_empty():
            return self._new_group(group_id), [] if found is None else found.tombstones()
        return self.group(group_id), []

    def _new_group(self, group_id: str) -> ConsumerGroup:
        image = self.shard.around.image
        return ConsumerGroup(group_id, lambda topic: image().topic_ids.get(topic))

    def settings(self, group_id: str) -> ConsumerSettings:
        """Of this moment; forgotten whenever a setting changes."""
        found = self._settings.get(group_id)
        if found is None:
            around = self.shard.around
            found = ConsumerSettings.of(group_id, around.config(), around.image())
            self._settings[group_id] = found
        return found

    def circumstances(self, group_id: str) -> Circumstances:
        return Circumstances(
            image=self.shard.around.image(),
            settings=self.settings(group_id),
            wall_ms=self.shard.around.wall_ms(),
            topics_created_at=self._topics_created_at,
        )

    def removal(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[Record]:
        """Members leave or are fenced: what they had is free, the group gets a new epoch."""
        group_id = group.group_id
        records = [
            record for member in members for record in removed_member(group_id, member.member_id)
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
                records.append(forgotten_regex(group_id, regex))
        found = metadata_hash(names, self.shard.around.image())
        return [*records, group_epoch(group_id, group.epoch + 1, found)]

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

    def watch_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """Its rebalance timeout runs while it has partitions to give up."""
        key = (group_id, member.member_id)
        self.shard.deadlines.cancel(self._revocations.pop(key, None))
        if member.state is MemberState.unrevoked_partitions and member.classic is None:
            self._revocations[key] = self.shard.deadlines.add(
                now_ms + member.rebalance_timeout_ms,
                partial(self._revocation_expired, group_id, member.member_id, member.epoch),
            )

    def _session_expired(self, group_id: str, member_id: str, now_ms: int) -> Outcome:
        group = self.shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            # It never became one: its join did not reach the log.
            self._forget_timers(group_id, member_id)
            return NOTHING
        return self.fence(group, member_id, now_ms)

    def _revocation_expired(
        self, group_id: str, member_id: str, epoch: int, now_ms: int
    ) -> Outcome:
        group = self.shard.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or member.epoch != epoch:
            return NOTHING
        assert isinstance(group, ConsumerGroup)
        return self.fence(group, member_id, now_ms)

    def fence(self, group: ConsumerGroup, member_id: str, now_ms: int) -> Outcome:
        def failed(code: ErrorCode) -> Sequence[Reply]:
            self.extend_session(group.group_id, member_id, now_ms, FENCE_RETRY_MS)
            return ()

        return Outcome(records=self.removal(group, [group.members[member_id]]), failed=failed)

    def _forget_timers(self, group_id: str, member_id: str) -> None:
        key = (group_id, member_id)
        self.shard.deadlines.cancel(self._sessions.pop(key, None))
        self.shard.deadlines.cancel(self._revocations.pop(key, None))

    # As a `GroupFamily`.

    def replays(self) -> Mapping[type[Message], Replay]:
        return {kind: partial(self._replay, replay) for kind, replay in REPLAY.items()}

    def _replay(
        self, replay: Callable[[ConsumerGroup, Any, Any], None], key: Any, value: Message | None
    ) -> None:
        groups = self.shard.groups
        group = groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return  # what it removes is not there
            if group is not None and not group.is_empty():
                raise UnreadableRecord(f"group {key.group_id} has members of another protocol")
            group = groups[key.group_id] = self._new_group(key.group_id)
        replay(group, key, value)
        if value is None:
            if type(key) is ConsumerGroupMetadataKey:
                del groups[key.group_id]
                self._settings.pop(key.group_id, None)
            elif type(key) is ConsumerGroupMemberMetadataKey:
                self._forget_timers(key.group_id, key.member_id)

    def on_loaded(self, now_ms: int) -> Outcome:
        self._topics_created_at = self.shard.around.image().offset
        for group in self._groups():
            group.is_stale = True
            settings = self.settings(group.group_id)
            for member in group.members.values():
                timeout_ms = settings.session_timeout_ms
                if member.classic is not None:
                    timeout_ms = member.classic.session_timeout_ms
                self.extend_session(group.group_id, member.member_id, now_ms, timeout_ms)
                self.watch_revocation(group.group_id, member, now_ms)
        return NOTHING

    def on_unloaded(self) -> Sequence[Reply]:
        return ()

    def on_image(self, delta: MetadataDelta) -> Outcome:
        image = self.shard.around.image()
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

    def statistics(self) -> dict[str, int]:
        groups = list(self._groups())
        return {
            "consumer_groups": len(groups),
            "consumer_group_members": sum(len(group.members) for group in groups),
        }

    def _groups(self) -> Iterator[ConsumerGroup]:
        return (one for one in self.shard.groups.values() if isinstance(one, ConsumerGroup))
