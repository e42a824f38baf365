"""ISR changes that leaders propose to the controller: AlterPartition, one request at a time for all
partitions.

Proposals accumulate while a request is in flight and are sent together with the next one. Each
response is passed to the leadership that made the proposal (`on_accepted`, `on_rejected`), which
decides what is next. Proposals whose outcome is unknown are retried.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from lograft.broker.partitions.partition import Partition
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.model.seams import Clock
from lograft.model.types import BrokerEpoch, Epoch, NodeId
from lograft.replication.roles import LeaderRole
from lograft.replication.types import AcceptedIsr, IsrProposal
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

LOGGER: Final = logging.getLogger(__name__)
R = TypeVar("R", bound=Message)

VERSIONS: Final = Versions(3, 3)
#: Maximum number of partitions in one request.
PARTITIONS_MAX: Final = 1_000
#: Backoff before a retry.
RETRY_MS: Final = 50
TIMEOUT_MS: Final = 10_000
#: Value of leader_recovery_state.
RECOVERING: Final = 1

WAITING: Final = Gauge(
    "lograft_isr_changes_waiting", "Proposed ISR changes without a response from the controller."
)
REQUESTS: Final = Counter(
    "lograft_isr_change_requests_total", "AlterPartition requests that were sent to the controller."
)


class ControllerRequests(Protocol):
    """The part of `ControllerLink` that is needed for reports to the controller."""

    async def request(
        self,
        message: Message,
        versions: Versions,
        response_type: type[R],
        *,
        timeout_ms: int | None = None,
        lograft_only: bool = False,
    ) -> R: ...


class Proposed(NamedTuple):
    leader: LeaderRole
    proposal: IsrProposal


class IsrChanges:
    def __init__(self, me: NodeId, clock: Clock) -> None:
        self._me = me
        self._clock = clock
        #: The newest proposal of each partition, in the order of the proposals.
        self._waiting: dict[Partition, Proposed] = {}
        self._wake = asyncio.Event()
        self._requests = 0

    def propose(self, partition: Partition, leader: LeaderRole, proposal: IsrProposal) -> None:
        self._waiting[partition] = Proposed(leader, proposal)
        self._wake.set()

    async def run(self, link: ControllerRequests, broker_epoch: Callable[[], BrokerEpoch]) -> None:
        """Runs as a task of the broker after its registration."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while batch := self._take():
                try:
                    response = await link.request(
                        _request(self._me, broker_epoch(), batch),
                        VERSIONS,
                        AlterPartitionResponse,
                        timeout_ms=TIMEOUT_MS,
                    )
                    settled = self._on_response(batch, response)
                except LograftError as error:
                    LOGGER.info("could not send ISR changes, retrying: %s", error)
                    settled = self._reject_all(batch, ErrorCode.NETWORK_EXCEPTION)
                self._requests += 1
                if not settled:
                    await asyncio.sleep(RETRY_MS / 1000)

    def _take(self) -> dict[Partition, Proposed]:
        """Returns the proposals of current leaderships, up to the limit of a request."""
        batch: dict[Partition, Proposed] = {}
        for partition in list(self._waiting):
            proposed = self._waiting.pop(partition)
            if partition.leader is proposed.leader:
                batch[partition] = proposed
                if len(batch) == PARTITIONS_MAX:
                    break
        return batch

    def _on_response(
        self, batch: dict[Partition, Proposed], response: AlterPartitionResponse
    ) -> bool:
        """Handles a response. Returns False if proposals must be retried."""
        if response.error_code:
            return self._reject_all(batch, _error_code(response.error_code))
        results = {
            (topic.topic_id, data.partition_index): data
            for topic in response.topics
            for data in topic.partitions
        }
        for partition, proposed in batch.items():
            self._apply(partition, proposed, results.get((partition.topic_id, partition.index)))
        return not any(partition in self._waiting for partition in batch)

    def _apply(
        self,
        partition: Partition,
        proposed: Proposed,
        data: AlterPartitionResponsePartitionData | None,
    ) -> None:
        leader, proposal = proposed
        if partition.leader is not leader:
            return
        code = ErrorCode.NETWORK_EXCEPTION if data is None else _error_code(data.error_code)
        if data is None or code is not ErrorCode.NONE:
            LOGGER.info(
                "%s: the controller rejected the ISR change: %s",
                partition.topic_partition,
                code.name,
            )
            partition.apply(leader.on_rejected(proposal, code))
            return
        accepted = AcceptedIsr(
            Epoch(data.leader_epoch),
            data.partition_epoch,
            tuple(NodeId(node) for node in data.isr),
            data.leader_recovery_state == RECOVERING,
        )
        partition.apply(leader.on_accepted(proposal, accepted, now_ms=self._clock.mono_ms()))

    def _reject_all(self, batch: dict[Partition, Proposed], code: ErrorCode) -> bool:
        """Passes the error of the whole request to all leaderships."""
        for partition, (leader, proposal) in batch.items():
            if partition.leader is leader:
                partition.apply(leader.on_rejected(proposal, code))
        return not any(partition in self._waiting for partition in batch)

    def collect_samples(self) -> Iterator[Sample]:
        yield WAITING.sample(len(self._waiting))
        yield REQUESTS.sample(self._requests)


def _request(
    me: NodeId, broker_epoch: BrokerEpoch, batch: dict[Partition, Proposed]
) -> AlterPartitionRequest:
    topics: dict[UUID, AlterPartitionRequestTopicData] = {}
    for partition, (_, proposal) in batch.items():
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = topics[partition.topic_id] = AlterPartitionRequestTopicData(
                topic_id=partition.topic_id
            )
        topic.partitions.append(
            AlterPartitionRequestPartitionData(
                partition_index=partition.index,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=member.node_id, broker_epoch=member.broker_epoch)
                    for member in proposal.isr
                ],
                leader_recovery_state=RECOVERING if proposal.recovering else 0,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=me, broker_epoch=broker_epoch, topics=list(topics.values())
    )


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
