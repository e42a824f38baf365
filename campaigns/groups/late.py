"""Fault 5: requests that are delivered late or twice, on another connection.

A delayed request arrives after its sender has timed out, retried elsewhere, or died. A duplicated
request arrives, is answered, and arrives again. Both are sent from a separate machine, and so
survive their senders. Their effects are recorded in the history where checkers need them.

Some requests are restricted: heartbeats of the consumer protocol contain no identity except the
member's, so a late one would act for a live member; these are delivered only after its death.
Requests of transaction protocol 1 contain no identity except the producer epoch; these are
delivered only after the epoch has ended (KIP-890 introduced protocol 2 for this reason)."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from campaigns.groups.coordinators import GROUP, TRANSACTION, CoordinatorRoute
from lograft.model.seams import Address, Transport
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.history import History
from lograft.simulation.machine import Machine
from lograft.simulation.routing import ClusterClient, Requests
from lograft.wire.message import Message
from lograft.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from lograft.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from lograft.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from lograft.wire.messages.end_txn import EndTxnRequest
from lograft.wire.messages.heartbeat import HeartbeatRequest
from lograft.wire.messages.init_producer_id import InitProducerIdRequest
from lograft.wire.messages.join_group import JoinGroupRequest
from lograft.wire.messages.leave_group import LeaveGroupRequest
from lograft.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from lograft.wire.messages.produce import ProduceRequest
from lograft.wire.messages.sync_group import SyncGroupRequest
from lograft.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

R = TypeVar("R", bound=Message)

DELAYS: Final = (0.02, 0.1, 0.5, 1.5, 4.0)
TIMEOUT_MS: Final = 3_000
#: How long a sender waits for the response to a delayed request.
WAIT_SECONDS: Final = 1.0
GROUP_REQUESTS: Final = (
    OffsetCommitRequest, TxnOffsetCommitRequest, JoinGroupRequest, SyncGroupRequest,
    HeartbeatRequest, LeaveGroupRequest, ConsumerGroupHeartbeatRequest,
)  # fmt: skip
TRANSACTION_REQUESTS: Final = (
    InitProducerIdRequest, AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest,
)  # fmt: skip
#: First versions of transaction protocol 2; older requests have no identity.
VERSION_2: Final[dict[type[Message], int]] = {TxnOffsetCommitRequest: 5, EndTxnRequest: 5}


class LateRequests:
    def __init__(
        self, client: ClusterClient, machine: Machine, *, history: History, random: Random,
        permille: int,
    ) -> None:  # fmt: skip
        self._client = client
        self._machine = machine
        self._history = history
        self._random = random
        self.permille = permille
        self._count = 0
        #: Latest producer ID and epoch by transactional ID.
        self._producers: dict[str, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        return self._count

    def learn(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self._producers[transactional_id] = (producer_id, epoch)

    def fate_of(self, message: Message) -> str:
        """Draws whether the request is delayed (`delayed`), duplicated (`duplicated`) or neither
        (`""`)."""
        if not isinstance(message, (*GROUP_REQUESTS, *TRANSACTION_REQUESTS, ProduceRequest)):
            return ""
        if isinstance(message, OffsetCommitRequest) and message.reset_action:
            return ""  # a late one would also reset members that joined after it
        if self._random.randrange(1_000) >= self.permille:
            return ""
        return self._random.choice(("delayed", "duplicated", "duplicated"))

    def send_later(
        self,
        message: Message,
        version: int,
        response_type: type[Message],
        has_ended: Callable[[], bool],
    ) -> None:
        life = self._machine.life
        if life is not None:
            self._count += 1
            name = f"late{self._count}"
            life.run(self._deliver(name, message, version, response_type, has_ended), name=name)

    async def _deliver(
        self,
        name: str,
        message: Message,
        version: int,
        response_type: type[Message],
        has_ended: Callable[[], bool],
    ) -> None:
        await asyncio.sleep(self._random.choice(DELAYS))
        if isinstance(message, ConsumerGroupHeartbeatRequest) and not has_ended():
            return
        if not self._has_identity(message, version):
            return
        route = self._route_of(message)
        commit = _describe_commit(message) if isinstance(message, OffsetCommitRequest) else None
        if commit is not None:
            self._history.record(name, "invoke", "commit", **commit, late=True)
        try:
            response: Any = await route.request(
                message, version, response_type, timeout_ms=TIMEOUT_MS
            )
        except (NotSent, OutcomeUnknown) as error:
            if commit is not None:
                kind = "fail" if isinstance(error, NotSent) else "info"
                self._history.record(name, kind, "commit", error=str(error))  # type: ignore[arg-type]
            return
        if isinstance(response, OffsetCommitResponse):
            code = response.topics[0].partitions[0].error_code
            self._history.record(name, "info" if code else "ok", "commit", error=code)

    def _has_identity(self, message: Message, version: int) -> bool:
        if isinstance(message, AddPartitionsToTxnRequest):
            return self._is_outdated(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
            )
        if isinstance(message, AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest):
            first = VERSION_2.get(type(message))
            return (first is not None and version >= first) or self._is_outdated(
                message.transactional_id, message.producer_id, message.producer_epoch
            )
        return True

    def _is_outdated(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
        newest = self._producers.get(transactional_id)
        return newest is not None and (producer_id, epoch) != newest

    def _route_of(self, message: Message) -> Requests:
        if isinstance(message, GROUP_REQUESTS):
            return CoordinatorRoute(self._client, message.group_id, GROUP)
        if isinstance(message, ProduceRequest):
            topic = message.topic_data[0]
            return self._client.partition(topic.name, topic.partition_data[0].index)
        if isinstance(message, AddPartitionsToTxnRequest):
            key: str | None = message.v3_and_below_transactional_id
        else:
            assert isinstance(
                message, InitProducerIdRequest | AddOffsetsToTxnRequest | EndTxnRequest
            ), message
            key = message.transactional_id
        return self._client if key is None else CoordinatorRoute(self._client, key, TRANSACTION)


def _describe_commit(message: OffsetCommitRequest) -> dict[str, Any]:
    topic = message.topics[0]
    partition = topic.partitions[0]
    return {
        "group": message.group_id,
        "tp": f"{topic.name}-{partition.partition_index}",
        "offset": partition.committed_offset,
        "member": message.member_id,
        "epoch": message.generation_id_or_member_epoch,
    }


class LateClient(ClusterClient):
    """A client some of whose requests are delayed or duplicated."""

    def __init__(
        self,
        transport: Transport,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        random: Random,
        late: LateRequests,
        has_ended: Callable[[], bool],
    ) -> None:
        super().__init__(transport, bootstrap, client_id=client_id, random=random)
        self._late = late
        self._has_ended = has_ended

    async def request_to(
        self,
        address: Address,
        message: Message,
        version: int,
        response_type: type[R],
        *,
        timeout_ms: int,
    ) -> R:
        fate = self._late.fate_of(message)
        if fate:
            self._late.send_later(message, version, response_type, self._has_ended)
        if fate == "delayed":
            await asyncio.sleep(min(WAIT_SECONDS, timeout_ms / 1000))
            raise OutcomeUnknown("delayed")
        return await super().request_to(
            address, message, version, response_type, timeout_ms=timeout_ms
        )
