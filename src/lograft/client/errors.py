"""Exceptions of the clients. Every message says what happened, where, and what to do next.

ClientError
├─ ConnectionFailed      not sent: connecting, the handshake or authentication failed (see stage)
├─ BrokerMissing         not sent: the cluster has no broker with that id now
├─ OutcomeUnknown        sent, but no response was received: it may have been executed or not
├─ BrokerError           the broker returned one of Kafka's error codes
│  └─ …                  a class for each code that applications may handle
├─ SomeFailed            a request for several items failed for some of them
├─ TimedOut              a timeout (max.block.ms, delivery.timeout.ms, …) expired
├─ TransactionFailed     abort the transaction and begin a new one
├─ BufferFull            the buffer has no space for the record now
├─ RecordTooLargeToSend  not sent: the record exceeds a limit in the settings
├─ SerializationFailed   a serializer or deserializer raised an exception
├─ UnsupportedByBroker   the broker is too old for the request
└─ WrongUse              a call that is invalid in the client's state; a bug in the application
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from lograft.model.errors import ErrorCode, LograftError
from lograft.model.seams import Address


class ClientError(LograftError):
    """Base class of the exceptions of all clients.

    try:
        await producer.send("topic", b"value")
    except ClientError as error:
        print("retry later" if error.is_retriable else error)
    """

    #: Whether the same call may succeed later without any change.
    is_retriable: bool = False


class ConnectionFailed(ClientError):
    """The request was never sent.

    try:
        await producer.send("topic", b"value")
    except ConnectionFailed as error:
        print(error.address, error.stage)
    """

    is_retriable = True

    def __init__(self, address: Address, stage: str, cause: str, advice: str = "") -> None:
        super().__init__(f"{address}: {stage} failed: {cause}" + (f"; {advice}" if advice else ""))
        self.address = address
        #: "resolve", "connect", "tls", "versions" or "authentication".
        self.stage = stage


class AuthenticationFailed(ConnectionFailed):
    """The broker rejected the credentials of the client; a retry will not help.

    try:
        await producer.send("topic", b"value")
    except AuthenticationFailed as error:
        print("wrong password?", error)
    """

    is_retriable = False

    def __init__(self, address: Address, mechanism: str, cause: str, advice: str = "") -> None:
        super().__init__(address, "authentication", f"{mechanism}: {cause}", advice)
        self.mechanism = mechanism


class BrokerMissing(ClientError):
    """The cluster has no broker with that id, or the broker is down.

    try:
        await admin.describe_log_dirs([77])
    except BrokerMissing as error:
        print(error.broker, error)
    """

    is_retriable = True

    def __init__(self, broker: int, existing: Iterable[int], role: str = "broker") -> None:
        """`role`: "broker" or "controller"."""
        ids = ", ".join(map(str, sorted(existing))) or "none"
        super().__init__(f"there is no {role} {broker} in the cluster now; known {role}s: {ids}")
        self.broker = broker


class OutcomeUnknown(ClientError):
    """The request was sent, but no response was received: it may have been executed or not.

    try:
        await admin.delete_topics(["old"])
    except OutcomeUnknown as error:
        print("may be deleted:", error)
    """

    is_retriable = True


class UnsupportedByBroker(ClientError):
    """The broker does not support this API, or no version of it that can express the request.

    try:
        await admin.describe_cluster()
    except UnsupportedByBroker as error:
        print("an older release:", error)
    """


class TimedOut(ClientError):
    """A timeout expired; the message names the setting.

    try:
        await producer.send("topic", b"value")
    except TimedOut as error:
        print("increase max.block.ms?", error)
    """

    is_retriable = True


class WrongUse(ClientError):
    """The call or its arguments are not valid now: a bug in the application.

    try:
        await producer.commit_transaction()
    except WrongUse as error:
        print(error)
    """


class Closed(WrongUse):
    """The client has been closed.

    try:
        await producer.send("topic", b"value")
    except Closed as error:
        print(error)
    """


class NoPosition(ClientError):
    """A partition has no committed offset, and auto.offset.reset is none.

    try:
        await consumer.poll(timeout_ms=0)
    except NoPosition:
        consumer.seek_to_beginning()
    """


class LogTruncated(ClientError):
    """Records that were read are not in the log of the new leader, and auto.offset.reset is none.

    try:
        await consumer.poll(timeout_ms=0)
    except LogTruncated as error:
        print("read again:", error)
    """


class SerializationFailed(ClientError):
    """A serializer or deserializer raised an exception, which is the cause of this one.

    try:
        await producer.send("topic", object())
    except SerializationFailed as error:
        print(error.__cause__)
    """


class TransactionFailed(ClientError):
    """The transaction cannot be committed, or it was aborted and these records with it: abort it
    and begin a new one. The cause is the error of the transaction.

        try:
            async with transactional.transaction():
                await transactional.send("topic", b"value")
        except TransactionFailed as error:
            print("aborted:", error.__cause__)
    """


class BufferFull(ClientError):
    """buffer.memory is exhausted; `send` waits for free space, `send_nowait` does not.

    try:
        producer.send_nowait("topic", b"value")
    except BufferFull:
        await producer.flush()
    """

    is_retriable = True

    def __init__(self, text: str, bytes_needed: int = 0) -> None:
        super().__init__(text)
        self.bytes_needed = bytes_needed


class RecordTooLargeToSend(ClientError):
    """The record alone is larger than max.request.size or buffer.memory.

    try:
        await producer.send("topic", b"v" * 2_000_000)
    except RecordTooLargeToSend as error:
        print(error)
    """


class BrokerError(ClientError):
    """The broker returned an error code.

    try:
        await producer.send("topic", b"value")
    except BrokerError as error:
        print(error.code is ErrorCode.NOT_ENOUGH_REPLICAS, error.code.name)
    """

    #: The error codes for which a subclass is raised.
    CODES: ClassVar[tuple[ErrorCode, ...]] = ()

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.is_retriable = code in RETRIABLE


class TopicMissing(BrokerError):
    """The topic or partition does not exist.

    try:
        await admin.delete_topics(["nowhere"])
    except TopicMissing as error:
        print(error)
    """

    CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class InvalidTopic(BrokerError):
    """The topic name is not valid.

    try:
        await producer.send("no/topic", b"value")
    except InvalidTopic as error:
        print(error)
    """

    CODES = (ErrorCode.INVALID_TOPIC_EXCEPTION,)


class NotAuthorized(BrokerError):
    """The client is not authorized for the operation.

    try:
        await producer.send("topic", b"value")
    except NotAuthorized as error:
        print(error.code.name)
    """

    CODES = (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


class RecordTooLarge(BrokerError):
    """The broker rejects records of that size (max.message.bytes).

    try:
        await producer.send("topic", b"value")
    except RecordTooLarge as error:
        print(error)
    """

    CODES = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class RecordRejected(BrokerError):
    """The broker rejected this record: it has no key in a compacted topic, or its timestamp is
    outside of message.timestamp.before.max.ms and message.timestamp.after.max.ms.

    try:
        await producer.send("topic", b"value")
    except RecordRejected as error:
        print(error)
    """

    CODES = (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


class BatchRejected(BrokerError):
    """The broker rejected the batch of this record because of other records in it. This record was
    not appended either; it can be sent again.

    try:
        await producer.send("topic", b"value")
    except BatchRejected:
        await producer.send("topic", b"value")
    """


class OffsetOutOfRange(BrokerError):
    """The log does not contain the offset, and auto.offset.reset is none.

    try:
        await consumer.poll(timeout_ms=0)
    except OffsetOutOfRange:
        consumer.seek_to_beginning()
    """

    CODES = (ErrorCode.OFFSET_OUT_OF_RANGE,)


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas requires.

    try:
        await producer.send("topic", b"value")
    except NotEnoughReplicas as error:
        print("retry later:", error)
    """

    CODES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class ProducerFenced(BrokerError):
    """A newer producer uses the same transactional id; this one must be closed.

    try:
        async with transactional.transaction():
            await transactional.send("topic", b"value")
    except ProducerFenced:
        raise SystemExit(1) from None
    """

    CODES = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TransactionAborted(BrokerError):
    """The transaction cannot be committed: abort it and begin a new one.

    try:
        await producer.send("topic", b"value")
    except TransactionAborted as error:
        print(error)
    """

    CODES = (ErrorCode.TRANSACTION_ABORTABLE,)


