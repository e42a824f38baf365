"""Transactions of a producer: all of its records and offsets, or none.

Two protocols. In the first the producer tells its coordinator of each partition before it writes
there, and keeps one epoch for life; a batch that is lost leaves a hole in its sequences, so the
next transaction needs a new epoch. In the second (KIP-890, feature transaction.version 2) brokers
tell the coordinator themselves, and each transaction has an epoch of its own. Which one is used is
decided when a transaction begins.

The end of a transaction is asked for until it is known: a commit whose answer is lost is still a
commit, so it can only be asked for again. The states are in `transaction_states.py`.
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
    after,
    of_coordinator,
    of_partition,
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
#: The newest versions that mean the first protocol; later ones mean the second.
_V1_PRODUCE_MAX: Final = 11
_V1_ADD_PARTITIONS_MAX: Final = 3
#: Since then a producer that has a hole in its sequences can ask for its next epoch (KIP-360).
_NEXT_EPOCH_SINCE: Final = 3


class Transactions:
    """The identity of a transactional producer, and its transactions one after another."""

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
        self._state = State.NEW
        #: Why the transaction is broken, or the producer.
        self._error: Exception | None = None
        #: Of the transaction: what is still being asked for one that has ended asks no more.
        self._number = 0
        self._uses_v2 = False
        #: In the transaction: the coordinator knows of them, or will from their first batches.
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        #: To be told to the coordinator before anything is written there (first protocol).
        self._wanted: set[TopicPartition] = set()
        #: Nothing is being told right now.
        self._has_told = asyncio.Event()
        self._has_told.set()
        #: The coordinator may know of the transaction, though it has not said so.
        self._may_have_begun = False

    # ── what the program asks for ────────────────────────────────────────────────────────────

    def check_may_send(self) -> None:
        """Raises if no transaction is open that takes records."""
        if self._state is not State.OPEN:
            self._raise_error()
            raise WrongUse(f"{self._state.value}: records are sent between begin and commit")

    @property
    def is_unfinished(self) -> bool:
        """Whether there is something to abort."""
        return self._state in (State.OPEN, State.BROKEN, State.ABORTING)

    async def identify(self) -> None:
        """Gets the producer's id and epoch. Whoever had the transactional id before is fenced, and
        a transaction that was left open is aborted."""
        if self._state is State.NEW:
            await self._ask(lambda: self._identify(is_first=True), "getting a producer id")
            self._move(Event.IDENTIFIED)

    async def begin(self) -> None:
        if self._state is State.FENCED:
            self._raise_error()
        await self.identify()
        after(self._state, Event.BEGIN)
        link = await self._ask(self._coordinator.connect, "finding the transaction's coordinator")
        self._uses_v2 = link.features.get(_FEATURE, 0) >= 2
        self._number += 1
        self._move(Event.BEGIN)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """The group's offsets become what the transaction's records are: committed with them."""
        self.check_may_send()
        if not offsets:
            return
        if not self._uses_v2 and group.group_id not in self._groups:
            await self._ask(
                self._in_this_one(lambda: self._add_group(group.group_id)),
                "adding offsets to the transaction",
            )
        self._groups.add(group.group_id)
        coordinator = Coordinator(self._core, CoordinatorType.GROUP, group.group_id)
        left = dict(offsets)
        await self._ask(
            self._in_this_one(
                lambda: commit_offsets(coordinator, self, left, group, uses_v2=self._uses_v2)
            ),
            f"committing offsets of group {group.group_id!r}",
        )

    async def commit(self) -> None:
        if self._state in (State.BROKEN, State.FENCED):
            self._raise_error()
        self._move(Event.COMMIT)
        await self._accumulator.flush()
        self._raise_error()
        await self._end(commits=True)

    async def prepare(self) -> PreparedTransaction:
        """All that was given is in the log, and the transaction stays open: whoever has what is
        returned here can end it."""
        if self._state in (State.BROKEN, State.FENCED):
            self._raise_error()
        after(self._state, Event.PREPARED)
        await self._accumulator.flush()
        self._raise_error()
        self._move(Event.PREPARED)
        sequences = self.sequences
        return PreparedTransaction(
            self.transactional_id,
            sequences.producer_id,
            sequences.producer_epoch,
            uses_v2=self._uses_v2,
            is_empty=not (self._partitions or self._groups),
        )

    async def abort(self) -> None:
        if self._state is State.FENCED:
            self._raise_error()
        self._move(Event.ABORT)
        self._drop_unsent(TransactionFailed("the transaction was aborted: nothing of it counts"))
        await self._accumulator.flush()
        await self._end(commits=False)

    # ── what the sender asks and tells ───────────────────────────────────────────────────────

    @property
    def produce_version_max(self) -> int | None:
        return None if self._uses_v2 else _V1_PRODUCE_MAX

    def is_ready(self) -> bool:
        return self._state in (State.OPEN, State.COMMITTING)

    def admits(self, queue: PartitionQueue) -> bool:
        partition = TopicPartition(queue.topic, queue.partition)
        if self._uses_v2 or partition in self._partitions:
            return True
        self._wanted.add(partition)
        if self._has_told.is_set():
            self._has_told.clear()
            self._core.runtime.spawn(self._add_partitions(), name="add to transaction")
        return False

    def on_sending(self, batch: Batch) -> None:
        self._partitions.add(TopicPartition(batch.topic, batch.partition))
        self.sequences.assign(batch)

    def on_failed(self, error: Exception) -> None:
        self._fail(of_partition(error), error)

    def retry_error(self) -> Exception | None:
        if self._state in (State.ABORTING, State.BROKEN):
            return TransactionFailed("the transaction is to be aborted: nothing of it counts")
        return self._error

    # ── states ───────────────────────────────────────────────────────────────────────────────

    def _move(self, event: Event) -> None:
        self._state = after(self._state, event)

    def _fail(self, event: Event, error: Exception) -> None:
        """The transaction is broken, or the producer."""
        before = self._state
        if before is State.FENCED:
            return
        if before in (State.NEW, State.READY) and event is Event.BROKE:
            return  # what failed is of a transaction that has ended
        if self._error is None or event is Event.DIED:
            self._error = error
        self._move(event)
        if event is Event.DIED:
            self._sender.fail(error)
        elif self._state is State.BROKEN is not before:
            cause = TransactionFailed(f"the transaction cannot be committed: {error}")
            cause.__cause__ = error
            self._drop_unsent(cause)

    def _raise_error(self) -> None:
        if self._error is None:
            return
        if self._state is State.FENCED:
            raise self._error
        raise TransactionFailed(
            f"the transaction cannot be committed: {self._error}; abort it and begin again"
        ) from self._error

    def _drop_unsent(self, error: Exception) -> None:
        self._wanted.clear()
        self._sender.fail_unsent(error)

    async def _ask(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        """Asks until it is done or max.block.ms is over. What cannot be done for good breaks the
        transaction or the producer; what took too long may be asked for again."""
        budget_ms = self._core.settings.max_block_ms
        try:
            return await retry(self._core, attempt, what=what, timeout_ms=budget_ms)
        except (TimedOut, TransactionFailed):
            raise
        except ClientError as error:
            self._fail(of_coordinator(error), error)
            raise

    def _in_this_one(self, attempt: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Attempts for this transaction only: one that is made late must not count for the next."""
        number = self._number

        async def guarded() -> T:
            if number != self._number or not self.is_ready():
                raise TransactionFailed("the transaction has ended meanwhile")
            return await attempt()

        return guarded

    # ── questions to the coordinator, asked once each ────────────────────────────────────────

    async def _identify(self, *, is_first: bool) -> None:
        sequences = self.sequences
        answer = await self._coordinator.request(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._core.settings.transaction_timeout_ms,
                producer_id=-1 if is_first else sequences.producer_id,
                producer_epoch=-1 if is_first else sequences.producer_epoch,
            ),
            InitProducerIdResponse,
            at_least=0 if is_first else _NEXT_EPOCH_SINCE,
        )
        self._raise_for(answer.error_code, "getting a producer id")
        sequences.begin(answer.producer_id, answer.producer_epoch)

    async def _add_partitions(self) -> None:
        what = "adding partitions to the transaction"
        try:
            while self._wanted:
                await self._ask(self._in_this_one(self._add_wanted), what)
        except (TimedOut, TransactionFailed) as error:
            self._fail(Event.BROKE, error)
        except ClientError:
            pass  # the transaction knows
        finally:
            self._has_told.set()
        # Not after a cancellation: the client or its loop is being closed.
        self._sender.wake()

    async def _add_wanted(self) -> None:
        wanted = sorted(self._wanted)
        self._may_have_begun = True
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        answer = await self._coordinator.request(
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
            one.partition_error_code: (topic.name, one.partition_index)
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        # Where one is refused the others are "not attempted": the refusal is the reason.
        codes.pop(ErrorCode.NONE, None)
        if len(codes) > 1:
            codes.pop(ErrorCode.OPERATION_NOT_ATTEMPTED, None)
        for code, (name, index) in codes.items():
            self._raise_for(code, f"adding {name}-{index} to the transaction")
        self._wanted.difference_update(wanted)
        self._partitions.update(wanted)

    async def _add_group(self, group_id: str) -> None:
        answer = await self._coordinator.request(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.sequences.producer_id,
                producer_epoch=self.sequences.producer_epoch,
                group_id=group_id,
            ),
            AddOffsetsToTxnResponse,
        )
        self._raise_for(answer.error_code, f"adding group {group_id!r} to the transaction")

    async def _end(self, *, commits: bool) -> None:
        await self._has_told.wait()
        if self._may_have_begun or self._partitions or self._groups:
            what = "committing" if commits else "aborting"
            await self._ask(lambda: self._ask_for_end(commits), f"{what} the transaction")
        if self.sequences.has_hole:
            # Only the first protocol gets here with it: the second has a new epoch by now.
            await self._ask(lambda: self._identify(is_first=False), "getting the next epoch")
        self._partitions.clear()
        self._groups.clear()
        self._may_have_begun = False
        self._error = None
        self._move(Event.ENDED)

    async def _ask_for_end(self, commits: bool) -> None:
        if self._is_unknown_to_coordinator():
            return
        answer = await self._coordinator.request(
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
        if never_began and answer.error_code == ErrorCode.INVALID_TXN_STATE:
            return
        self._raise_for(answer.error_code, "ending the transaction")
        if answer.producer_id >= 0:
            self.sequences.begin(answer.producer_id, answer.producer_epoch)

    def _is_unknown_to_coordinator(self) -> bool:
        """It has forgotten the producer, and with it the transaction: nothing is to be ended, and a
        new epoch is asked for."""
        error = self._error
        forgot = (
            isinstance(error, BrokerError) and error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        self.sequences.has_hole |= forgot
        return forgot

    def _raise_for(self, code: int, what: str) -> None:
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Older coordinators say so to whom they have fenced.
            raise broker_error(ErrorCode.PRODUCER_FENCED, what, "a newer producer has this id")
        self._coordinator.raise_for(code, what)
