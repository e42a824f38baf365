"""Fetch sessions (KIP-227): a broker remembers which partitions a client fetches, so that a request
contains only what has changed since the last one. There is one session for each broker. Values
only.

A consumer that fetches a single partition of a broker has no session there: a session would not
make its requests smaller, and brokers serve sessionless requests at the lowest cost.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lograft.client.types import TopicPartition
from lograft.model.errors import ErrorCode
from lograft.model.types import ZERO_UUID

NO_SESSION: Final = 0
#: A full fetch request that creates a new session.
FIRST_EPOCH: Final = 0
#: Closes the session, or sends a full request without one.
LAST_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF


class PartitionFetch(NamedTuple):
    """What to fetch from one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    bytes_max: int


class FetchPlan(NamedTuple):
    """The content of one Fetch request."""

    session_id: int
    epoch: int
    #: Topic ids instead of names.
    uses_ids: bool
    send: dict[TopicPartition, PartitionFetch]
    forget: dict[TopicPartition, UUID]

    @property
    def is_sessionless(self) -> bool:
        """One partition, without a session to create or to close."""
        return self.epoch == LAST_EPOCH and self.session_id == NO_SESSION


class FetchSession:
    def __init__(self) -> None:
        self.id = NO_SESSION
        #: Epoch of the next request.
        self.epoch = FIRST_EPOCH
        #: The partitions of the session on the broker.
        self._session_partitions: dict[TopicPartition, PartitionFetch] = {}
        self._used_ids = True

    def plan(self, partitions: Mapping[TopicPartition, PartitionFetch]) -> FetchPlan:
        """Returns the next request that fetches these partitions."""
        uses_ids = all(entry.topic_id != ZERO_UUID for entry in partitions.values())
        if partitions and uses_ids != self._used_ids:
            # A session identifies topics by names or by ids, not both.
            self.epoch = FIRST_EPOCH
        self._used_ids = uses_ids
        if len(partitions) == 1:
            self._session_partitions = {}
            return FetchPlan(self.id, LAST_EPOCH, uses_ids, dict(partitions), {})
        before = {} if self.epoch == FIRST_EPOCH else self._session_partitions
        self._session_partitions = dict(partitions)
        send = {
            partition: entry
            for partition, entry in partitions.items()
            if before.get(partition) != entry
        }
        forget = {
            partition: entry.topic_id
            for partition, entry in before.items()
            if partition not in partitions or partitions[partition].topic_id != entry.topic_id
        }
        return FetchPlan(self.id, self.epoch, uses_ids, send, forget)

    def handle_response(self, session_id: int) -> None:
        if session_id == NO_SESSION:
            # The request was sessionless, or the broker's session cache is full.
            self.id, self.epoch = NO_SESSION, FIRST_EPOCH
            return
        self.id = session_id
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1

    def handle_error(self, code: int) -> None:
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.id = NO_SESSION
        self.epoch = FIRST_EPOCH

    def handle_lost_response(self) -> None:
        """Replaces the session, because the broker may or may not have got the request."""
        self.epoch = FIRST_EPOCH