class RebalanceInProgress(BrokerError):
    """The group is rebalancing; retry later.

    try:
        await consumer.commit()
    except RebalanceInProgress as error:
        print("retry later:", error)
    """

    CODES = (ErrorCode.REBALANCE_IN_PROGRESS,)


class CommitFailed(BrokerError):
    """The consumer is no longer a member of the group: others own its partitions now.

    try:
        await consumer.commit()
    except CommitFailed as error:
        print("rebalanced before the commit:", error)
    """

    CODES = (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    )


class FencedInstance(BrokerError):
    """Another consumer uses the same group.instance.id.

    try:
        await consumer.poll(timeout_ms=0)
    except FencedInstance as error:
        print(error)
    """

    CODES = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


class TopicExists(BrokerError):
    """A topic with that name already exists.

    try:
        await admin.create_topics([NewTopic("topic")])
    except TopicExists as error:
        print(error)
    """

    CODES = (ErrorCode.TOPIC_ALREADY_EXISTS,)


class SettingRejected(BrokerError):
    """The cluster rejected the name or the value of a setting.

    try:
        await admin.alter_configs({topic_resource("topic"): [ConfigChange("wrong", "1")]})
    except SettingRejected as error:
        print(error)
    """

    CODES = (ErrorCode.INVALID_CONFIG,)


