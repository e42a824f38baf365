"""Fault 5: whole requests that come late, or twice, on another connection, from nobody.

A request may be kept back: its sender gives up waiting, tries again elsewhere, or dies, and then it
arrives. Or it arrives, is answered, and arrives once more. Both come from a machine of their own
and so outlive their senders. Whatever they do is written down where checkers have to know.

Not all of them: heartbeats of the consumer protocol carry no identity but the member's, so one that
comes late from a member that lives would speak for it; these wait for its death. What protocol 1 of
transactions sends has no identity but the producer's epoch; it waits until that is over (KIP-890 is
why there is a protocol 2).
"""

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
#: How long a sender waits for the answer to a request that was kept back, at most.
PATIENCE_SECONDS: Final = 1.0
GROUP_REQUESTS: Final = (
    OffsetCommitRequest, TxnOffsetCommitRequest, JoinGroupRequest, SyncGroupRequest,
    HeartbeatRequest, LeaveGroupRequest, ConsumerGroupHeartbeatRequest,
)  # fmt: skip
TRANSACTION_REQUESTS: Final = (
    InitProducerIdRequest, AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest,
)  # fmt: skip
#: Protocol 2 of transactions begins with these versions; what is older has no identity.
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
        #: By transactional id: the newest producer id and epoch that anybody was given.
        self._producers: dict[str, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        return self._count

    def learn(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        self._producers[transactional_id] = (producer_id, epoch)

    def fate_of(self, message: Message) -> str:
        """`""`, `kept` or `twice`."""
        if not isinstance(message, (*GROUP_REQUESTS, *TRANSACTION_REQUESTS, ProduceRequest)):
            return ""
        if isinstance(message, OffsetCommitRequest) and message.reset_action:
            return ""  # a late one would be one more reset, of members who came after it
        if self._random.randrange(1_000) >= self.permille:
            return ""
        return self._random.choice(("kept", "twice", "twice"))

    def keep(
        self, message: Message, version: int, answer: type[Message], is_over: Callable[[], bool]
    ) -> None:
        life = self._machine.life
        if life is not None:
            self._count += 1
            name = f"late{self._count}"
            life.run(self._deliver(name, message, version, answer, is_over), name=name)

    async def _deliver(
        self,
        name: str,
        message: Message,
        version: int,
        answer: type[Message],
        is_over: Callable[[], bool],
    ) -> None:
        await asyncio.sleep(self._random.choice(DELAYS))
        if isinstance(message, ConsumerGroupHeartbeatRequest) and not is_over():
            return
        if not self._has_identity(message, version):
            return
        route = self._route_of(message)
        commit = _described(message) if isinstance(message, OffsetCommitRequest) else None
        if commit is not None:
            self._history.record(name, "invoke", "commit", **commit, late=True)
        try:
            reply: Any = await route.request(message, version, answer, timeout_ms=TIMEOUT_MS)
        except (NotSent, OutcomeUnknown) as error:
            if commit is not None:
                kind = "fail" if isinstance(error, NotSent) else "info"
                self._history.record(name, kind, "commit", error=str(error))  # type: ignore[arg-type]
            return
        if isinstance(reply, OffsetCommitResponse):
            code = reply.topics[0].partitions[0].error_code
            self._history.record(name, "info" if code else "ok", "commit", error=code)

    def _has_identity(self, message: Message, version: int) -> bool:
        if isinstance(message, AddPartitionsToTxnRequest):
            return self._is_old(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
            )
        if isinstance(message, AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest):
            first = VERSION_2.get(type(message))
            return (first is not None and version >= first) or self._is_old(
                message.transactional_id, message.producer_id, message.producer_epoch
            )
        return True

    def _is_old(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
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


def _described(message: OffsetCommitRequest) -> dict[str, Any]:
    topic = message.topics[0]
    asked = topic.partitions[0]
    return {
        "group": message.group_id,
        "tp": f"{topic.name}-{asked.partition_index}",
        "offset": asked.committed_offset,
        "member": message.member_id,
        "epoch": message.generation_id_or_member_epoch,
    }


class LateClient(ClusterClient):
    """A client some of whose requests come late."""

    def __init__(
        self,
        transport: Transport,
        bootstrap: Sequence[Address],
        *,
        client_id: str,
        random: Random,
        late: LateRequests,
        is_over: Callable[[], bool],
    ) -> None:
        super().__init__(transport, bootstrap, client_id=client_id, random=random)
        self._late = late
        self._is_over = is_over

    async def request_to(
        self, address: Address, message: Message, version: int, answer: type[R], *, timeout_ms: int
    ) -> R:
        fate = self._late.fate_of(message)
        if fate:
            self._late.keep(message, version, answer, self._is_over)
        if fate == "kept":
            await asyncio.sleep(min(PATIENCE_SECONDS, timeout_ms / 1000))
            raise OutcomeUnknown("kept back")
        return await super().request_to(address, message, version, answer, timeout_ms=timeout_ms)
