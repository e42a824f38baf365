"""Exponential back-off with jitter, so that clients do not retry at the same time."""

from lograft.model.seams import Randomness

_JITTER = 0.2
_GROWTH = 2


def backoff_ms(first_ms: int, max_ms: int, failures: int, randomness: Randomness) -> int:
    """Returns how long to wait after that many failures in a row: doubles, plus or minus 20%."""
    if failures <= 0:
        return 0
    # The exponent is bounded so that the power stays a small number.
    target_ms = min(first_ms * _GROWTH ** min(failures - 1, 30), max(first_ms, max_ms))
    return int(target_ms * randomness.uniform(1 - _JITTER, 1 + _JITTER))
