"""Moves a member from its current assignment to its target, one heartbeat at a time.

The member first has to revoke the partitions that are not in its target. It stays in its old epoch
until one of its heartbeats shows that it has. Then it moves to the target's epoch and gets the
partitions that are free, and the remaining ones as other members revoke them. A partition therefore
never has two owners (G2): once assigned to a member, it counts as owned until the member reports
otherwise, leaves or is fenced.
"""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from uuid import UUID

from lograft.coordination.assignors import Assignment
from lograft.coordination.consumer_member import (
    NOTHING_OWNED,
    ConsumerMember,
    MemberState,
    Owned,
)
from lograft.model.errors import ErrorCode, Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationContext:
    target_epoch: int
    target: Assignment
    #: Topics that the member subscribes to now. The target may be older than its subscription.
    topics: Container[UUID]
    subscription_changed: bool
    #: The partitions that the member reports to own; None if it did not report any.
    reported: Mapping[UUID, Collection[int]] | None
    #: Whether a partition has no owner.
    is_free: Callable[[UUID, int], bool]


def reconcile(member: ConsumerMember, context: ReconciliationContext) -> ConsumerMember:
    """The member after its next step; unchanged if there is no step to take."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != context.target_epoch:
                return _next(member, context)
            return _unsubscribe(member, context) if context.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _owns_any(context.reported, member.revoking):
                return _next(member, context)
            return _unsubscribe(member, context) if context.subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, context)
        case MemberState.UNKNOWN:
            if context.reported is None or any(context.reported.values()):
                raise Rejected(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"The state of member {member.member_id} was written by a later release: "
                    "the member must abandon all its partitions and rejoin.",
                )
            return _next(member.with_epoch(context.target_epoch), context)


def _next(member: ConsumerMember, context: ReconciliationContext) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    new: dict[UUID, dict[int, int]] = {}
    is_waiting = False
    for topic_id in dict.fromkeys((*context.target, *member.assigned)):
        target = dict.fromkeys(
            context.target.get(topic_id, ()) if topic_id in context.topics else ()
        )
        owned = member.assigned.get(topic_id, {})
        for partition, epoch in owned.items():
            side = kept if partition in target else revoked
            side.setdefault(topic_id, {})[partition] = epoch
        given_up = member.revoking.get(topic_id, {})
        for partition in target:
            if partition in owned:
                continue
            if partition in given_up or context.is_free(topic_id, partition):
                new.setdefault(topic_id, {})[partition] = context.target_epoch
            else:
                is_waiting = True
    if revoked and _owns_any(context.reported, revoked):
        return member.with_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoked
        )
    for topic_id, partitions in new.items():
        kept.setdefault(topic_id, {}).update(partitions)
    return member.with_epoch(context.target_epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking=NOTHING_OWNED,
    )


def _unsubscribe(member: ConsumerMember, context: ReconciliationContext) -> ConsumerMember:
    """Revokes topics that the member no longer subscribes to without waiting for a new target."""
    unsubscribed = {
        t: partitions for t, partitions in member.assigned.items() if t not in context.topics
    }
    if not unsubscribed:
        return member
    assigned = {t: partitions for t, partitions in member.assigned.items() if t not in unsubscribed}
    revoking = {t: dict(partitions) for t, partitions in member.revoking.items()}
    for topic_id, partitions in unsubscribed.items():
        revoking.setdefault(topic_id, {}).update(partitions)
    if _owns_any(context.reported, revoking):
        return member.with_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking
        )
    return member.with_epoch(member.epoch)._replace(assigned=assigned)


def _owns_any(reported: Mapping[UUID, Collection[int]] | None, revoked: Owned) -> bool:
    """Whether the member may still own one of them: assumed unless it reports otherwise."""
    if reported is None:
        return True
    return any(
        partition in revoked.get(topic_id, ())
        for topic_id, partitions in reported.items()
        for partition in partitions
    )
