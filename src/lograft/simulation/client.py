"""A small Kafka client over the simulated network: one connection, many requests in flight.

It never retries: how to handle an unknown outcome is the workload's decision and must be recorded
in the history."""

from typing import Final, TypeVar

from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.peers import Lane
from lograft.model.errors import ErrorCode
from lograft.model.seams import Address, Transport
from lograft.wire.message import Message

R = TypeVar("R", bound=Message)


class NotSent(Exception):
    """The request was not sent, so it certainly had no effect."""


class OutcomeUnknown(Exception):
    """The request was sent, but no response arrived."""


class ErrorResponse(Exception):
    """The response contains an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE


#: Error codes after which Kafka's clients refresh their metadata and retry.
RETRIABLE: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
    # Occurs while too many brokers are fenced.
    ErrorCode.INVALID_REPLICATION_FACTOR,
})  # fmt: skip


class SimulatedClient:
    leader_epoch: Final = -1

    def __init__(self, transport: Transport, address: Address, *, client_id: str) -> None:
        self._lane = Lane(transport, address, client_id=client_id)

    async def request(
        self, message: Message, version: int, response_type: type[R], *, timeout_ms: int
    ) -> R:
        try:
            return await self._lane.request_in(
                message, version, response_type, timeout_ms=timeout_ms
            )
        except PeerUnreachable as error:
            raise NotSent(str(error)) from None
        except PeerLost as error:
            raise OutcomeUnknown(str(error)) from None

    def mark_stale(self) -> None:
        """Does nothing: this client knows only one node."""

    def disconnect(self) -> None:
        self._lane.disconnect()
