"""The states of a transactional producer, and the transitions between them as a table."""

from enum import Enum, auto
from typing import Final

from lograft.client.errors import (
    BrokerError,
    ClientError,
    UnsupportedByBroker,
    WrongUse,
)
from lograft.model.errors import ErrorCode


class State(Enum):
    """Named after the states of Kafka's TransactionManager. The values are the error messages for
    calls that the state does not allow."""

    UNINITIALIZED = "no transaction has been started"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "the transaction is being committed: call commit_transaction again"
    ABORTING = "the transaction is being aborted: call abort_transaction again"
    PREPARED = "the transaction is prepared: complete it with complete_transactions"
    ABORTABLE_ERROR = "the transaction cannot be committed: call abort_transaction"
    FATAL_ERROR = "the producer has failed: close it"


class Event(Enum):
    INITIALIZED = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    PREPARE = auto()
    ENDED = auto()
    #: The transaction must be aborted.
    ABORTABLE_ERROR = auto()
    #: The producer cannot be used any longer.
    FATAL_ERROR = auto()


NEXT: Final = {
    (State.UNINITIALIZED, Event.INITIALIZED): State.READY,
    (State.READY, Event.BEGIN): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Event.COMMIT): State.COMMITTING,
    (State.IN_TRANSACTION, Event.ABORT): State.ABORTING,
    (State.IN_TRANSACTION, Event.PREPARE): State.PREPARED,
    (State.IN_TRANSACTION, Event.ABORTABLE_ERROR): State.ABORTABLE_ERROR,
    (State.ABORTABLE_ERROR, Event.ABORTABLE_ERROR): State.ABORTABLE_ERROR,
    (State.ABORTABLE_ERROR, Event.ABORT): State.ABORTING,
    # Retried after a failure: the end has been requested, but its outcome is unknown.
    (State.COMMITTING, Event.COMMIT): State.COMMITTING,
    (State.COMMITTING, Event.ABORTABLE_ERROR): State.ABORTABLE_ERROR,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.ABORTABLE_ERROR): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    **{(state, Event.FATAL_ERROR): State.FATAL_ERROR for state in State},
}


def next_state(state: State, event: Event) -> State:
    """Returns the state after an event. Raises WrongUse if the state does not allow it."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise WrongUse(f"cannot {event.name.lower()}: {state.value}") from None


#: Errors of coordinators after which the transaction must be aborted. Retriable errors are retried,
#: and all others are fatal.
_ABORTABLE: Final = frozenset(
    (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)
#: Fatal errors of partitions. INVALID_PRODUCER_EPOCH is not one of them: the coordinator may have
#: aborted the transaction because it timed out.
_FATAL: Final = frozenset(
    (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)


def event_of_coordinator_error(error: ClientError) -> Event:
    """Returns what an error of a coordinator means for the transaction."""
    if error.is_retriable or (isinstance(error, BrokerError) and error.code in _ABORTABLE):
        return Event.ABORTABLE_ERROR
    return Event.FATAL_ERROR


def event_of_partition_error(error: Exception) -> Event:
    """Returns what the failure of records means for the transaction."""
    is_fatal = isinstance(error, UnsupportedByBroker) or (
        isinstance(error, BrokerError) and error.code in _FATAL
    )
    return Event.FATAL_ERROR if is_fatal else Event.ABORTABLE_ERROR
