"""Fetch sessions (KIP-227): a broker remembers which partitions a client reads, so that a request
names only what has changed since the last one. One for each broker; values only.

Who reads a single partition has no session: there is nothing to leave out, and brokers answer such
a request with the least work.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID

NO_SESSION: Final = 0
#: Asks for a new session with everything in it.
FIRST_EPOCH: Final = 0
#: Ends a session, or does without one.
LAST_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF


class Wanted(NamedTuple):
    """Of one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    bytes_max: int


class Plan(NamedTuple):
    """What one request says."""

    session_id: int
    epoch: int
    #: With topic ids instead of names.
    uses_ids: bool
    send: dict[TopicPartition, Wanted]
    forget: dict[TopicPartition, UUID]

    @property
    def is_lone(self) -> bool:
        """One partition, and the broker has nothing to remember or to forget."""
        return self.epoch == LAST_EPOCH and self.session_id == NO_SESSION


class FetchSession:
    def __init__(self) -> None:
        self.id = NO_SESSION
        #: Of the next request.
        self.epoch = FIRST_EPOCH
        #: What the broker remembers.
        self._known: dict[TopicPartition, Wanted] = {}
        self._used_ids = True

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> Plan:
        uses_ids = all(one.topic_id != ZERO_UUID for one in wanted.values())
        if wanted and uses_ids != self._used_ids:
            # A session speaks of names or of ids, not of both.
            self.epoch = FIRST_EPOCH
        self._used_ids = uses_ids
        if len(wanted) == 1:
            self._known = {}
            return Plan(self.id, LAST_EPOCH, uses_ids, dict(wanted), {})
        before = {} if self.epoch == FIRST_EPOCH else self._known
        self._known = dict(wanted)
        send = {one: it for one, it in wanted.items() if before.get(one) != it}
        forget = {
            one: it.topic_id
            for one, it in before.items()
            if one not in wanted or wanted[one].topic_id != it.topic_id
        }
        return Plan(self.id, self.epoch, uses_ids, send, forget)

    def answered(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            # The broker has no room for one: it asks for everything every time.
            self.id, self.epoch = NO_SESSION, FIRST_EPOCH
            return
        self.id = session_id
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1

    def refused(self, code: int) -> None:
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = FIRST_EPOCH

    def lost(self) -> None:
        """The broker may have got the request or not: the session is replaced by a new one."""
        self.epoch = FIRST_EPOCH
