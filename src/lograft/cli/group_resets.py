"""`lograft groups reset|undo`: moves a group's offsets while it runs, and back.

First a plan, partition by partition; then, if it is wanted, one request to the coordinator, which
does all of it or nothing (docs/decisions/0010).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from lograft.cli.asking import Asks
from lograft.cli.group_questions import (
    EARLIEST,
    LATEST,
    GroupsRefused,
    Place,
    Position,
    at_coordinator,
    check,
    describe_group,
    log_offsets,
    partitions_of,
    positions_of,
)
from lograft.cli.groups import readers_of, table
from lograft.coordination.offset_reset import RESET_GENERATION, ResetAction
from lograft.model.errors import ErrorCode, InvalidInput
from lograft.model.seams import Address
from lograft.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

OFFSET_COMMIT_VERSION: Final = 9
#: What a server says that steps over the action and sees a commit of nobody.
NOT_UNDERSTOOD: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.group_id_not_found,
        ErrorCode.illegal_generation,
    }
)
_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_SHORT_DURATION: Final = re.compile(
    r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?"
)
_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. One of these."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    #: From where it stands; needs a committed offset.
    shift: int | None = None
    #: The first record from this time on (wall clock).
    from_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    partition: int
    #: None: there is no offset.
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    group: str
    action: ResetAction
    #: How many members will have to join again.
    members: int
    moves: list[Move]


# ── what the options mean ────────────────────────────────────────────────────────────────────


def parse_scope(texts: Iterable[str]) -> dict[str, set[int] | None]:
    """`T` or `T:0,2`; None: all partitions of the topic."""
    scope: dict[str, set[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic or (colon and not all(n.strip().isdigit() for n in numbers.split(","))):
            raise InvalidInput(f"{text}: write a topic, or some of its partitions as in orders:0,2")
        if not colon:
            scope[topic] = None
            continue
        known = scope.setdefault(topic, set())
        if known is not None:
            known.update(int(number) for number in numbers.split(","))
    return scope


def parse_duration_ms(text: str) -> int:
    found = _ISO_DURATION.fullmatch(text) or _SHORT_DURATION.fullmatch(text)
    parts = {unit: value for unit, value in (found.groupdict() if found else {}).items() if value}
    if not parts:
        raise InvalidInput(f"{text} is no duration: write it as in 1h30m or PT1H30M")
    return round(1000 * sum(_SECONDS[unit] * float(value) for unit, value in parts.items()))


def parse_datetime_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text} is no time: write it as in 2026-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


# ── plans ────────────────────────────────────────────────────────────────────────────────────


async def plan_reset(
    ask: Asks, group: str, target: Target, scope: Mapping[str, set[int] | None]
) -> Plan:
    """An empty scope: all that the group has committed or reads now."""
    positions = await positions_of(ask, group)
    description = await describe_group(ask, group)
    if scope:
        leaders = _chosen(await partitions_of(ask, scope.keys()), scope)
    else:
        places = {*positions, *readers_of(description)}
        known = await partitions_of(ask, {topic for topic, _ in places})
        leaders = {place: known[place] for place in sorted(places) if place in known}
        if not leaders:
            raise GroupsRefused(
                f"group {group} has no offsets and reads nothing; name its topics with --topic"
            )
    earliest = await log_offsets(ask, leaders, EARLIEST, patient=True)
    latest = await log_offsets(ask, leaders, LATEST, patient=True)
    from_time: dict[Place, int] = {}
    if target.from_ms is not None:
        from_time = await log_offsets(ask, leaders, target.from_ms, patient=True)
    moves = []
    for place in sorted(leaders):
        before = _offset(positions.get(place))
        wanted = _wanted(target, place, before, earliest, latest, from_time)
        after = min(max(wanted, earliest[place]), latest[place])
        moves.append(Move(*place, before, after))
    return Plan(group, ResetAction.reset, len(description.members), moves)


def _chosen(leaders: Mapping[Place, int], scope: Mapping[str, set[int] | None]) -> dict[Place, int]:
    chosen: dict[Place, int] = {}
    for topic, partitions in scope.items():
        there = {index for name, index in leaders if name == topic}
        if not there:
            raise GroupsRefused(f"there is no topic {topic}")
        for index in sorted(there if partitions is None else partitions):
            if index not in there:
                raise GroupsRefused(f"topic {topic} has no partition {index}, it has {len(there)}")
            chosen[topic, index] = leaders[topic, index]
    return chosen


def _wanted(
    target: Target,
    place: Place,
    before: int | None,
    earliest: Mapping[Place, int],
    latest: Mapping[Place, int],
    from_time: Mapping[Place, int],
) -> int:
    if target.earliest:
        return earliest[place]
    if target.offset is not None:
        return target.offset
    if target.shift is not None:
        if before is None:
            raise GroupsRefused(
                f"{place[0]}-{place[1]} has no offset to shift; use --to-earliest, --to-latest or"
                " --to-offset, or leave it out with --topic"
            )
        return before + target.shift
    if target.from_ms is not None and from_time[place] >= 0:
        return from_time[place]
    return latest[place]


async def plan_undo(ask: Asks, group: str, scope: Mapping[str, set[int] | None]) -> Plan:
    """The partitions that the last reset moved, as far as they are in the scope."""
    positions = await positions_of(ask, group)
    undoable = {
        place: position
        for place, position in sorted(positions.items())
        if position.reset_ms >= 0 and (not scope or _is_in(place, scope))
    }
    if not undoable:
        raise GroupsRefused(
            f"group {group} has no reset to undo"
            + (" there" if scope else "")
            + "; `lograft groups describe` shows offsets before resets"
        )
    last_ms = max(position.reset_ms for position in undoable.values())
    description = await describe_group(ask, group)
    moves = [
        Move(
            *place,
            _offset(position),
            None if position.before_reset < 0 else position.before_reset,
        )
        for place, position in undoable.items()
        if position.reset_ms == last_ms
    ]
    return Plan(group, ResetAction.undo, len(description.members), moves)


def _is_in(place: Place, scope: Mapping[str, set[int] | None]) -> bool:
    topic, index = place
    if topic not in scope:
        return False
    partitions = scope[topic]
    return partitions is None or index in partitions


def _offset(position: Position | None) -> int | None:
    return None if position is None or position.offset < 0 else position.offset


def plan_lines(plan: Plan, *, executed: bool) -> list[str]:
    lines = table(
        ["PARTITION", "BEFORE", "AFTER", "DIFFERENCE"],
        (
            (
                f"{move.topic}-{move.partition}",
                _said(move.before),
                _said(move.after),
                ""
                if move.before is None or move.after is None
                else f"{move.after - move.before:+d}",
            )
            for move in plan.moves
        ),
    )
    who = f"{plan.members} member{'' if plan.members == 1 else 's'}"
    lines.append("")
    if executed:
        verb = "reset" if plan.action is ResetAction.reset else "back where they were"
        lines.append(f"The offsets of group {plan.group} are {verb}.")
        if plan.members:
            lines.append(f"Its {who} must join again and will begin there.")
        if plan.action is ResetAction.reset:
            lines.append(f"`lograft groups undo {plan.group}` takes it back.")
    else:
        lines.append("Nothing is changed yet: --execute does it, in one step.")
        if plan.members:
            lines.append(f"The {who} of group {plan.group} will join again and begin there.")
    return lines


def _said(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


# ── acts ─────────────────────────────────────────────────────────────────────────────────────


async def execute(ask: Asks, plan: Plan) -> None:
    """All of it or nothing."""
    request = OffsetCommitRequest(
        group_id=plan.group,
        generation_id_or_member_epoch=RESET_GENERATION,
        topics=_asked(plan.moves),
        reset_action=plan.action,
    )

    async def question(at: Address) -> None:
        response = await ask(request, OFFSET_COMMIT_VERSION, OffsetCommitResponse, at=at)
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code in NOT_UNDERSTOOD and not response.error_message:
                    raise GroupsRefused(
                        "this server does not reset groups in use (it is no Lograft, or an older"
                        " one); stop the group's consumers and use kafka-consumer-groups"
                    )
                check(one.error_code, f"group {plan.group}", response.error_message or None)

    await at_coordinator(ask, plan.group, question)


def _asked(moves: Sequence[Move]) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for move in moves:
        topic = topics.setdefault(
            move.topic, OffsetCommitRequestTopic(name=move.topic, partitions=[])
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=move.partition,
                committed_offset=-1 if move.after is None else move.after,
                committed_metadata="",
            )
        )
    return list(topics.values())
