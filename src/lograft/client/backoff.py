"""Waiting longer after every failure, never exactly as long as everybody else."""

from lograft.model.seams import Randomness

_JITTER = 0.2
_GROWTH = 2


def backoff_ms(first_ms: int, max_ms: int, failures: int, randomness: Randomness) -> int:
    """How long to wait after that many failures in a row; doubles, give or take a fifth."""
    if failures <= 0:
        return 0
    # The exponent is bounded: nobody needs to wait longer than 2^30 times the first wait.
    wanted = min(first_ms * _GROWTH ** min(failures - 1, 30), max(first_ms, max_ms))
    return int(wanted * randomness.uniform(1 - _JITTER, 1 + _JITTER))
