"""What a client raises. Every text says what happened where, and what can be done about it.

ClientError
├─ ConnectionFailed      never sent: nobody there, no handshake, wrong password (stage says which)
├─ BrokerMissing         never sent: the cluster has no broker of that id now
├─ OutcomeUnknown        sent, and no answer came: it may have happened or not
├─ BrokerError           the broker answered with one of Kafka's error codes
│  └─ …                  a class for each code that programs tell apart
├─ SomeFailed            of several things asked for together, some were not done
├─ TimedOut              a budget of the caller's (max.block.ms, delivery.timeout.ms …) is used up
├─ TransactionFailed     abort the transaction and begin again
├─ BufferFull            no room for one more record now
├─ RecordTooLargeToSend  no broker was asked: the settings say no
├─ SerializationFailed   a serializer or deserializer raised
├─ UnsupportedByBroker   the broker is too old for what is asked
└─ WrongUse              a call that makes no sense now; a bug in the program
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from lograft.model.errors import ErrorCode, LograftError
from lograft.model.seams import Address


class ClientError(LograftError):
    """What every client raises.

    try:
        await producer.send("topic", b"value")
    except ClientError as error:
        print("again later" if error.is_retriable else error)
    """

    #: Whether the same call may succeed later without anybody changing anything.
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
    """The broker does not accept who we say we are; trying again will not help.

    try:
        await producer.send("topic", b"value")
    except AuthenticationFailed as error:
        print("wrong password?", error)
    """

    is_retriable = False


class BrokerMissing(ClientError):
    """The cluster has no broker of that id, or it is down.

    try:
        await admin.describe_log_dirs([77])
    except BrokerMissing as error:
        print(error.broker, error)
    """

    is_retriable = True

    def __init__(self, broker: int, there: Iterable[int], role: str = "broker") -> None:
        """`role`: "controller" if controllers were looked for."""
        listed = ", ".join(map(str, sorted(there))) or "none known"
        super().__init__(f"there is no {role} {broker} in the cluster now; there are: {listed}")
        self.broker = broker


class OutcomeUnknown(ClientError):
    """The request was sent, but no answer came: what it asks for may have happened or not.

    try:
        await admin.delete_topics(["old"])
    except OutcomeUnknown as error:
        print("perhaps deleted:", error)
    """

    is_retriable = True


class UnsupportedByBroker(ClientError):
    """The broker does not know this API, or no version of it that can say what is asked for.

    try:
        await admin.describe_cluster()
    except UnsupportedByBroker as error:
        print("an older release:", error)
    """


class TimedOut(ClientError):
    """A budget of the caller's is used up; the text names the setting.

    try:
        await producer.send("topic", b"value")
    except TimedOut as error:
        print("raise max.block.ms?", error)
    """

    is_retriable = True


class WrongUse(ClientError):
    """The program calls what cannot be called now.

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
    """What was read is not in the log of the new leader, and auto.offset.reset is none.

    try:
        await consumer.poll(timeout_ms=0)
    except LogTruncated as error:
        print("read again:", error)
    """


class SerializationFailed(ClientError):
    """A serializer or deserializer raised; its error is the cause.

    try:
        await producer.send("topic", object())
    except SerializationFailed as error:
        print(error.__cause__)
    """


class TransactionFailed(ClientError):
    """The transaction cannot be committed, or was aborted with these records in it: abort it and
    begin again. The cause says why.

        try:
            async with transactional.transaction():
                await transactional.send("topic", b"value")
        except TransactionFailed as error:
            print("nothing of it counts:", error.__cause__)
    """


class BufferFull(ClientError):
    """buffer.memory is used up; `send` waits for room, `send_nowait` does not.

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
    """The broker's answer carries an error code.

    try:
        await producer.send("topic", b"value")
    except BrokerError as error:
        print(error.code is ErrorCode.NOT_ENOUGH_REPLICAS, error.code.name)
    """

    #: Filled by subclasses that stand for codes.
    CODES: ClassVar[tuple[ErrorCode, ...]] = ()

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.is_retriable = code in RETRIABLE


class TopicMissing(BrokerError):
    """There is no such topic or partition.

    try:
        await admin.delete_topics(["nowhere"])
    except TopicMissing as error:
        print(error)
    """

    CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class InvalidTopic(BrokerError):
    """No topic can have that name.

    try:
        await producer.send("no/topic", b"value")
    except InvalidTopic as error:
        print(error)
    """

    CODES = (ErrorCode.INVALID_TOPIC_EXCEPTION,)


class NotAuthorized(BrokerError):
    """The cluster's rules forbid it to this client.

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
    """The broker does not take records of that size (max.message.bytes).

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
    not appended either; it may be sent again.

    try:
        await producer.send("topic", b"value")
    except BatchRejected:
        await producer.send("topic", b"value")
    """


