"""What a coordinator's core and the runtime that drives it tell each other."""

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
    #: None: the key is deleted.
    value: Message | None
    value_version: int = 0


class Ticket:
    """Names one request that waits for its reply. A core keeps it and gives it back with the
    reply, nothing else; the runtime knows whose it is."""

    __slots__ = ()


Reply: TypeAlias = tuple[Ticket, Message]


class TakesLong(Exception):
    """Raised by a decision, before it has changed anything, that rests on work which would keep
    everybody waiting. Once that is done the same decision is asked for again."""

    def __init__(self, pieces: Iterator[None], result: object) -> None:
        """`pieces` does some of the work each time it is asked for the next. `result` is to be held
        until the decision is made: it finds there what was done."""
        super().__init__()
        self.pieces = pieces
        self.result = result


class Effect:
    """Something to be done in the world once it is committed that it shall be done."""

    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class CoordinatorResult:
    """What a command wants. Several tickets may be answered at once, or none: then the core keeps
    the ticket and answers it with a later outcome."""

    #: Appended in one batch (all or none), then replayed into the core before anything else runs.
    records: Sequence[Record] = ()
    #: Given once everything appended so far, these records included, is committed in the epoch
    #: that wrote it.
    replies: Sequence[Reply] = ()
    #: (producer id, producer epoch): the records are a batch of that producer's transaction.
    producer: tuple[int, int] | None = None
    #: Begun, in order, once the records are committed.
    effects: Sequence[Effect] = ()
    #: The records could not be appended: takes soft state back and says what the waiting are told.
    #: Without it they get the error itself.
    failed: Callable[[ErrorCode], Sequence[Reply]] | None = None
    #: Called once the records are replayed; what it wants follows at once, before anything else.
    #: For soft state of things that the records make.
    then: "Callable[[], CoordinatorResult] | None" = None
    #: False: the replies rest on nothing that could be lost (errors, soft state) and leave at once.
    waits: bool = True
    #: Each record stands alone, with the effect at its place if there are any: several batches take
    #: what is too much for one.
    separable: bool = False


#: After a failed append what was due is tried again.
RETRY_MS: Final = 500
#: To be shared: outcomes are not changed.
NOTHING: Final = CoordinatorResult()


class CoordinatorContext(NamedTuple):
    """What a core may ask of the world around it."""

    #: With the dynamic settings of this moment.
    config: Callable[[], BrokerConfig]
    image: Callable[[], MetadataImage]
    #: Only for timestamps in records and for what compares itself with them.
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
        """The record is in the log. With a producer id: it counts once that one's transaction is
        committed (`replay_marker`)."""

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """The transaction of this producer in this partition has ended."""

    def on_loaded(self, now_ms: int) -> CoordinatorResult:
        """All of the log is replayed: arm timers, clean up."""

    def load_notes(self) -> Sequence[str]:
        """What an operator should know about the log that was loaded, one sentence each."""

    def on_unloaded(self) -> Sequence[Reply]:
        """Leadership is lost: what parked requests are told. Those that are not named get
        NotCoordinator."""

    def next_deadline_ms(self) -> int | None:
        """When `on_time` should be called; it may be too early, never too late."""

    def on_time(self, now_ms: int) -> CoordinatorResult:
        """Does the first thing that is due. Called again while `next_deadline_ms` is not later
        than now, so a core cuts long work into pieces by setting a deadline of now."""

    def on_image(self, delta: MetadataDelta) -> CoordinatorResult:
        """Topics came, went or grew, settings changed; the image has it already."""

    def collect_samples(self) -> Iterator[Sample]: ...
