"""Errors in received bytes, and in messages to be written."""

from lograft.model.errors import LograftError


class WireError(LograftError):
    """Base class of this room's errors."""


class MalformedMessage(WireError):
    """The bytes are not a message of that type and version: truncated, with an invalid count or
    length, a null in a field that is not nullable, or text that is not UTF-8."""


class UnsupportedVersion(WireError):
    """This version of the message does not exist."""


class UnwritableMessage(WireError):
    """A message cannot be encoded in that version: a field that the version does not have is set,
    or a value does not fit its type."""


class FrameTooLarge(WireError):
    """The peer announced a frame above the limit (or with a negative size). The connection must be
    closed, because the bytes that follow cannot be interpreted."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes, but the limit is {limit}")
        self.size = size
        self.limit = limit
