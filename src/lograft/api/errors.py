"""From the rooms' errors to Kafka's codes: every error has one, a test sees to it.

A subclass without a line of its own has the code of its parent.
"""

from typing import Final

from lograft.broker import errors as broker
from lograft.consensus import errors as consensus
from lograft.coordination import errors as coordination
from lograft.metadata import errors as metadata
from lograft.model import errors as model
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import CloseConnection
from lograft.storage import errors as storage
from lograft.wire import errors as wire
from lograft.wire.batches import MalformedBatch, UnsupportedMagic
from lograft.wire.compression import DecompressedTooLarge, DecompressionFailed

CODE_OF: Final[dict[type[LograftError], ErrorCode]] = {
    model.InvalidInput: ErrorCode.invalid_request,
    model.InvalidConfig: ErrorCode.invalid_config,
    model.DiskFailed: ErrorCode.kafka_storage_error,
    CloseConnection: ErrorCode.invalid_request,
    # Bytes from outside.
    wire.WireError: ErrorCode.invalid_request,
    wire.MalformedMessage: ErrorCode.invalid_request,
    wire.UnsupportedVersion: ErrorCode.unsupported_version,
    wire.UnwritableMessage: ErrorCode.unknown_server_error,
    wire.FrameTooLarge: ErrorCode.invalid_request,
    MalformedBatch: ErrorCode.corrupt_message,
    UnsupportedMagic: ErrorCode.invalid_record,
    DecompressionFailed: ErrorCode.corrupt_message,
    DecompressedTooLarge: ErrorCode.invalid_record,
    # The log.
    storage.StorageError: ErrorCode.unknown_server_error,
    storage.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    storage.CorruptBatch: ErrorCode.corrupt_message,
    storage.MessageTooLarge: ErrorCode.message_too_large,
    storage.RecordListTooLarge: ErrorCode.record_list_too_large,
    storage.RejectedRecords: ErrorCode.invalid_record,
    storage.InvalidRecord: ErrorCode.invalid_record,
    storage.NeedsWorker: ErrorCode.unknown_server_error,
    storage.UnsupportedBatchFormat: ErrorCode.invalid_record,
    storage.UnsupportedCompression: ErrorCode.unsupported_compression_type,
    storage.InvalidTimestamp: ErrorCode.invalid_timestamp,
    storage.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    storage.ProducerFenced: ErrorCode.invalid_producer_epoch,
    storage.CoordinatorFenced: ErrorCode.transaction_coordinator_fenced,
    storage.InvalidTransactionState: ErrorCode.invalid_txn_state,
    storage.UnknownProducer: ErrorCode.unknown_producer_id,
    storage.UnexpectedOffset: ErrorCode.unknown_server_error,
    storage.BeginsInsideBatch: ErrorCode.unknown_server_error,
    storage.LogClosed: ErrorCode.not_leader_or_follower,
    storage.LogCorrupt: ErrorCode.kafka_storage_error,
    storage.BatchCorruptBelowRecoveryPoint: ErrorCode.kafka_storage_error,
    storage.InvalidCheckpoint: ErrorCode.kafka_storage_error,
    storage.SnapshotCorrupt: ErrorCode.kafka_storage_error,
    # The broker.
    broker.NotController: ErrorCode.not_controller,
    broker.NotLeader: ErrorCode.not_leader_or_follower,
    broker.ReplicaNotMovable: ErrorCode.invalid_replica_assignment,
    broker.PartitionOpening: ErrorCode.not_leader_or_follower,
    broker.UnknownPartition: ErrorCode.unknown_topic_or_partition,
    broker.PartitionMissing: ErrorCode.unknown_topic_or_partition,
    broker.UnknownTopicId: ErrorCode.unknown_topic_id,
    broker.FencedLeaderEpoch: ErrorCode.fenced_leader_epoch,
    broker.UnknownLeaderEpoch: ErrorCode.unknown_leader_epoch,
    broker.PartitionOffline: ErrorCode.kafka_storage_error,
    broker.WaitTimedOut: ErrorCode.request_timed_out,
    broker.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    broker.NotEnoughReplicasAfterAppend: ErrorCode.not_enough_replicas_after_append,
    broker.NeedsCoordinator: ErrorCode.unknown_server_error,
    broker.OffsetNotAvailable: ErrorCode.offset_not_available,
    broker.FetchSessionNotFound: ErrorCode.fetch_session_id_not_found,
    broker.InvalidFetchSessionEpoch: ErrorCode.invalid_fetch_session_epoch,
    broker.FetchSessionTopicIdMismatch: ErrorCode.fetch_session_topic_id_error,
    broker.InvalidTopic: ErrorCode.invalid_topic_exception,
    broker.RecordsNotDeletable: ErrorCode.policy_violation,
    # Coordinators.
    coordination.NotCoordinator: ErrorCode.not_coordinator,
    coordination.CoordinatorLoading: ErrorCode.coordinator_load_in_progress,
    coordination.CoordinatorNotAvailable: ErrorCode.coordinator_not_available,
    coordination.UnreadableRecord: ErrorCode.unknown_server_error,
    # Other nodes.
    broker.ControllerUnreachable: ErrorCode.request_timed_out,
    broker.PeerUnreachable: ErrorCode.network_exception,
    broker.PeerIncompatible: ErrorCode.network_exception,
    broker.UnusableAnswer: ErrorCode.unknown_server_error,
    broker.ForeignCluster: ErrorCode.inconsistent_cluster_id,
    broker.PeerLost: ErrorCode.request_timed_out,
    # The controller and its quorum.
    broker.MetadataBatchTooLarge: ErrorCode.policy_violation,
    broker.MetadataCorrupt: ErrorCode.kafka_storage_error,
    broker.VotesCorrupt: ErrorCode.kafka_storage_error,
    metadata.Refused: ErrorCode.unknown_server_error,  # carries its own code, see code_of
    metadata.InconsistentRecord: ErrorCode.unknown_server_error,
    consensus.IllegalMove: ErrorCode.unknown_server_error,
    consensus.CommittedAtRisk: ErrorCode.unknown_server_error,
    consensus.NotLeading: ErrorCode.not_controller,
}


def code_of(error: LograftError) -> ErrorCode:
    if isinstance(error, metadata.Refused):
        return error.code
    for kind in type(error).__mro__:
        code = CODE_OF.get(kind)
        if code is not None:
            return code
    return ErrorCode.unknown_server_error