class OffsetOutOfRange(BrokerError):
    """The log does not reach there, and auto.offset.reset is none.

    try:
        await consumer.poll(timeout_ms=0)
    except OffsetOutOfRange:
        consumer.seek_to_beginning()
    """

    CODES = (ErrorCode.OFFSET_OUT_OF_RANGE,)


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than min.insync.replicas asks for.

    try:
        await producer.send("topic", b"value")
    except NotEnoughReplicas as error:
        print("not safe now:", error)
    """

    CODES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class ProducerFenced(BrokerError):
    """A newer producer has the same transactional id; this one is done.

    try:
        async with transactional.transaction():
            await transactional.send("topic", b"value")
    except ProducerFenced:
        raise SystemExit(1) from None
    """

    CODES = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TransactionAborted(BrokerError):
    """The transaction cannot be committed: abort it and begin again.

    try:
        await producer.send("topic", b"value")
    except TransactionAborted as error:
        print(error)
    """

    CODES = (ErrorCode.TRANSACTION_ABORTABLE,)


class RebalanceInProgress(BrokerError):
    """The group gives its partitions out anew; ask again.

    try:
        await consumer.commit()
    except RebalanceInProgress as error:
        print("again", error)
    """

    CODES = (ErrorCode.REBALANCE_IN_PROGRESS,)


class CommitFailed(BrokerError):
    """The group has gone on without this member: its partitions have new owners.

    try:
        await consumer.commit()
    except CommitFailed as error:
        print("others read these now:", error)
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
    """A topic of that name is there already.

    try:
        await admin.create_topics([NewTopic("topic")])
    except TopicExists as error:
        print(error)
    """

    CODES = (ErrorCode.TOPIC_ALREADY_EXISTS,)


class SettingRejected(BrokerError):
    """A setting has a name or a value that the cluster does not take.

    try:
        await admin.alter_configs({topic_resource("topic"): [ConfigChange("wrong", "1")]})
    except SettingRejected as error:
        print(error)
    """

    CODES = (ErrorCode.INVALID_CONFIG,)


class GroupMissing(BrokerError):
    """There is no such group.

    try:
        await admin.delete_groups(["nobody"])
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
    """Of several things that were asked for together, some were done and others not.

    try:
        await admin.delete_topics(["topic", "nowhere"])
    except SomeFailed as error:
        print(error.done, error.failed)
    """

    def __init__(self, done: Mapping[Any, Any], failed: Mapping[Any, ClientError]) -> None:
        first, count = next(iter(failed.values())), len(failed)
        super().__init__(f"{count} of {count + len(done)} failed; {first}")
        #: By what was asked for: what came of it, and why nothing did.
        self.done = done
        self.failed = failed


#: Errors that pass by themselves: elections, loading, overload, old metadata.
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
#: Errors that say that our metadata is old.
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
#: In words, where the broker gave none and the name of the code does not say it.
_MEANINGS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic of this id",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group, or it is of another type"
    " (`lograft groups list` shows the types)",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads the topic: stop its members first",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker can coordinate it now",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member (any more)",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not reach to this offset",
    ErrorCode.UNSUPPORTED_VERSION: "this server cannot do that: it may be an older release",
}
_CLASSES: Final[dict[ErrorCode, type[BrokerError]]] = {
    code: kind for kind in BrokerError.__subclasses__() for code in kind.CODES
}


def broker_error(code: int, what: str, message: str | None = None) -> BrokerError:
    """The error for a code in an answer; `what` names the thing and the act, `message` is the
    broker's own sentence where it gave one."""
    try:
        known = ErrorCode(code)
        name = known.name
    except ValueError:
        known, name = ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}"
    message = message or _MEANINGS.get(known)
    text = f"{what}: {message} ({name})" if message else f"{what}: {name}"
    return _CLASSES.get(known, BrokerError)(known, text)


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raises the error of the code, if it is one."""
    if code:
        raise broker_error(code, what, message)
