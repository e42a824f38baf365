"""What a caller of the core can do wrong."""

from lograft.model.errors import LograftError


class IllegalMove(LograftError):
    """A role was left by a way that the table of roles does not have: a bug in the core."""


class CommittedAtRisk(IllegalMove):
    """Another replica asks for a step that would undo what is committed. Whoever is wrong, this
    replica keeps its log: it must stop, not obey."""


class NotLeading(LograftError):
    """Only a leader appends and resigns."""
