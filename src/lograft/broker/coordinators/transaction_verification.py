"""Verifies with the transaction coordinator that a transaction includes partitions of this broker.

Without verification, a batch that arrives after the end of its transaction would start a
transaction that no coordinator ends: a hanging transaction (KIP-890). Producers of the older
protocol add partitions themselves, and the coordinator only checks (`verify_only`). For producers
of the newer protocol, this request also adds the partitions.

The result can become outdated: if a marker is appended between the response and the append of the
batch, `storage/producers.py: Verification` rejects the batch.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.broker.coordinators.coordinator_shard import error_code_of
from lograft.broker.errors import PeerLost, PeerUnreachable
from lograft.broker.links.broker_link import BrokerLink
from lograft.coordination.transaction import EPOCH_BUMP_SINCE, Partitions, partitions_of
from lograft.coordination.transaction_shard import TransactionShard
from lograft.coordination.types import CoordinatorResult, Ticket
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.metrics import Counter, Sample
from lograft.model.seams import Clock
from lograft.model.types import NodeId, TopicPartition
from lograft.wire.apis import Versions
from lograft.wire.message import Message
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from lograft.broker.coordinators.coordinator_runtime import CoordinatorRuntime

#: Version 5 has TRANSACTION_ABORTABLE.
VERSIONS: Final = Versions(4, 5)
LANE: Final = "transactions"
#: Error codes of the coordinator that are different in a Produce response.
PRODUCE_CODES: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # This broker lacks a permission, which its clients cannot change.
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}

REQUESTS: Final = Counter(
    "lograft_transaction_verifications_total",
    "Requests that asked a transaction coordinator about a partition.",
)
REPEATS: Final = Counter(
    "lograft_transaction_verification_retries_total",
    "Requests to a transaction coordinator that were sent again.",
)


class TransactionVerification:
    def __init__(
        self,
        link: BrokerLink,
        clock: Clock,
        *,
        coordinator_of: Callable[[str], NodeId | None],
        coordinators_here: "CoordinatorRuntime[TransactionShard] | None",
        metadata: ClusterMetadata,
    ) -> None:
        """`coordinators_here` are those of this broker, which are called without a request.
        `coordinator_of` returns the broker that leads a transactional id's partition of
        __transaction_state; None if it has no leader."""
        self._link = link
        self._coordinators_here = coordinators_here
        self._clock = clock
        self._coordinator_of = coordinator_of
        self._metadata = metadata
        self._requests = 0
        self._repeats = 0

    def verify_now(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partition: TopicPartition,
        *,
        adds: bool,
    ) -> bool:
        """Returns True if the coordinator is in this process, its partition has no other replica,
        and it accepts the partition. Otherwise call `verify`."""
        if self._coordinators_here is None:
            return False
        partitions = {partition.topic: (partition.partition,)}
        command = _command_of(transactional_id, producer, partitions, adds=adds)
        try:
            result = self._coordinators_here.ask_alone(transactional_id, command)
        except LograftError:
            return False
        if result is None:
            return False
        if not isinstance(result, Message):
            # The reply waits for a flush, and so will `verify`.
            asyncio.ensure_future(result).cancel()
            return False
        assert isinstance(result, AddPartitionsToTxnResult), result
        self._requests += 1
        return not result.topic_results[0].results_by_partition[0].partition_error_code

    async def verify(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        on_repeat: Callable[[], None],
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns the coordinator's error code for each partition. `producer` is its id and epoch.

        If the request adds partitions and the previous transaction is not completely ended, it is
        retried here, since a retry by the producer would take longer and send the whole batch. The
        markers of the previous transaction may arrive meanwhile, so `on_repeat` restarts each
        verification.
        """
        config = self._metadata.config
        timeout_ms = min(
            config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
        )
        deadline_ms = self._clock.mono_ms() + timeout_ms
        self._requests += 1
        while True:
            coordinator = self._coordinator_of(transactional_id)
            if coordinator is None:
                return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if coordinator == self._link.me and self._coordinators_here is not None:
                codes = await self._verify_here(
                    self._coordinators_here, transactional_id, producer, partitions, adds=adds
                )
            else:
                request = _request_of(transactional_id, producer, partitions, adds=adds)
                codes = await self._send(coordinator, request, partitions)
            if (
                not adds
                or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values()
                or self._clock.mono_ms() >= deadline_ms
            ):
                return codes
            self._repeats += 1
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            on_repeat()

    async def _verify_here(
        self,
        coordinators: "CoordinatorRuntime[TransactionShard]",
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        by_topic = partitions_of((topic, (index,)) for topic, index in partitions)
        command = _command_of(transactional_id, producer, by_topic, adds=adds)
        try:
            result = await coordinators.ask(transactional_id, command)
        except LograftError as error:
            return dict.fromkeys(partitions, _produce_code(error_code_of(error)))
        return _codes_of([result])

    async def _send(
        self,
        coordinator: NodeId,
        request: AddPartitionsToTxnRequest,
        partitions: Sequence[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        try:
            response = await self._link.request(
                coordinator,
                request,
                VERSIONS,
                AddPartitionsToTxnResponse,
                timeout_ms=self._metadata.config.request_timeout_ms,
                lane=LANE,
            )
        except (PeerUnreachable, PeerLost):
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code:
            return dict.fromkeys(partitions, _produce_code(response.error_code))
        codes = _codes_of(response.results_by_transaction)
        # A partition that is missing in the response is not verified.
        return {each: codes.get(each, ErrorCode.INVALID_TXN_STATE) for each in partitions}

    def collect_samples(self) -> Iterator[Sample]:
        yield REQUESTS.sample(self._requests)
        yield REPEATS.sample(self._repeats)


def _request_of(
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Sequence[TopicPartition],
    *,
    adds: bool,
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
        ]
    )


def _command_of(
    transactional_id: str, producer: tuple[int, int], partitions: Partitions, *, adds: bool
) -> Callable[[TransactionShard, Ticket, int], CoordinatorResult]:
    producer_id, producer_epoch = producer

    def decide(shard: TransactionShard, ticket: Ticket, now_ms: int) -> CoordinatorResult:
        if not adds:
            return shard.verify_partitions(
                ticket,
                transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=partitions,
            )
        return shard.add_partitions(
            ticket,
            transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
            client_version=EPOCH_BUMP_SINCE,
        )

    return decide


def _codes_of(
    results: Sequence[AddPartitionsToTxnResult],
) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, result.partition_index): _produce_code(
            result.partition_error_code
        )
        for transaction in results
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }


def _produce_code(code: int) -> ErrorCode:
    known = ErrorCode(code)
    return PRODUCE_CODES.get(known, known)
