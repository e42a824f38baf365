"""Responses to Produce requests of the fast path: immediate, delayed, or with an error.

An acknowledgement that has to wait (for followers, for an fsync) is an object that is registered
with its partition, not a task: with replication every Produce request has one.
"""

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from lograft.api.produce import ACKS_ALL, TOPIC_IDS_SINCE, add_leaders
from lograft.api.produce_rejections import set_error
from lograft.broker.broker import Broker
from lograft.broker.partitions.partition import Partition
from lograft.broker.partitions.waits import wait_timeout_error
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
#: Takes the place of the offsets while a pattern is built.
_MARK: Final = (0x5A1F_00D1_2B3C_4D5E, 0x6B2E_11C2_3A4B_5C6D, 0x7C3D_22B3_495A_6B7C)


class ResponsePattern:
    """The common bytes of the responses to one client's requests for one partition."""

    __slots__ = (
        "_errors",
        "_head",
        "_index",
        "_listener",
        "_name",
        "_pack",
        "_size",
        "_tail",
        "_topic_id",
        "acks",
        "broker",
        "timeout_ms",
        "transactional_id",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        listener: str,
        version: int,
        request: ProduceRequest,
        errors: dict[ErrorCode, int],
    ) -> None:
        """`request` has one partition. `errors` counts the errors in responses."""
        (topic,) = request.topic_data
        self.broker = broker
        self._errors = errors
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
        (whole,) = self._encode(self._build_response(marked), 0)
        assert isinstance(whole, bytes)
        at = whole.index(_OFFSETS.pack(*_MARK))
        self._head = whole[8:at]
        self._tail = whole[at + _OFFSETS.size :]
        self._size = len(whole) - 4
        self._pack = Struct(f">ii{len(self._head)}sqqq{len(self._tail)}s").pack

    def partition(self) -> Partition | None:
        table = self.broker.partitions
        if self.version >= TOPIC_IDS_SINCE:
            return table.get_by_id(self._topic_id, self._index)
        return table.get(self._name, self._index)

    def build_success(self, correlation_id: int, result: AppendResult) -> bytes:
        base, _, log_append_time_ms, log_start, _, _ = result
        return self._pack(
            self._size, correlation_id, self._head, base, log_append_time_ms, log_start, self._tail
        )

    def build_failure(self, correlation_id: int, error: LograftError) -> EncodedResponse:
        partition_response = PartitionProduceResponse(index=self._index)
        set_error(partition_response, error)
        code = ErrorCode(partition_response.error_code)
        self._errors[code] = self._errors.get(code, 0) + 1
        response = self._build_response(partition_response)
        add_leaders(self.broker, self._listener, self.version, response)
        return EncodedResponse(self._encode(response, correlation_id))

    def _build_response(self, partition_response: PartitionProduceResponse) -> ProduceResponse:
        topic = TopicProduceResponse(
            name=self._name, topic_id=self._topic_id, partition_responses=[partition_response]
        )
        return ProduceResponse(responses=[topic])

    def _encode(self, response: ProduceResponse, correlation_id: int) -> Sequence[Part]:
        return frame_response(
            response,
            self.version,
            correlation_id=correlation_id,
            header_version=response_header_version(PRODUCE_KEY, self.version),
        )


class DelayedAck(DelayedReply):
    """An acknowledgement that waits until its partition reports the result of the append, or the
    timeout expires. A `waits.OffsetWaiter`."""

    __slots__ = (
        "_correlation_id",
        "_error",
        "_is_over",
        "_partition",
        "_pattern",
        "_recheck",
        "_result",
        "_timer",
        "_waits",
    )

    allows_pipelining = True

    def __init__(
        self,
        pattern: ResponsePattern,
        correlation_id: int,
        partition: Partition,
        result: AppendResult,
    ) -> None:
        self._pattern = pattern
        self._correlation_id = correlation_id
        self._partition = partition
        self._result = result
        self._waits = partition.acks_of(acks_all=pattern.acks == ACKS_ALL)
        self._error: LograftError | None = None
        self._is_over = False
        self._recheck: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, recheck: Callable[[], None]) -> None:
        self._recheck = recheck
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pattern.timeout_ms / 1000, self._on_time)
        self._waits.add(self._result.end_offset, self)

    def on_reached(self, code: ErrorCode) -> None:
        self._end_with(None if code is ErrorCode.NONE else self._partition.ack_error(code))

    def on_dismissed(self, error: LograftError) -> None:
        self._end_with(error)

    def _end_with(self, error: LograftError | None) -> None:
        """Completes in the event loop's next iteration, so that responses are sent together."""
        self._error = error
        self._is_over = True
        assert self._recheck is not None
        asyncio.get_running_loop().call_soon(self._recheck)

    def _on_time(self) -> None:
        if not self._is_over:
            self._pattern.broker.expirations.produces += 1
            self._waits.remove(self)
            condition = "committed" if self._pattern.acks == ACKS_ALL else "flushed"
            self._end_with(wait_timeout_error(self._pattern.timeout_ms, condition))

    def try_complete(self) -> "DelayedAck | bytes | EncodedResponse":
        if not self._is_over:
            return self
        assert self._timer is not None
        self._timer.cancel()
        if self._error is not None:
            return self._pattern.build_failure(self._correlation_id, self._error)
        return self._pattern.build_success(self._correlation_id, self._result)

    def cancel(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        if not self._is_over:
            self._is_over = True
            self._waits.remove(self)
