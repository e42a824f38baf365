"""The Randomness seam: the kernel's randomness for ids and secrets, a fast generator for jitter."""

import os
import random
from typing import Final
from uuid import UUID

#: A UUID whose text starts with "-" looks like an option on command lines, so Kafka never generates
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
