"""Errors raised by the Raft core."""

from lograft.model.errors import LograftError


class IllegalTransition(LograftError):
    """The table of roles has no such transition: a bug in the core."""


class CommittedAtRisk(IllegalTransition):
    """Another replica's message would make this one discard committed records. Whichever of the
    two is wrong, this replica keeps its log and stops instead."""


class NotLeading(LograftError):
    """The call requires a leader, but this replica is not the leader."""
