"""Parses JSON that an unauthenticated client or an identity provider has sent.

Stricter than `json`: duplicate members, NaN and Infinity, and deep or very large structures are
rejected, because two parsers may interpret such a document differently.
"""

import json
from typing import Any, Final, NoReturn

#: Number of arrays and objects in a document, which also bounds their depth.
CONTAINERS_MAX: Final = 500


def parse_object(data: bytes) -> dict[str, Any]:
    """Raises ValueError, whose message does not include the data."""
    if data.count(b"{") + data.count(b"[") > CONTAINERS_MAX:
        raise ValueError("the JSON has too many arrays and objects")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique_members, parse_constant=_reject_constant
        )
    except (ValueError, RecursionError):
        raise ValueError("the JSON is invalid") from None
    if not isinstance(value, dict):
        raise ValueError("the JSON is not an object")
    return value


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member occurs twice")
    return members


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(name)
