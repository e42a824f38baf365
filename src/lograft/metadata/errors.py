"""Errors in a metadata log."""

from lograft.model.errors import LograftError


class InconsistentRecord(LograftError):
    """A metadata record contradicts the image that it is replayed on: the log is damaged or belongs
    to another cluster."""
