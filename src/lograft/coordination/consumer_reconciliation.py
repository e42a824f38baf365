"""How a member gets from what it has to what it shall have, one heartbeat at a time.

It first gives up what is not in its target: told so, it stays in its old epoch until its heartbeat
shows that it did. Then it moves to the target's epoch and gets what is free, the rest when others
have given it up. So a partition never has two owners (G2): what a member was once given counts as
its own until it says otherwise, leaves or is fenced.
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
class Situation:
    target_epoch: int
    target: Assignment
    #: Topics that the member subscribes to now. The target may be older than its subscription.
    topics: Container[UUID]
    subscription_changed: bool
    #: What the member says it has; None: it did not say.
    reported: Mapping[UUID, Collection[int]] | None
    #: Whether nobody has a partition.
    is_free: Callable[[UUID, int], bool]


def reconcile(member: ConsumerMember, now: Situation) -> ConsumerMember:
    """The member's next step; itself, if there is none now."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != now.target_epoch:
                return _next(member, now)
            return _unsubscribe(member, now) if now.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _holds_any(now.reported, member.revoking):
                return _next(member, now)
            return _unsubscribe(member, now) if now.subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, now)
        case MemberState.UNKNOWN:
            if now.reported is None or any(now.reported.values()):
                raise Rejected(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"The state of member {member.member_id} was written by a later release: "
                    "it has to give up its partitions and join again.",
                )
            return _next(member.with_epoch(now.target_epoch), now)


def _next(member: ConsumerMember, now: Situation) -> ConsumerMember:
    kept: dict[UUID, dict[int, int]] = {}
    revoked: dict[UUID, dict[int, int]] = {}
    new: dict[UUID, dict[int, int]] = {}
    is_waiting = False
    for topic_id in dict.fromkeys((*now.target, *member.assigned)):
        wanted = dict.fromkeys(now.target.get(topic_id, ()) if topic_id in now.topics else ())
        owned = member.assigned.get(topic_id, {})
        for partition, epoch in owned.items():
            side = kept if partition in wanted else revoked
            side.setdefault(topic_id, {})[partition] = epoch
        given_up = member.revoking.get(topic_id, {})
        for partition in wanted:
            if partition in owned:
                continue
            if partition in given_up or now.is_free(topic_id, partition):
                new.setdefault(topic_id, {})[partition] = now.target_epoch
            else:
                is_waiting = True
    if revoked and _holds_any(now.reported, revoked):
        return member.with_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoked
        )
    for topic_id, partitions in new.items():
        kept.setdefault(topic_id, {}).update(partitions)
    return member.with_epoch(now.target_epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=kept,
        revoking=NOTHING_OWNED,
    )


def _unsubscribe(member: ConsumerMember, now: Situation) -> ConsumerMember:
    """It need not wait for a new target to give up topics that it no longer subscribes to."""
    gone = {t: partitions for t, partitions in member.assigned.items() if t not in now.topics}
    if not gone:
        return member
    assigned = {t: partitions for t, partitions in member.assigned.items() if t not in gone}
    revoking = {t: dict(partitions) for t, partitions in member.revoking.items()}
    for topic_id, partitions in gone.items():
        revoking.setdefault(topic_id, {}).update(partitions)
    if _holds_any(now.reported, revoking):
        return member.with_epoch(member.epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking
        )
    return member.with_epoch(member.epoch)._replace(assigned=assigned)


def _holds_any(reported: Mapping[UUID, Collection[int]] | None, revoked: Owned) -> bool:
    """Whether the member may still use one of them: it does, unless it says that it does not."""
    if reported is None:
        return True
    return any(
        partition in revoked.get(topic_id, ())
        for topic_id, partitions in reported.items()
        for partition in partitions
    )
