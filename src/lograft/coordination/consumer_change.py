"""The changes that one member's request makes to its consumer group.

A change is computed in a fixed order: the member's subscription, its patterns, the group epoch, the
target assignment, and the member's own next step towards it. Each part sees the results of the
previous ones, although none of their records is replayed yet.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from lograft.coordination.assignors import Assignment, find_assignor
from lograft.coordination.consumer_group import ConsumerGroup
from lograft.coordination.consumer_member import ConsumerMember
from lograft.coordination.consumer_reconciliation import ReconciliationContext, reconcile
from lograft.coordination.consumer_records import (
    current_assignment_record,
    group_epoch_record,
    member_metadata_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_assignment_record,
    target_epoch_record,
)
from lograft.coordination.consumer_settings import ConsumerSettings
from lograft.coordination.consumer_targets import (
    Subscriber,
    compute_targets,
    existing_topics,
    metadata_hash,
)
from lograft.coordination.pattern_matching import PatternMatching
from lograft.coordination.subscriptions import ResolvedRegex, patterns_due, resolve
from lograft.coordination.types import Record
from lograft.metadata.image import MetadataImage


@dataclass(slots=True, kw_only=True)
class ChangeContext:
    image: MetadataImage
    settings: ConsumerSettings
    wall_ms: int
    #: Version of the last image that added topics.
    topics_created_at: int
    matching: PatternMatching
    #: Whether the member that requests the change is authorized to describe a topic.
    can_describe: Callable[[str], bool]


@dataclass(slots=True, kw_only=True)
class MemberChange:
    group: ConsumerGroup
    context: ChangeContext
    #: The member before the change. A new member is not in the group.
    old: ConsumerMember
    new: ConsumerMember
    #: The static member that it replaces.
    replaces: ConsumerMember | None = None
    records: list[Record] = field(default_factory=list)
    _resolved: dict[str, ResolvedRegex] = field(default_factory=dict)

    def apply(self, reported: Mapping[UUID, Collection[int]] | None) -> ConsumerMember:
        """Fills `records` and returns the member after the change. `reported` are the partitions
        that the member reports to own. Raises NeedsLongWork."""
        group, group_id = self.group, self.group.group_id
        self._resolved = group.resolved
        if self.replaces is not None:
            self._replace(self.replaces)
        if self.new != self.old:
            self.records.append(member_metadata_record(group_id, self.new))
        subscription_changed = (
            self.new.regex != self.old.regex or self.new.topics != self.old.topics
        )
        matches_changed = self._resolve_regexes()
        epoch = self._next_group_epoch(
            subscription_changed or matches_changed or self._is_new or group.epoch == 0
        )
        at_epoch, target = self._next_target(epoch)
        if not subscription_changed and self.new.is_reconciled_to(at_epoch):
            return self.new
        situation = ReconciliationContext(
            target_epoch=at_epoch,
            target=target,
            topics=frozenset(existing_topics(self._topics_of(self.new), self.context.image)),
            subscription_changed=subscription_changed,
            reported=reported,
            is_free=group.is_free,
        )
        member = reconcile(self.new, situation)
        if member != self.new:
            self.records.append(current_assignment_record(group_id, member))
        return member

    @property
    def _is_new(self) -> bool:
        return self.replaces is None and self.new.member_id not in self.group.members

    def _replace(self, leaver: ConsumerMember) -> None:
        """A static member rejoins under another id, which inherits all its state."""
        group_id, member_id = self.group.group_id, self.old.member_id
        self.records += member_tombstones(group_id, leaver.member_id)
        self.records += [
            member_metadata_record(group_id, self.old),
            target_assignment_record(group_id, member_id, self.group.target(leaver.member_id)),
            current_assignment_record(group_id, self.old),
        ]

    # Patterns.

    def _topics_of(self, member: ConsumerMember) -> tuple[str, ...]:
        return self.group.topics_of(member, self._resolved)

    def _resolve_regexes(self) -> bool:
        """Resolves the patterns that are due; returns whether the topics of any have changed."""
        group, context = self.group, self.context
        old, new = self.old.regex, self.new.regex
        if not group.regex_counts and not new:
            return False
        counts = dict(group.regex_counts)
        if old and not self._is_new:
            counts[old] -= 1
        if new:
            counts[new] = counts.get(new, 0) + 1
        used = [regex for regex, count in counts.items() if count]
        unused = [regex for regex in group.resolved if not counts.get(regex)]
        if unused:
            self.records += [regex_tombstone(group.group_id, regex) for regex in unused]
            self._resolved = {
                r: resolved for r, resolved in group.resolved.items() if r not in unused
            }
        due = patterns_due(
            used,
            self._resolved,
            topics_created_at=context.topics_created_at,
            interval_ms=context.settings.regex_refresh_interval_ms,
            wall_ms=context.wall_ms,
        )
        if not due:
            return False
        before = self._resolved
        found = resolve(
            group.group_id,
            due,
            context.image,
            context.wall_ms,
            matching=context.matching,
            can_describe=context.can_describe,
        )
        self._resolved = {**before, **found}
        for regex, resolved in found.items():
            self.records.append(
                regex_record(
                    group.group_id,
                    regex,
                    resolved.topics,
                    version=resolved.version,
                    wall_ms=resolved.resolved_ms,
                )
            )
        return any(
            regex not in before or before[regex].topics != resolved.topics
            for regex, resolved in found.items()
        )

    # Epochs.

    def _next_group_epoch(self, has_changed: bool) -> int:
        group = self.group
        if not has_changed and not group.is_stale:
            return group.epoch
        names = set(group.topic_counts)
        if not self._is_new:
            before = self.old if self.replaces is None else self.replaces
            names -= {name for name in before.topics if group.topic_counts[name] == 1}
        names.update(self.new.topics)
        for resolved in self._resolved.values():
            names.update(resolved.topics)
        found = metadata_hash(names, self.context.image)
        if not has_changed and found == group.metadata_hash:
            group.is_stale = False
            return group.epoch
        self.records.append(group_epoch_record(group.group_id, group.epoch + 1, found))
        return group.epoch + 1

    def _next_target(self, epoch: int) -> tuple[int, Assignment]:
        """The epoch of the target that the member follows, and the member's part of the target."""
        group, context = self.group, self.context
        before = self.new if self.replaces is None else self.replaces
        if epoch == group.target_epoch or context.settings.is_too_early(
            group.target_ms, context.wall_ms
        ):
            return group.target_epoch, group.target(before.member_id)
        members = dict(group.members)
        members.pop(before.member_id, None)
        members[self.new.member_id] = self.new
        subscribers = {
            member_id: Subscriber(
                self._topics_of(member), group.target(member_id), member.rack, member.instance_id
            )
            for member_id, member in members.items()
        }
        own = subscribers[self.new.member_id]
        subscribers[self.new.member_id] = own._replace(previous=group.target(before.member_id))
        name = context.settings.preferred_assignor(member.assignor for member in members.values())
        assign = find_assignor(name)
        assert assign is not None, name
        targets = compute_targets(subscribers, assign, context.image)
        for member_id, target in targets.items():
            if target != subscribers[member_id].previous:
                self.records.append(target_assignment_record(group.group_id, member_id, target))
        self.records.append(target_epoch_record(group.group_id, epoch, context.wall_ms))
        return epoch, targets[self.new.member_id]
