"""Why a coordinator cannot be asked. What it refuses itself is a `Rejected`."""

from lograft.model.errors import LograftError


class NotCoordinator(LograftError):
    """Another broker leads the partition of the internal topic that this key belongs to."""


class CoordinatorLoading(LograftError):
    """This broker leads it, and has not replayed it to its end yet."""


class CoordinatorNotAvailable(LograftError):
    """It cannot write now (no internal topic yet, too few replicas, a commit that takes long):
    the client asks again."""


class UnreadableRecord(LograftError):
    """A record of an internal topic that this release does not understand."""