class GroupMissing(BrokerError):
    """The group does not exist.

    try:
        await admin.delete_groups(["unknown"])
    except GroupMissing as error:
        print(error)
    """

    CODES = (ErrorCode.GROUP_ID_NOT_FOUND,)


class GroupNotEmpty(BrokerError):
    """The group has members; stop them first.

    try:
        await admin.delete_groups(["billing"])
    except GroupNotEmpty as error:
        print(error)
    """

    CODES = (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


class SomeFailed(ClientError):
    """An operation on several items succeeded for some of them and failed for others.

    try:
        await admin.delete_topics(["topic", "nowhere"])
    except SomeFailed as error:
        print(error.done, error.failed)
    """

    def __init__(self, done: Mapping[Any, Any], failed: Mapping[Any, ClientError]) -> None:
        first, count = next(iter(failed.values())), len(failed)
        super().__init__(f"{count} of {count + len(done)} failed; {first}")
        #: The results of the items that succeeded.
        self.done = done
        #: The errors of the items that failed.
        self.failed = failed


#: Transient errors: elections, loading, overload, stale metadata.
RETRIABLE: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)
#: Errors that mean that the client's metadata is stale.
STALE_METADATA: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
#: Messages for codes whose names do not explain them, used if the broker returned none.
_MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic with this id",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist, or has another type"
    " (`lograft groups list` shows the types)",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group subscribes to the topic: stop its members"
    " first",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no coordinator is available now",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.UNKNOWN_MEMBER_ID: "the consumer is not a member of the group",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not contain this offset",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support this request: it may run an older"
    " release",
}
_CLASSES: Final[dict[ErrorCode, type[BrokerError]]] = {
    code: kind for kind in BrokerError.__subclasses__() for code in kind.CODES
}


def broker_error(code: int, what: str, message: str | None = None) -> BrokerError:
    """Returns the exception for an error code. `what` names the item or the operation, `message` is
    the broker's error message if it returned one."""
    try:
        known = ErrorCode(code)
        name = known.name
    except ValueError:
        known, name = ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}"
    message = message or _MESSAGES.get(known)
    text = f"{what}: {message} ({name})" if message else f"{what}: {name}"
    return _CLASSES.get(known, BrokerError)(known, text)


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raises the exception for the code, unless it is NONE."""
    if code:
        raise broker_error(code, what, message)
