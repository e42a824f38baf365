"""What can be wrong with bytes from outside, and with messages that we try to write."""

from lograft.model.errors import LograftError


class WireError(LograftError):
    """Root of this room's errors."""


class MalformedMessage(WireError):
    """The bytes are not a message of that kind and version: cut short, a lying count or length,
    a null where none may be, text that is not UTF-8."""


class UnsupportedVersion(WireError):
    """There is no such version of this message."""


class UnwritableMessage(WireError):
    """A message of ours cannot be put into bytes of that version: a field that the version does
    not have is set, or a value does not fit its type."""


class FrameTooLarge(WireError):
    """The peer announced a frame above the limit (or of negative size). The connection must be
    closed: what follows cannot be told apart."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes, the limit is {limit}")
        self.size = size
        self.limit = limit
