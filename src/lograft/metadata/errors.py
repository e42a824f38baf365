"""What is wrong with a metadata log."""

from lograft.model.errors import LograftError


class InconsistentRecord(LograftError):
    """A metadata record contradicts the image it is replayed on: the log is not ours or damaged."""
