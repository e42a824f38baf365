"""The interface between a coordinator's core and the runtime that drives it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from lograft.metadata.delta import MetadataDelta
from lograft.metadata.image import MetadataImage
from lograft.model.errors import ErrorCode
from lograft.model.metrics import Sample
from lograft.model.settings.broker import BrokerConfig
from lograft.model.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset
from lograft.wire.message import Message


class Record(NamedTuple):
    """A record of an internal topic (`wire/records/*_key.py`, `*_value.py`)."""

    key: Message
    #: None is a tombstone.
    value: Message | None
    value_version: int = 0


class Ticket:
    """Identifies one request that waits for its reply. A core only stores it and returns it with
    the reply; the runtime knows which request it belongs to."""

    __slots__ = ()


Reply: TypeAlias = tuple[Ticket, Message]


class NeedsLongWork(Exception):
    """Raised by a decision that needs work which would delay all other requests, before the
    decision has changed anything. The runtime does that work and repeats the command."""

    def __init__(self, pieces: Iterator[None], result: object) -> None:
        """Each step of `pieces` does a part of the work. `result` is kept alive until the command
        is repeated, which finds the outcome of the work there."""
        super().__init__()
        self.pieces = pieces
        self.result = result


class Effect:
    """An action outside the core, to be started once the records that request it are committed."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class CoordinatorResult:
    """The result of a command. It may reply to several tickets or to none; in that case the core
    keeps the ticket and replies with a later result."""

    #: Appended atomically in one batch, then replayed into the core before the next command.
    records: Sequence[Record] = ()
    #: Sent once everything appended so far, including these records, is committed in the epoch
    #: that wrote it.
    replies: Sequence[Reply] = ()
    #: (producer id, producer epoch): the records are a batch of that producer's transaction.
    producer: tuple[int, int] | None = None
    #: Started, in order, once the records are committed.
    effects: Sequence[Effect] = ()
    #: Called if the records could not be appended: reverts soft state and returns the replies.
    #: Without it, the tickets receive the error itself.
    on_failure: Callable[[ErrorCode], Sequence[Reply]] | None = None
    #: Called once the records are replayed; its result is processed before the next command. For
    #: soft state of objects that the records create.
    then: "Callable[[], CoordinatorResult] | None" = None
    #: False: the replies do not depend on records (errors, soft state) and are sent immediately.
    waits: bool = True
    #: Each record is independent (with the effect at its index, if there are any), so that they
    #: may be written in several batches.
    separable: bool = False


#: After this time, work that was due when an append failed is tried again.
RETRY_MS: Final = 500
#: Shared, since results are never modified.
NOTHING: Final = CoordinatorResult()


class CoordinatorContext(NamedTuple):
    """The environment of a core."""

    #: With the current dynamic configs.
    config: Callable[[], BrokerConfig]
    image: Callable[[], MetadataImage]
    #: Only for timestamps in records and for comparisons with them.
    wall_ms: Callable[[], int]
    new_uuid: Callable[[], UUID]


class Core(Protocol):
    """One partition of an internal topic in one leader epoch. Pure. `now_ms` is monotonic time."""

    def replay(
        self,
        record: Record,
        *,
        offset: Offset,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> None:
        """Applies a record of the log. With a producer id, the record takes effect when the
        transaction of that producer is committed (`replay_marker`)."""

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """The transaction of this producer on this partition has ended."""

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        """The whole log is replayed: start timers and clean up."""

    def load_notes(self) -> Sequence[str]:
        """Notes for the operator about the log that was loaded, one sentence each."""

    def on_unloaded(self) -> Sequence[Reply]:
        """Leadership is lost: the replies to parked requests. Requests without a reply here
        receive NotCoordinator."""

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time` next; may be too early, never too late."""

    def on_time(self, now_ms: int) -> CoordinatorResult:
        """Does the first work that is due. It is called again while `next_deadline_ms` is not
        after now, so a core splits long work into pieces by setting a deadline of now."""

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        """Topics were created, deleted or extended, or configs changed; the image includes it."""

    def collect_samples(self) -> Iterator[Sample]: ...
