"""Reasons why a broker rejects requests; `api/errors.py` maps them to error codes."""

from lograft.model.errors import LograftError
from lograft.model.seams import Address


class NotController(LograftError):
    """This node is not, or no longer, the active controller."""


class NotLeader(LograftError):
    """This replica does not lead the partition."""


class UnknownPartition(LograftError):
    """This broker has no such topic or partition."""


class UnknownTopicId(LograftError):
    """The metadata image has no topic with this id."""


class FencedLeaderEpoch(LograftError):
    """The client knows an older leader epoch than this broker's: it must refresh its metadata."""


class UnknownLeaderEpoch(LograftError):
    """The client knows a newer leader epoch than this broker's, whose metadata is outdated."""


class PartitionOffline(LograftError):
    """The partition's log dir failed; it stays offline until a restart."""


class WaitTimedOut(LograftError):
    """The records were appended but not committed within the request's timeout."""


class NotEnoughReplicas(LograftError):
    """The ISR is smaller than min.insync.replicas: acks=all is rejected and nothing was written."""


class NotEnoughReplicasAfterAppend(LograftError):
    """The ISR shrank below min.insync.replicas after the records were written."""


class NeedsCoordinator(LograftError):
    """Not an error: a batch starts a transaction on the partition, which must be verified with its
    coordinator before the append."""


class OffsetNotAvailable(LograftError):
    """A new leader does not know yet what its predecessor had committed (KIP-207), or a follower
    does not know yet that a record that its reader has seen is committed (KIP-392)."""


class FetchSessionNotFound(LograftError):
    """The session was evicted, or is older than this process: the client starts a full fetch."""


class InvalidFetchSessionEpoch(LograftError):
    """The request does not have the next epoch of its session."""


class ReplicaNotMovable(LograftError):
    """The replica cannot be moved to another log dir."""


class PartitionNotYetOpen(NotLeader):
    """A worker is still opening the partition's log; waiting is better than rejecting the
    request."""


class FetchSessionTopicIdMismatch(LograftError):
    """A session was created with topic names and continued with topic ids, or the reverse."""


class InvalidTopic(LograftError):
    """The topic name is invalid, or the topic is internal."""


class PartitionMissing(UnknownPartition):
    """The partition does not exist yet, but producing to it may create its topic."""

    def __init__(self, topic: str, index: int) -> None:
        super().__init__(f"{topic} has no partition {index}")
        self.topic = topic
        self.index = index


class RecordsNotDeletable(LograftError):
    """The topic has cleanup.policy=compact only."""


class MetadataCorrupt(LograftError):
    """The metadata log or its snapshots cannot be read. The node stops, since with incomplete
    metadata it could delete partitions that still exist."""


class VotesCorrupt(LograftError):
    """The vote journal is damaged in the middle: votes that were granted are lost."""


class MetadataBatchTooLarge(LograftError):
    """The records of one decision do not fit into one batch of the metadata log."""


class PeerUnreachable(LograftError):
    """A request to another node was never sent, so it certainly had no effect."""

    def __init__(self, address: Address, reason: str, *, refused: bool = False) -> None:
        super().__init__(f"{address} cannot be reached: {reason}")
        #: The host refused the connection: the process is not running.
        self.refused = refused


class PeerIncompatible(PeerUnreachable):
    """The other node does not support the API in a version that this one needs. The request was not
    sent. A retry makes sense, since the other node may be upgraded."""


class PeerRejectedLogin(PeerUnreachable):
    """The other node did not accept the user and the password of this node, or could not be
    authenticated by this node. A retry makes sense, since a password rotation may be in
    progress."""


class PeerLost(LograftError):
    """A request to another node got no response: it may or may not have had an effect."""


class ControllerUnreachable(LograftError):
    """No active controller responded in time; the last request may or may not have had an
    effect."""


class UnusableResponse(LograftError):
    """The quorum cannot use the response of another node."""


class InconsistentClusterId(UnusableResponse):
    """The other node belongs to another cluster."""
