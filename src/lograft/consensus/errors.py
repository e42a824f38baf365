"""What a caller of the core can do wrong."""

from lograft.model.errors import LograftError


class IllegalMove(LograftError):
    """A role was left by a way that the table of roles does not have: a bug in the core."""


class NotLeading(LograftError):
    """Only a leader appends and resigns."""
