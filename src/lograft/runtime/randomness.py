"""Chance from the kernel where it must not be guessed, a fast generator for spread and jitter."""

import os
import random
from typing import Final
from uuid import UUID

#: A UUID whose text begins with "-" reads as an option on every command line, so Kafka never makes
#: one. In URL-safe base64 "-" stands for 62, the upper six bits of the first byte.
_DASH: Final = 62


class SystemRandomness:
    __slots__ = ("_generator",)

    def __init__(self) -> None:
        self._generator = random.Random(os.urandom(32))

    def uuid(self) -> UUID:
        raw = os.urandom(16)
        while raw[0] >> 2 == _DASH:
            raw = os.urandom(16)
        return UUID(bytes=raw, version=4)

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return self._generator.uniform(low, high)

    def below(self, bound: int) -> int:
        return self._generator.randrange(bound)
