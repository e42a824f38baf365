"""Why the broker refuses a request; `api/errors.py` knows the code of each."""

from lograft.model.errors import LograftError
from lograft.model.seams import Address


class NotController(LograftError):
    """This node is not the active controller (any more)."""


class NotLeader(LograftError):
    """Another replica leads the partition, or nobody does."""


class UnknownPartition(LograftError):
    """No such topic or partition here."""


class UnknownTopicId(LograftError):
    """The metadata image has no topic with this id."""


class FencedLeaderEpoch(LograftError):
    """The client knows an older leader epoch than ours: it must refresh its metadata."""


class UnknownLeaderEpoch(LograftError):
    """The client knows a newer leader epoch than ours: we are behind."""


class PartitionOffline(LograftError):
    """The partition's log dir failed; it stays offline until a restart."""


class WaitTimedOut(LograftError):
    """The records were appended but not committed within the request's timeout."""


class NotEnoughReplicas(LograftError):
    """The ISR is smaller than min.insync.replicas: acks=all is refused, nothing was written."""


class NotEnoughReplicasAfterAppend(LograftError):
    """The ISR shrank below min.insync.replicas after the records were written."""


class NeedsCoordinator(LograftError):
    """Nothing is wrong, but a batch begins a transaction here: its coordinator must be asked before
    it is appended."""


class OffsetNotAvailable(LograftError):
    """A new leader does not know yet how far its predecessor had committed (KIP-207), or a
    follower not yet that a record that its reader knows of is committed (KIP-392)."""


class FetchSessionNotFound(LograftError):
    """Evicted, or of another life of this node: the client starts a full fetch."""


class InvalidFetchSessionEpoch(LograftError):
    """The request is not the one that follows the last of its session."""


class ReplicaNotMovable(LograftError):
    """It cannot be moved to another log dir."""


class PartitionOpening(NotLeader):
    """A worker is still opening the partition's log; waiting for it is better than refusing."""


class FetchSessionTopicIdMismatch(LograftError):
    """A session began with topic names and went on with ids, or the other way round."""


class InvalidTopic(LograftError):
    """The topic's name is not legal, or the topic is not for clients."""


class PartitionMissing(UnknownPartition):
    """No such partition yet, but producing to it may create it."""

    def __init__(self, topic: str, index: int) -> None:
        super().__init__(f"{topic} has no partition {index}")
        self.topic = topic
        self.index = index


class RecordsNotDeletable(LograftError):
    """The topic is compacted only."""


class MetadataCorrupt(LograftError):
    """The metadata log or its snapshots cannot be read. The node stops rather than guess: what it
    does not know it must not delete."""


class VotesCorrupt(LograftError):
    """The journal of votes is damaged in the middle: votes that were given are forgotten."""


class MetadataBatchTooLarge(LograftError):
    """The records of one decision do not fit into one batch of the metadata log."""


class PeerUnreachable(LograftError):
    """A request to another node was never sent: it certainly did not happen."""

    def __init__(self, address: Address, reason: str, *, refused: bool = False) -> None:
        super().__init__(f"{address} cannot be reached: {reason}")
        #: The host answered that nobody listens there: the process is gone.
        self.refused = refused


class PeerIncompatible(PeerUnreachable):
    """The other node does not serve the API in a version that this one needs. Never sent; worth a
    retry, since the other node may be upgraded."""


class PeerLost(LograftError):
    """A request to another node was sent and no answer came: it may or may not have happened."""


class ControllerUnreachable(LograftError):
    """No active controller answered in time; the last request may or may not have happened."""


class UnusableResponse(LograftError):
    """Another node's answer says nothing that the quorum could use."""


class ForeignCluster(UnusableResponse):
    """The other node belongs to another cluster."""
