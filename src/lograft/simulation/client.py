"""A small Kafka client over the simulated network: one connection, many requests in flight.

It never retries: what to do about an unknown outcome is the workload's decision, and the history
has to know of it.
"""

from typing import Final, TypeVar

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.peers import Lane
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Transport
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)


class NotSent(Exception):
    """The request never left: it certainly did not happen."""


class OutcomeUnknown(Exception):
    """The request left, and no answer came."""


class Refused(Exception):
    """The answer is an error."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


#: Answers after which Kafka's clients look for the right node and try again.
RETRIABLE: Final = frozenset({
    ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available,
    ErrorCode.not_leader_or_follower, ErrorCode.request_timed_out,
    ErrorCode.broker_not_available, ErrorCode.replica_not_available,
    ErrorCode.network_exception, ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available, ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_controller, ErrorCode.kafka_storage_error,
    ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available, ErrorCode.eligible_leaders_not_available,
    ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id,
    # While brokers are fenced there are too few for the replicas.
    ErrorCode.invalid_replication_factor,
})  # fmt: skip


class SimulatedClient:
    leader_epoch: Final = -1

    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._lane = Lane(transport, address, client_id=client_id)

    async def request(
        self, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        try:
            return await self._lane.request_in(message, version, answer, timeout_ms=timeout_ms)
        except PeerUnreachable as error:
            raise NotSent(str(error)) from None
        except PeerLost as error:
            raise OutcomeUnknown(str(error)) from None

    def look_again(self) -> None:
        """There is nobody else to ask."""

    def disconnect(self) -> None:
        self._lane.disconnect()
