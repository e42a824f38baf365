"""Maps errors of Lograft to Kafka's error codes; a test ensures that every error has one.

A subclass without an entry has the code of its parent.
"""

from typing import Final

from lograft.broker import errors as broker
from lograft.consensus import errors as consensus
from lograft.coordination import errors as coordination
from lograft.metadata import errors as metadata
from lograft.model import errors as model
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import CloseConnection
from lograft.security.standard_authorizer import AuthorizerNotReady
from lograft.storage import errors as storage
from lograft.wire import errors as wire
from lograft.wire.batches import MalformedBatch, UnsupportedMagic
from lograft.wire.compression import DecompressedTooLarge, DecompressionFailed
from lograft.wire.otlp import MalformedTelemetry

CODE_OF: Final[dict[type[LograftError], ErrorCode]] = {
    model.InvalidInput: ErrorCode.INVALID_REQUEST,
    model.InvalidConfig: ErrorCode.INVALID_CONFIG,
    model.DiskFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    CloseConnection: ErrorCode.INVALID_REQUEST,
    # Bytes from outside.
    wire.WireError: ErrorCode.INVALID_REQUEST,
    wire.MalformedMessage: ErrorCode.INVALID_REQUEST,
    wire.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    wire.UnwritableMessage: ErrorCode.UNKNOWN_SERVER_ERROR,
    wire.FrameTooLarge: ErrorCode.INVALID_REQUEST,
    MalformedBatch: ErrorCode.CORRUPT_MESSAGE,
    UnsupportedMagic: ErrorCode.INVALID_RECORD,
    DecompressionFailed: ErrorCode.CORRUPT_MESSAGE,
    DecompressedTooLarge: ErrorCode.INVALID_RECORD,
    MalformedTelemetry: ErrorCode.INVALID_RECORD,
    # The log.
    storage.StorageError: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    storage.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    storage.RecordListTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage.RejectedRecords: ErrorCode.INVALID_RECORD,
    storage.InvalidRecord: ErrorCode.INVALID_RECORD,
    storage.NeedsWorker: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.UnsupportedBatchFormat: ErrorCode.INVALID_RECORD,
    storage.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    storage.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    storage.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    storage.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    storage.UnexpectedOffset: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.BeginsInsideBatch: ErrorCode.UNKNOWN_SERVER_ERROR,
    storage.LogClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    storage.LogCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.BatchCorruptBelowRecoveryPoint: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.InvalidCheckpoint: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.SnapshotCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    # The broker.
    broker.NotController: ErrorCode.NOT_CONTROLLER,
    broker.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.ReplicaNotMovable: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    broker.PartitionNotYetOpen: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.PartitionMissing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    broker.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    broker.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    broker.PartitionOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    broker.WaitTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    broker.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    broker.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    broker.NeedsCoordinator: ErrorCode.UNKNOWN_SERVER_ERROR,
    broker.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    broker.FetchSessionNotFound: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    broker.InvalidFetchSessionEpoch: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    broker.FetchSessionTopicIdMismatch: ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    broker.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.RecordsNotDeletable: ErrorCode.POLICY_VIOLATION,
    # Coordinators.
    coordination.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    coordination.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    coordination.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    coordination.UnreadableRecord: ErrorCode.UNKNOWN_SERVER_ERROR,
    # Other nodes.
    broker.ControllerUnreachable: ErrorCode.REQUEST_TIMED_OUT,
    broker.PeerUnreachable: ErrorCode.NETWORK_EXCEPTION,
    broker.PeerIncompatible: ErrorCode.NETWORK_EXCEPTION,
    broker.PeerRejectedLogin: ErrorCode.NETWORK_EXCEPTION,
    broker.UnusableResponse: ErrorCode.UNKNOWN_SERVER_ERROR,
    broker.InconsistentClusterId: ErrorCode.INCONSISTENT_CLUSTER_ID,
    broker.PeerLost: ErrorCode.REQUEST_TIMED_OUT,
    # The controller and its quorum.
    broker.MetadataBatchTooLarge: ErrorCode.POLICY_VIOLATION,
    broker.MetadataCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    broker.VotesCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    model.Rejected: ErrorCode.UNKNOWN_SERVER_ERROR,  # carries its own code, see code_of
    AuthorizerNotReady: ErrorCode.UNKNOWN_SERVER_ERROR,  # as in Kafka
    metadata.InconsistentRecord: ErrorCode.UNKNOWN_SERVER_ERROR,
    consensus.IllegalTransition: ErrorCode.UNKNOWN_SERVER_ERROR,
    consensus.CommittedAtRisk: ErrorCode.UNKNOWN_SERVER_ERROR,
    consensus.NotLeading: ErrorCode.NOT_CONTROLLER,
}


def code_of(error: LograftError) -> ErrorCode:
    if isinstance(error, model.Rejected):
        return error.code
    for kind in type(error).__mro__:
        code = CODE_OF.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
