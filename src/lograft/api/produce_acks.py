"""Answers to Produce requests of the fast path: at once, late, or with what went wrong.

An acknowledgement that has to wait (for followers, for an fsync) is an object that hangs on its
partition, not a task: with replication every Produce has one.
"""

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from lograft.api.produce import ACKS_ALL, TOPIC_IDS_SINCE, hint_leaders
from lograft.api.produce_rejections import refuse
from lograft.broker.broker import Broker
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.waits import not_within
from lograft.model.errors import ErrorCode, LograftError
from lograft.model.exchange import DelayedReply, EncodedResponse
from lograft.model.seams import Part
from lograft.storage.types import AppendResult
from lograft.wire.apis import PRODUCE_KEY, response_header_version
from lograft.wire.headers import frame_response
from lograft.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_OFFSETS: Final = Struct(">qqq")
#: Stands where an answer has its offsets while its pattern is made.
_MARK: Final = (0x5A1F_00D1_2B3C_4D5E, 0x6B2E_11C2_3A4B_5C6D, 0x7C3D_22B3_495A_6B7C)


class AnswerPattern:
    """What the answers to one client's requests for one partition share."""

    __slots__ = (
        "_broker",
        "_head",
        "_index",
        "_listener",
        "_name",
        "_pack",
        "_size",
        "_tail",
        "_topic_id",
        "acks",
        "timeout_ms",
        "transactional_id",
        "version",
    )

    def __init__(
        self, broker: Broker, listener: str, version: int, request: ProduceRequest
    ) -> None:
        """Of a request with one partition."""
        (topic,) = request.topic_data
        self._broker = broker
        self._listener = listener
        self.version = version
        self._name = topic.name
        self._topic_id = topic.topic_id
        self._index = topic.partition_data[0].index
        self.acks = request.acks
        self.transactional_id = request.transactional_id
        self.timeout_ms = max(0, request.timeout_ms)
        base, log_append_time_ms, log_start = _MARK
        marked = PartitionProduceResponse(
            index=self._index,
            base_offset=base,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start,
        )
        (whole,) = self._frame(self._response(marked), 0)
        assert isinstance(whole, bytes)
        at = whole.index(_OFFSETS.pack(*_MARK))
        self._head = whole[8:at]
        self._tail = whole[at + _OFFSETS.size :]
        self._size = len(whole) - 4
        self._pack = Struct(f">ii{len(self._head)}sqqq{len(self._tail)}s").pack

    def partition(self) -> Partition | None:
        table = self._broker.partitions
        if self.version >= TOPIC_IDS_SINCE:
            return table.get_by_id(self._topic_id, self._index)
        return table.get(self._name, self._index)

    def success(self, correlation_id: int, result: AppendResult) -> bytes:
        base, _, log_append_time_ms, log_start, _, _ = result
        return self._pack(
            self._size, correlation_id, self._head, base, log_append_time_ms, log_start, self._tail
        )

    def refusal(self, correlation_id: int, error: LograftError) -> EncodedResponse:
        answer = PartitionProduceResponse(index=self._index)
        refuse(answer, error)
        response = self._response(answer)
        hint_leaders(self._broker, self._listener, self.version, response)
        return EncodedResponse(self._frame(response, correlation_id))

    def _response(self, answer: PartitionProduceResponse) -> ProduceResponse:
        topic = TopicProduceResponse(
            name=self._name, topic_id=self._topic_id, partition_responses=[answer]
        )
        return ProduceResponse(responses=[topic])

    def _frame(self, response: ProduceResponse, correlation_id: int) -> Sequence[Part]:
        return frame_response(
            response,
            self.version,
            correlation_id=correlation_id,
            header_version=response_header_version(PRODUCE_KEY, self.version),
        )


class DelayedAck(DelayedReply):
    """Hangs on its partition until that says how the append has ended, or its time is over. A
    `waits.OffsetWaiter`."""

    __slots__ = (
        "_answers",
        "_correlation_id",
        "_error",
        "_is_over",
        "_look",
        "_partition",
        "_result",
        "_timer",
        "_waits",
    )

    allows_pipelining = True

    def __init__(
        self,
        answers: AnswerPattern,
        correlation_id: int,
        partition: Partition,
        result: AppendResult,
    ) -> None:
        self._answers = answers
        self._correlation_id = correlation_id
        self._partition = partition
        self._result = result
        self._waits = partition.acks_of(acks_all=answers.acks == ACKS_ALL)
        self._error: LograftError | None = None
        self._is_over = False
        self._look: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, look: Callable[[], None]) -> None:
        self._look = look
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._answers.timeout_ms / 1000, self._on_time)
        self._waits.add(self._result.end_offset, self)

    def on_reached(self, code: ErrorCode) -> None:
        self._end_with(None if code is ErrorCode.NONE else self._partition.ack_error(code))

    def on_dismissed(self, error: LograftError) -> None:
        self._end_with(error)

    def _end_with(self, error: LograftError | None) -> None:
        """In the loop's next turn: what ends together is answered together."""
        self._error = error
        self._is_over = True
        assert self._look is not None
        asyncio.get_running_loop().call_soon(self._look)

    def _on_time(self) -> None:
        if not self._is_over:
            self._waits.remove(self)
            what = "committed" if self._answers.acks == ACKS_ALL else "flushed"
            self._end_with(not_within(self._answers.timeout_ms, what))

    def answer(self) -> "DelayedAck | bytes | EncodedResponse":
        if not self._is_over:
            return self
        assert self._timer is not None
        self._timer.cancel()
        if self._error is not None:
            return self._answers.refusal(self._correlation_id, self._error)
        return self._answers.success(self._correlation_id, self._result)

    def cancel(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            self._waits.remove(self)
