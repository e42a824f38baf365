"""What a transactional producer may do when, as a table."""

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
    """The values say what a program hears when it asks for something that cannot be now."""

    NEW = "no transaction has been begun"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "the transaction is being committed: call commit_transaction again"
    ABORTING = "the transaction is being aborted: call abort_transaction again"
    PREPARED = "the transaction has been prepared: somebody else ends it"
    BROKEN = "the transaction cannot be committed: abort it"
    FENCED = "the producer cannot go on"


class Event(Enum):
    IDENTIFIED = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    PREPARED = auto()
    ENDED = auto()
    #: The transaction cannot be committed any more.
    BROKE = auto()
    #: Nothing is possible any more.
    DIED = auto()


NEXT: Final = {
    (State.NEW, Event.IDENTIFIED): State.READY,
    (State.READY, Event.BEGIN): State.OPEN,
    (State.OPEN, Event.COMMIT): State.COMMITTING,
    (State.OPEN, Event.ABORT): State.ABORTING,
    (State.OPEN, Event.PREPARED): State.PREPARED,
    (State.OPEN, Event.BROKE): State.BROKEN,
    (State.BROKEN, Event.BROKE): State.BROKEN,
    (State.BROKEN, Event.ABORT): State.ABORTING,
    # Asked again after a failure: the end was decided, and is not known yet.
    (State.COMMITTING, Event.COMMIT): State.COMMITTING,
    (State.COMMITTING, Event.BROKE): State.BROKEN,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.BROKE): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    **{(state, Event.DIED): State.FENCED for state in State},
}


def after(state: State, event: Event) -> State:
    """Raises WrongUse for what a program may not ask for now."""
    try:
        return NEXT[state, event]
    except KeyError:
        raise WrongUse(f"{event.name.lower()}: {state.value}") from None


#: Answers of coordinators after which the transaction can only be aborted. Those that pass are
#: tried again, and after all others nothing can be done.
_BREAKS: Final = frozenset(
    (
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)
#: Answers of partitions after which nothing can be done. An epoch that is too old is none of them:
#: its coordinator may have aborted the transaction for its age.
_KILLS: Final = frozenset(
    (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)


def of_coordinator(error: ClientError) -> Event:
    """What an error of a coordinator that will not pass means for the transaction."""
    if error.is_retriable or (isinstance(error, BrokerError) and error.code in _BREAKS):
        return Event.BROKE
    return Event.DIED


def of_partition(error: Exception) -> Event:
    """What records that were not written mean for the transaction."""
    kills = isinstance(error, UnsupportedByBroker) or (
        isinstance(error, BrokerError) and error.code in _KILLS
    )
    return Event.DIED if kills else Event.BROKE
