"""How a producer is told that another one has taken its place."""

from lograft.api.errors import code_of
from lograft.model.errors import ErrorCode, LograftError


def told(error: LograftError, *, knows_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED has a name of its own only in later versions (KIP-588)."""
    code = code_of(error)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
