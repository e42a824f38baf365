"""A retention hold, as a group writes it into the metadata of an offset that it commits.

    hold-until=1763261234567

Records from that offset on are kept until then (milliseconds since 1970) where the topic lists the
group in `retention.hold.groups`. Other words may stand beside it, so any Kafka client can hold.
"""

import re
from typing import Final

#: Which groups may hold a topic's records.
HOLD_GROUPS: Final = "retention.hold.groups"

_HOLD: Final = re.compile(r"(?:^|\s)hold-until=(\d{1,19})(?=\s|$)")


def format_hold(until_ms: int) -> str:
    return f"hold-until={until_ms}"


def parse_hold(metadata: str | None) -> int | None:
    """None: these words hold nothing."""
    found = _HOLD.search(metadata or "")
    return None if found is None else int(found[1])
