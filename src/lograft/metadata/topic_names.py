"""Validates topic names."""

import re
from typing import Final

from lograft.model.errors import ErrorCode, Rejected

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def similar_form(name: str) -> str | None:
    """Metric names do not distinguish '.' and '_', so topics must not differ only in these.
    None if the name contains neither."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def check_topic_name(name: str) -> None:
    if not name:
        problem = "it must not be empty"
    elif name in (".", ".."):
        problem = "'.' and '..' are not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"its length {len(name)} exceeds the maximum of {NAME_LENGTH_MAX} characters"
    elif _LEGAL.fullmatch(name) is None:
        problem = "only the characters a-z, A-Z, 0-9, '.', '_' and '-' are allowed"
    else:
        return
    shown = name if len(name) <= 60 else name[:60] + "…"
    raise Rejected(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name '{shown}' is invalid: {problem}."
    )
