"""The error code for a producer that has been fenced."""

from lograft.api.errors import code_of
from lograft.model.errors import ErrorCode, LograftError


def fencing_code_of(error: LograftError, *, knows_fenced: bool) -> ErrorCode:
    """Returns the code of the error; PRODUCER_FENCED exists only in later versions (KIP-588)."""
    code = code_of(error)
    if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
