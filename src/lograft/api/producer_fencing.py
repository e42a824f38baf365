"""How a producer is told that another one has taken its place."""

from lograft.api.errors import code_of
from lograft.model.errors import ErrorCode, LograftError


def told(error: LograftError, *, knows_fenced: bool) -> ErrorCode:
    """PRODUCER_FENCED has a name of its own only in later versions (KIP-588)."""
    code = code_of(error)
    if code is ErrorCode.producer_fenced and not knows_fenced:
        return ErrorCode.invalid_producer_epoch
    return code
