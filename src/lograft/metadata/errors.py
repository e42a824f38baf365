"""Why a decision refuses a request: a Kafka code and a sentence that says what to do."""

from lograft.model.errors import ErrorCode, LograftError


class Refused(LograftError):
    """One item of a request, or all of it, cannot be done. Most decisions catch it per item."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def message(self) -> str:
        return str(self)


class InconsistentRecord(LograftError):
    """A metadata record contradicts the image it is replayed on: the log is not ours or damaged."""
