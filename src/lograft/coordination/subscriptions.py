"""Subscriptions by pattern: the server matches topic names, so all members see the same topics.

A pattern is resolved when the first member subscribes to it. It is resolved again when topics are
created and after `group.consumer.regex.refresh.interval.ms`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lograft.coordination.pattern_matching import PatternMatching
from lograft.metadata.image import MetadataImage
from lograft.metadata.topic_claims import find_unclaimed
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.patterns import InvalidPattern

#: A group's patterns are not resolved again sooner, however many topics are created.
REFRESH_INTERVAL_MS_MIN: Final = 10_000


class ResolvedRegex(NamedTuple):
    #: Sorted.
    topics: tuple[str, ...]
    #: Version of the image that it was matched with.
    version: int
    #: Wall-clock time of the matching.
    resolved_ms: int


def resolve(
    group_id: str,
    regexes: Sequence[str],
    image: MetadataImage,
    wall_ms: int,
    *,
    matching: PatternMatching,
    can_describe: Callable[[str], bool],
) -> dict[str, ResolvedRegex]:
    """For each pattern, the topics whose whole name matches. Excludes topics that the requesting
    member is not authorized to describe, and topics that only one group may read, unless this group
    has claimed them by name. Raises Rejected for invalid patterns, and NeedsLongWork."""
    try:
        matched = matching.match_names(regexes, image.topic_ids, image.offset)
    except InvalidPattern as error:
        raise Rejected(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{error.pattern}` is not a valid regular expression: {error}.",
        ) from None
    found: dict[str, ResolvedRegex] = {}
    for regex, (names, version) in matched.items():
        topics = {name for name in names if name in image.topic_ids and can_describe(name)}
        topics.difference_update(find_unclaimed(image, group_id, topics))
        found[regex] = ResolvedRegex(tuple(sorted(topics)), version, wall_ms)
    return found


def patterns_due(
    subscribed: Sequence[str],
    resolved: Mapping[str, ResolvedRegex],
    *,
    topics_created_at: int,
    interval_ms: int,
    wall_ms: int,
) -> Sequence[str]:
    """The group's patterns to resolve now: new ones, or all if a refresh is due.
    `topics_created_at` is the version of the last image that added topics."""
    new = [regex for regex in subscribed if regex not in resolved]
    if not resolved:
        return new
    age_ms = wall_ms - min(regex.resolved_ms for regex in resolved.values())
    if 0 <= age_ms <= REFRESH_INTERVAL_MS_MIN:
        return new
    is_behind = min(regex.version for regex in resolved.values()) < topics_created_at
    return subscribed if is_behind or not 0 <= age_ms <= interval_ms else new
