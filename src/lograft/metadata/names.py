"""Which topic names are legal."""

import re
from typing import Final

from lograft.model.errors import ErrorCode, Rejected

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def similar_form(name: str) -> str | None:
    """Metric names cannot tell '.' from '_': two topics must not differ in these alone.
    None if the name has neither."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def check_topic_name(name: str) -> None:
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "'.' and '..' name folders"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"it has {len(name)} characters, {NAME_LENGTH_MAX} is the most"
    elif _LEGAL.fullmatch(name) is None:
        problem = "only a-z, A-Z, 0-9, '.', '_' and '-' may be used"
    else:
        return
    shown = name if len(name) <= 60 else name[:60] + "…"
    raise Rejected(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name '{shown}' is not legal: {problem}."
    )
