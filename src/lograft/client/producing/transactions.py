"""Transactions of a producer: all of its records and offsets are committed, or none.

There are two protocols. In the first, the producer adds each partition to the transaction at the
coordinator before it writes there, and keeps one epoch; a failed batch leaves a gap in its
sequences, so the next transaction needs a new epoch. In the second (KIP-890, feature
transaction.version 2), brokers add the partitions, and each transaction has its own epoch. The
producer chooses the protocol when a transaction begins.

The end of a transaction is requested until its outcome is known: a commit whose response was lost
may have happened, so the application can only retry it. The states are in `transaction_states.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from lograft.client.coordinators import Coordinator, CoordinatorType
from lograft.client.core import ClientCore
from lograft.client.errors import (
    BrokerError,
    ClientError,
    TimedOut,
    TransactionFailed,
    WrongUse,
    broker_error,
)
from lograft.client.producing.accumulator import Accumulator, PartitionQueue
from lograft.client.producing.batches import Batch
from lograft.client.producing.prepared_transactions import END_V1_MAX, PreparedTransaction
from lograft.client.producing.producer_identity import SenderCalls
from lograft.client.producing.sequences import Sequences
from lograft.client.producing.settings import ProducerSettings
from lograft.client.producing.transaction_offsets import commit_offsets
from lograft.client.producing.transaction_states import (
    Event,
    State,
    event_of_coordinator_error,
    event_of_partition_error,
    next_state,
)
from lograft.client.retries import retry
from lograft.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from lograft.model.errors import ErrorCode
from lograft.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

T = TypeVar("T")

_FEATURE: Final = "transaction.version"
#: The newest versions of the first protocol; later ones belong to the second.
_V1_PRODUCE_MAX: Final = 11
_V1_ADD_PARTITIONS_MAX: Final = 3
#: Since this version a producer with a gap in its sequences can request its next epoch (KIP-360).
_NEXT_EPOCH_SINCE: Final = 3


class Transactions:
    """The identity of a transactional producer, and its current transaction."""

    def __init__(
        self, core: ClientCore[ProducerSettings], accumulator: Accumulator, sender: SenderCalls
    ) -> None:
        name = core.settings.transactional_id
        assert name is not None
        self.transactional_id: str = name
        self.sequences = Sequences()
        self._core = core
        self._accumulator = accumulator
        accumulator.admission = self.check_may_send
        self._sender = sender
        self._coordinator = Coordinator(core, CoordinatorType.TRANSACTION, name)
        self._state = State.UNINITIALIZED
        #: The error of the transaction, or of the producer.
        self._error: Exception | None = None
        #: Number of the transaction: requests for an earlier one are not retried.
        self._number = 0
        self._uses_v2 = False
        #: Partitions in the transaction: added at the coordinator, or by brokers with the first
        #: batch.
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        #: Partitions to add at the coordinator before the first batch (first protocol).
        self._partitions_to_add: set[TopicPartition] = set()
        #: No partitions are being added now.
        self._is_adding_done = asyncio.Event()
        self._is_adding_done.set()
        #: A request was sent after which the coordinator may know the transaction.
        self._may_have_begun = False

    # ── calls of the application ─────────────────────────────────────────────────────────────

    def check_may_send(self) -> None:
        """Raises if no transaction is open."""
        if self._state is not State.IN_TRANSACTION:
            self._raise_error()
            raise WrongUse(f"{self._state.value}: send records after begin_transaction")

    @property
    def is_unfinished(self) -> bool:
        """Whether a transaction must be aborted."""
        return self._state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING)

    async def initialize(self) -> None:
        """Gets producer id and epoch. Fences the previous producer with the transactional id, and
        aborts its open transaction."""
        if self._state is State.UNINITIALIZED:
            await self._retry(
                lambda: self._init_producer_id(is_first=True), "initializing the producer id"
            )
            self._transition(Event.INITIALIZED)

    async def begin(self) -> None:
        if self._state is State.FATAL_ERROR:
            self._raise_error()
        await self.initialize()
        next_state(self._state, Event.BEGIN)
        connection = await self._retry(
            self._coordinator.connect, "connecting to the transaction coordinator"
        )
        self._uses_v2 = connection.features.get(_FEATURE, 0) >= 2
        self._number += 1
        self._transition(Event.BEGIN)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Adds offsets of a group to the transaction: they are committed with its records."""
        self.check_may_send()
        if not offsets:
            return
        if not self._uses_v2 and group.group_id not in self._groups:
            await self._retry(
                self._in_current_transaction(lambda: self._add_group(group.group_id)),
                "adding offsets to the transaction",
            )
        self._groups.add(group.group_id)
        coordinator = Coordinator(self._core, CoordinatorType.GROUP, group.group_id)
        pending = dict(offsets)
        await self._retry(
            self._in_current_transaction(
                lambda: commit_offsets(coordinator, self, pending, group, uses_v2=self._uses_v2)
            ),
            f"committing offsets of group {group.group_id!r}",
        )

    async def commit(self) -> None:
        if self._state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            self._raise_error()
        self._transition(Event.COMMIT)
        await self._accumulator.flush()
        self._raise_error()
        await self._end(commits=True)

    async def prepare(self) -> PreparedTransaction:
        """Waits until all records are acknowledged, and leaves the transaction open. Returns what
        is needed to complete it."""
        if self._state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            self._raise_error()
        next_state(self._state, Event.PREPARE)
        await self._accumulator.flush()
        self._raise_error()
        self._transition(Event.PREPARE)
        sequences = self.sequences
        return PreparedTransaction(
            self.transactional_id,
            sequences.producer_id,
            sequences.producer_epoch,
            uses_v2=self._uses_v2,
            is_empty=not (self._partitions or self._groups),
        )

    async def abort(self) -> None:
        if self._state is State.FATAL_ERROR:
            self._raise_error()
        self._transition(Event.ABORT)
        self._fail_unsent(
            TransactionFailed("the transaction was aborted before the record was sent")
        )
        await self._accumulator.flush()
        await self._end(commits=False)

    # ── calls of the sender (`ProducerIdentity`) ─────────────────────────────────────────────

    @property
    def produce_version_max(self) -> int | None:
        return None if self._uses_v2 else _V1_PRODUCE_MAX

    def is_ready(self) -> bool:
        return self._state in (State.IN_TRANSACTION, State.COMMITTING)

    def admits(self, queue: PartitionQueue) -> bool:
        partition = TopicPartition(queue.topic, queue.partition)
        if self._uses_v2 or partition in self._partitions:
            return True
        self._partitions_to_add.add(partition)
        if self._is_adding_done.is_set():
            self._is_adding_done.clear()
            self._core.runtime.spawn(self._add_partitions(), name="add to transaction")
        return False

    def on_sending(self, batch: Batch) -> None:
        self._partitions.add(TopicPartition(batch.topic, batch.partition))
        self.sequences.assign(batch)

    def on_failed(self, error: Exception) -> None:
        self._fail(event_of_partition_error(error), error)

    def retry_error(self) -> Exception | None:
        if self._state in (State.ABORTING, State.ABORTABLE_ERROR):
            return TransactionFailed("the record belongs to a transaction that must be aborted")
        return self._error

    # ── states ───────────────────────────────────────────────────────────────────────────────

    def _transition(self, event: Event) -> None:
        self._state = next_state(self._state, event)

    def _fail(self, event: Event, error: Exception) -> None:
        """Handles an error after which the transaction must be aborted, or the producer closed."""
        before = self._state
        if before is State.FATAL_ERROR:
            return
        if before in (State.UNINITIALIZED, State.READY) and event is Event.ABORTABLE_ERROR:
            return  # the error belongs to a transaction that has ended
        if self._error is None or event is Event.FATAL_ERROR:
            self._error = error
        self._transition(event)
        if event is Event.FATAL_ERROR:
            self._sender.fail(error)
        elif self._state is State.ABORTABLE_ERROR is not before:
            cause = TransactionFailed(f"the transaction cannot be committed: {error}")
            cause.__cause__ = error
            self._fail_unsent(cause)

    def _raise_error(self) -> None:
        if self._error is None:
            return
        if self._state is State.FATAL_ERROR:
            raise self._error
        raise TransactionFailed(
            f"the transaction cannot be committed: {self._error}; abort it and begin a new one"
        ) from self._error

    def _fail_unsent(self, error: Exception) -> None:
        self._partitions_to_add.clear()
        self._sender.fail_unsent(error)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Retries for up to max.block.ms. An error that is not retriable fails the transaction or
        the producer; after a timeout the application may call again."""
        timeout_ms = self._core.settings.max_block_ms
        try:
            return await retry(self._core, attempt, what=what, timeout_ms=timeout_ms)
        except (TimedOut, TransactionFailed):
            raise
        except ClientError as error:
            self._fail(event_of_coordinator_error(error), error)
            raise

    def _in_current_transaction(
        self, attempt: Callable[[], Awaitable[T]]
    ) -> Callable[[], Awaitable[T]]:
        """Wraps attempts so that they fail after the end of the transaction: a late retry must not
        affect the next one."""
        number = self._number

        async def run_guarded() -> T:
            if number != self._number or not self.is_ready():
                raise TransactionFailed("the transaction has ended")
            return await attempt()

        return run_guarded

    # ── requests to the coordinator, one attempt each ────────────────────────────────────────

    async def _init_producer_id(self, *, is_first: bool) -> None:
        sequences = self.sequences
        response = await self._coordinator.request(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._core.settings.transaction_timeout_ms,
                producer_id=-1 if is_first else sequences.producer_id,
                producer_epoch=-1 if is_first else sequences.producer_epoch,
            ),
            InitProducerIdResponse,
            at_least=0 if is_first else _NEXT_EPOCH_SINCE,
        )
        self._raise_for(response.error_code, "initializing the producer id")
        sequences.begin(response.producer_id, response.producer_epoch)

    async def _add_partitions(self) -> None:
        what = "adding partitions to the transaction"
        try:
            while self._partitions_to_add:
                await self._retry(self._in_current_transaction(self._add_pending_partitions), what)
        except (TimedOut, TransactionFailed) as error:
            self._fail(Event.ABORTABLE_ERROR, error)
        except ClientError:
            pass  # `_retry` has failed the transaction
        finally:
            self._is_adding_done.set()
        # Not after a cancellation: the client or its loop is closing.
        self._sender.wake()

    async def _add_pending_partitions(self) -> None:
        pending = sorted(self._partitions_to_add)
        self._may_have_begun = True
        topics: dict[str, list[int]] = {}
        for topic, partition in pending:
            topics.setdefault(topic, []).append(partition)
        response = await self._coordinator.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.sequences.producer_id,
                v3_and_below_producer_epoch=self.sequences.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            ),
            AddPartitionsToTxnResponse,
            at_most=_V1_ADD_PARTITIONS_MAX,
        )
        codes = {
            partition.partition_error_code: (topic.name, partition.partition_index)
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        # If one partition is rejected, the others are "not attempted": the rejection is the reason.
        codes.pop(ErrorCode.NONE, None)
        if len(codes) > 1:
            codes.pop(ErrorCode.OPERATION_NOT_ATTEMPTED, None)
        for code, (name, index) in codes.items():
            self._raise_for(code, f"adding {name}-{index} to the transaction")
        self._partitions_to_add.difference_update(pending)
        self._partitions.update(pending)

    async def _add_group(self, group_id: str) -> None:
        response = await self._coordinator.request(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.sequences.producer_id,
                producer_epoch=self.sequences.producer_epoch,
                group_id=group_id,
            ),
            AddOffsetsToTxnResponse,
        )
        self._raise_for(response.error_code, f"adding group {group_id!r} to the transaction")

    async def _end(self, *, commits: bool) -> None:
        await self._is_adding_done.wait()
        if self._may_have_begun or self._partitions or self._groups:
            action = "committing" if commits else "aborting"
            await self._retry(lambda: self._end_once(commits), f"{action} the transaction")
        if self.sequences.has_gap:
            # Only in the first protocol: in the second, the new epoch has removed the gap.
            await self._retry(
                lambda: self._init_producer_id(is_first=False), "getting the next epoch"
            )
        self._partitions.clear()
        self._groups.clear()
        self._may_have_begun = False
        self._error = None
        self._transition(Event.ENDED)

    async def _end_once(self, commits: bool) -> None:
        if self._has_expired_id():
            return
        response = await self._coordinator.request(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.sequences.producer_id,
                producer_epoch=self.sequences.producer_epoch,
                committed=commits,
            ),
            EndTxnResponse,
            at_most=None if self._uses_v2 else END_V1_MAX,
        )
        never_began = not (commits or self._partitions or self._groups)
        if never_began and response.error_code == ErrorCode.INVALID_TXN_STATE:
            return
        self._raise_for(response.error_code, "ending the transaction")
        if response.producer_id >= 0:
            self.sequences.begin(response.producer_id, response.producer_epoch)

    def _has_expired_id(self) -> bool:
        """Whether the coordinator has removed the producer id, and with it the transaction. Then
        there is nothing to end, and a new epoch is requested."""
        error = self._error
        has_expired = (
            isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        self.sequences.has_gap |= has_expired
        return has_expired

    def _raise_for(self, code: int, what: str) -> None:
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Older coordinators return this code to fenced producers.
            raise broker_error(
                ErrorCode.PRODUCER_FENCED, what, "a newer producer uses this transactional id"
            )
        self._coordinator.raise_for(code, what)
