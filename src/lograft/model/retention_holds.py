"""Retention holds, which a group writes into the metadata of an offset that it commits.

    hold-until=1763261234567

Records from that offset on are kept until then (milliseconds since 1970) if the topic lists the
group in `retention.hold.groups`. The metadata may contain other words too, so any Kafka client can
set a hold.
"""

import re
from typing import Final

#: The topic setting with the groups that may hold records.
HOLD_GROUPS: Final = "retention.hold.groups"

_HOLD: Final = re.compile(r"(?:^|\s)hold-until=(\d{1,19})(?=\s|$)")


def format_hold(until_ms: int) -> str:
    return f"hold-until={until_ms}"


def parse_hold(metadata: str | None) -> int | None:
    """Returns None if the metadata has no hold."""
    match = _HOLD.search(metadata or "")
    return None if match is None else int(match[1])
