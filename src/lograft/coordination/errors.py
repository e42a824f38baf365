"""Why a coordinator is not available. A core's own errors are `Rejected`."""

from lograft.model.errors import LograftError


class NotCoordinator(LograftError):
    """Another broker leads the partition of the internal topic to which this key belongs."""


class CoordinatorLoading(LograftError):
    """This broker leads the partition and has not finished replaying it."""


class CoordinatorNotAvailable(LograftError):
    """The coordinator cannot write now (no internal topic yet, too few replicas, a slow commit).
    The client retries."""


class UnreadableRecord(LograftError):
    """A record of an internal topic that this release cannot parse."""
