"""Durations in the notation of Spark's options: `15m`, `200ms`, `1h`; the default unit is ms."""

import re
from typing import Final

from lograft.model.errors import InvalidConfig

_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "": 1,
}


def parse_duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _MS:
        units = ", ".join(unit for unit in _MS if unit)
        raise InvalidConfig(f"{name} is {text!r}, but must be a number and a unit ({units})")
    return int(int(match[1]) * _MS[match[2]])
