"""A transactional producer for both transaction protocols.

With protocol 1 the producer adds every partition and group to the transaction before it uses them,
and keeps its epoch across transactions; with protocol 2 the brokers add partitions, and every end
of a transaction returns a new epoch (KIP-890). A batch with unknown outcome is sent again
unchanged; if the outcome stays unknown, the transaction is aborted, and in protocol 1 the epoch is
bumped as well.

    init      {id}                                                       ok {pid, epoch}
    send      {tp, uid, txn, id, pid, epoch, seq, …}                     ok {offset}
    txn_end   {txn, id, commit, uids, offsets, reads}
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from campaigns.cluster_producer import TIMESTAMP_MS
from campaigns.groups.coordinators import GROUP, TRANSACTION, CoordinatorRoute
from campaigns.groups.membership import ActorContext, Membership, Place
from campaigns.groups.plan import ActorPlan
from lograft.model.errors import ErrorCode
from lograft.simulation.client import RETRIABLE, NotSent, OutcomeUnknown
from lograft.simulation.history import EventType
from lograft.simulation.routing import PartitionRoute
from lograft.wire.batches import Record, build_batch
from lograft.wire.message import Message
from lograft.wire.messages import produce as producing
from lograft.wire.messages import txn_offset_commit as offsetting
from lograft.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from lograft.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from lograft.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

R = TypeVar("R", bound=Message)

TIMEOUT_MS: Final = 2_000
TRANSACTION_TIMEOUT_MS: Final = 3_000
ATTEMPTS: Final = 8
PAUSES: Final = (0.02, 0.1, 0.3)
#: API versions by protocol.
PRODUCE: Final = {1: (7, 9, 11), 2: (12, 13)}
OFFSETS: Final = {1: 3, 2: 5}
END: Final = {1: 3, 2: 5}
INIT: Final = {1: 4, 2: 5}
ADD_PARTITIONS: Final = 3
ADD_OFFSETS: Final = 3
RETRIED: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
#: Another producer uses the transactional ID, or the epoch has ended.
FENCED: Final = frozenset({
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID,
})  # fmt: skip
#: Error codes that, in the first response, prove that the transaction was not committed.
CERTAIN: Final = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


class MustAbort(Exception):
    """The transaction can only be aborted."""


class SessionOver(Exception):
    """The producer must start a new session with InitProducerId."""


class TransactionalProducer:
    def __init__(
        self, context: ActorContext, plan: ActorPlan, learn: Callable[[str, int, int], None]
    ) -> None:
        """`learn` is called with every producer ID and epoch received."""
        self._around = context
        self._id = plan.name
        self._version = plan.version
        self._learn = learn
        self._route = CoordinatorRoute(context.cluster, self._id, TRANSACTION)
        self._groups: dict[str, CoordinatorRoute] = {}
        self._partitions: dict[Place, PartitionRoute] = {}
        self._producer_id = -1
        self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._count = 0
        self._is_unresolved = False
        self._added: dict[object, None] = {}
        self.txn = ""
        self._uids: dict[str, list[str]] = {}
        self._offsets: list[tuple[str, str, int]] = []
        #: Transactions whose records this transaction has read.
        self.reads: dict[str, None] = {}

    @property
    def is_ready(self) -> bool:
        return self._producer_id >= 0

    async def init(self, *, bump: bool = False) -> None:
        """Sends InitProducerId; with `bump`, with the old identity, to bump its epoch. Raises
        SessionOver."""
        context = self._around
        context.history.record(context.proc, "invoke", "init", id=self._id)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=self._producer_id if bump else -1,
            producer_epoch=self._epoch if bump else -1,
        )
        self._producer_id = -1
        try:
            response, _ = await self._request(
                self._route, request, INIT[self._version], InitProducerIdResponse
            )
        except MustAbort:
            context.history.record(context.proc, "info", "init")
            raise SessionOver from None
        if response.error_code:
            context.history.record(context.proc, "info", "init", error=response.error_code)
            raise SessionOver
        self._become(response.producer_id, response.producer_epoch)
        context.history.record(
            context.proc, "ok", "init", pid=response.producer_id, epoch=response.producer_epoch
        )

    def _become(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences.clear()
        self._learn(self._id, producer_id, epoch)

    def begin(self) -> str:
        """Starts a transaction and returns its name, with which its records start."""
        self._count += 1
        self.txn = f"{self._around.proc}#{self._count}"
        self._is_unresolved = False
        self._added.clear()
        self._uids = {}
        self._offsets = []
        self.reads = {}
        return self.txn

    # -- within a transaction ----------------------------------------------------------------------

    async def send(self, place: Place, uids: list[str]) -> None:
        """Sends one batch. Raises MustAbort or SessionOver."""
        topic, index = place
        if self._version == 1 and place not in self._added:
            await self._add_partition(place)
        sequence = self._sequences.get(place, 0)
        data = build_batch(
            [
                Record(number, TIMESTAMP_MS + self._count, None, uid.encode())
                for number, uid in enumerate(uids)
            ],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        plan = self._around.topics[topic]
        partition = producing.PartitionProduceData(index=index, records=data)
        request = producing.ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=TIMEOUT_MS // 2,
            topic_data=[
                producing.TopicProduceData(
                    name=topic, topic_id=plan.topic_id, partition_data=[partition]
                )
            ],
        )
        self._uids.setdefault(f"{topic}-{index}", []).extend(uids)
        self._is_unresolved = True
        offset = await self._send_until_known(place, request, uids, sequence)
        self._sequences[place] = sequence + len(uids)
        self._is_unresolved = False
        assert offset >= 0, (place, uids)

    async def _send_until_known(
        self, place: Place, request: producing.ProduceRequest, uids: list[str], sequence: int
    ) -> int:
        context = self._around
        route = self._partitions.get(place)
        if route is None:
            route = self._partitions[place] = context.cluster.partition(*place)
        version = context.random.choice(PRODUCE[self._version])
        for attempt in range(ATTEMPTS):
            for number, uid in enumerate(uids):
                context.history.record(
                    uid, "invoke", "send", tp=f"{place[0]}-{place[1]}", uid=uid, acks=-1,
                    txn=self.txn, id=self._id, pid=self._producer_id, epoch=self._epoch,
                    seq=sequence + number, retry=attempt > 0,
                )  # fmt: skip
            try:
                response = await route.request(
                    request, version, producing.ProduceResponse, timeout_ms=TIMEOUT_MS
                )
            except (NotSent, OutcomeUnknown) as error:
                self._record_end(uids, "fail" if isinstance(error, NotSent) else "info", str(error))
                route.mark_stale()
                await self._pause()
                continue
            result = response.responses[0].partition_responses[0]
            code = ErrorCode(result.error_code)
            if code is ErrorCode.NONE:
                for number, uid in enumerate(uids):
                    offset = result.base_offset + number
                    context.history.record(uid, "ok", "send", offset=offset)
                return result.base_offset
            self._record_end(uids, "info", code.value)
            if code in FENCED:
                raise SessionOver
            if code not in RETRIED:
                raise MustAbort
            route.mark_stale()
            await self._pause()
        raise MustAbort

    def _record_end(self, uids: list[str], kind: EventType, error: Any) -> None:
        for uid in uids:
            self._around.history.record(uid, kind, "send", error=error)

    async def _add_partition(self, place: Place) -> None:
        topic, index = place
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        response, _ = await self._request(
            self._route, request, ADD_PARTITIONS, AddPartitionsToTxnResponse
        )
        topics = response.results_by_topic_v3_and_below
        _raise_for_error(topics[0].results_by_partition[0].partition_error_code)
        self._added[place] = None

    async def commit_offsets(self, membership: Membership, offsets: dict[Place, int]) -> None:
        """Adds offsets to the transaction. Raises MustAbort or SessionOver."""
        group = membership.group
        if self._version == 1 and group not in self._added:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=self._producer_id,
                producer_epoch=self._epoch, group_id=group,
            )  # fmt: skip
            added, _ = await self._request(
                self._route, adding, ADD_OFFSETS, AddOffsetsToTxnResponse
            )
            _raise_for_error(added.error_code)
            self._added[group] = None
        topics: dict[str, list[offsetting.TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(
                offsetting.TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset
                )
            )
        request = offsetting.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=membership.epoch,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=[
                offsetting.TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        self._offsets += [
            (group, f"{topic}-{index}", offset) for (topic, index), offset in offsets.items()
        ]
        route = self._groups.setdefault(group, CoordinatorRoute(self._around.cluster, group, GROUP))
        response, _ = await self._request(
            route, request, OFFSETS[self._version], offsetting.TxnOffsetCommitResponse
        )
        for each in response.topics:
            for partition in each.partitions:
                _raise_for_error(partition.error_code)

    # -- end of the transaction --------------------------------------------------------------------

    async def end(self, *, commit: bool) -> None:
        """Ends the transaction. Raises SessionOver if it did not end as requested, or the outcome
        is unknown."""
        context = self._around
        context.history.record(
            context.proc, "invoke", "txn_end", txn=self.txn, id=self._id, commit=commit,
            uids=self._uids, offsets=self._offsets, reads=list(self.reads),
        )  # fmt: skip
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        try:
            response, is_first = await self._request(
                self._route, request, END[self._version], EndTxnResponse
            )
        except MustAbort:
            context.history.record(context.proc, "info", "txn_end")
            raise SessionOver from None
        if response.error_code:
            is_certain = is_first and response.error_code in CERTAIN
            context.history.record(
                context.proc, "fail" if is_certain else "info", "txn_end", error=response.error_code
            )
            raise SessionOver
        context.history.record(context.proc, "ok", "txn_end")
        if self._version == 2:
            self._become(response.producer_id, response.producer_epoch)
        elif self._is_unresolved:
            await self.init(bump=True)

    # -- requests ----------------------------------------------------------------------------------

    async def _request(
        self, route: CoordinatorRoute, message: Message, version: int, response_type: type[R]
    ) -> tuple[R, bool]:
        """Sends a request with retries. Returns the response, and whether it belongs to the first
        attempt that may have arrived. Raises MustAbort after the last attempt."""
        is_first = True
        for _ in range(ATTEMPTS):
            try:
                response = await route.request(
                    message, version, response_type, timeout_ms=TIMEOUT_MS
                )
            except (NotSent, OutcomeUnknown) as error:
                is_first = is_first and isinstance(error, NotSent)
                await self._pause()
                continue
            code = _code_of(response)
            if code not in RETRIED:
                return response, is_first
            # Records that a coordinator appended before it was deposed may still be committed.
            is_first = is_first and code is ErrorCode.CONCURRENT_TRANSACTIONS
            route.handle_error(code)
            await self._pause()
        raise MustAbort

    async def _pause(self) -> None:
        await asyncio.sleep(self._around.random.choice(PAUSES))


def _code_of(response: Message) -> ErrorCode:
    """Returns the first error code of a response."""
    if isinstance(response, AddPartitionsToTxnResponse):
        topic = response.results_by_topic_v3_and_below[0]
        return ErrorCode(topic.results_by_partition[0].partition_error_code)
    if isinstance(response, offsetting.TxnOffsetCommitResponse):
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
        return ErrorCode(next((code for code in codes if code), 0))
    assert isinstance(response, InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse)
    return ErrorCode(response.error_code)


def _raise_for_error(code: int) -> None:
    if code in FENCED:
        raise SessionOver
    if code:
        raise MustAbort
