"""A producer like those of Kafka's clients: batches, five in flight, ordered retries, sequence
numbers.

Every record is a separate operation in the history, named after its producer and number, and every
attempt is recorded. Retries follow Kafka's rules: an idempotent producer sends the same batch with
the same sequence number until the outcome is known; without idempotence, an unknown outcome stays
unknown."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from lograft.model.errors import ErrorCode
from lograft.simulation.checkers import key_of
from lograft.simulation.client import NotSent, OutcomeUnknown
from lograft.simulation.history import EventType, History
from lograft.simulation.machine import WALL_START_MS
from lograft.simulation.node_workload import TIMEOUT_MS, TopicPlan
from lograft.simulation.routing import PartitionRoute
from lograft.wire.batches import Record, build_batch
from lograft.wire.messages import produce as producing
from lograft.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

IN_FLIGHT_MAX: Final = 5
VERSIONS: Final = (7, 9, 12, 13)
#: Earlier than every clock of the cluster, even after jumps: brokers reject future timestamps.
TIMESTAMP_MS: Final = WALL_START_MS - 86_400_000
#: Timeout of a send with acks=0, which completes without a response.
NO_RESPONSE_MS: Final = 50
#: Error codes after which the batch is certainly in no log.
NOT_APPENDED: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
})  # fmt: skip
RETRIABLE: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
})  # fmt: skip

Start = Callable[[Coroutine[Any, Any, None], str], object]


@dataclass(slots=True, eq=False)
class Batch:
    #: Number of the first record.
    first: int
    uids: list[str]
    sequence: int
    producer_id: int
    producer_epoch: int
    is_in_flight: bool = False
    is_done: bool = False
    attempts: int = 0


class PipelinedProducer:
    def __init__(
        self,
        name: str,
        route: PartitionRoute,
        topic: TopicPlan,
        partition: int,
        *,
        history: History,
        random: Random,
        start: Start,
        acks: int,
        idempotent: bool,
        pace_ms: tuple[int, ...],
    ) -> None:
        assert acks == -1 or not idempotent
        self._name = name
        self._route = route
        self._topic = topic
        self._partition = partition
        self._tp = f"{topic.name}-{partition}"
        self._history = history
        self._random = random
        self._start = start
        self._acks = acks
        self._idempotent = idempotent
        self._pace_ms = pace_ms
        self._version = random.choice(VERSIONS)
        self._in_flight_max = random.choice((1, IN_FLIGHT_MAX))
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._sent = 0
        #: Whether a batch of this session was acknowledged.
        self._is_established = False
        #: Unfinished batches in order.
        self._window: list[Batch] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.choice(self._pace_ms) / 1000)
            if self._idempotent and self._producer_id < 0 and not await self._get_id():
                continue
            # Like Kafka, a log without state of a producer accepts any sequence number, so the
            # first batch of a session is sent alone.
            if len(self._window) < (self._in_flight_max if self._is_established else 1):
                self._window.append(self._new_batch())
                self._send_waiting()

    async def send_once(self) -> ErrorCode:
        """Sends one record outside the pipeline; raises the errors of a request."""
        self._sent += 1
        uid = f"{self._name}-{self._sent}"
        arguments: dict[str, Any] = {"tp": self._tp, "uid": uid, "acks": self._acks}
        if self._topic.is_compacted:
            arguments["key"] = key_of(uid)
        self._history.record(uid, "invoke", "send", **arguments)
        try:
            code, offset = await self._produce(Batch(self._sent, [uid], -1, -1, -1))
        except (NotSent, OutcomeUnknown) as error:
            kind: EventType = "fail" if isinstance(error, NotSent) else "info"
            self._history.record(uid, kind, "send", error=str(error))
            raise
        if code:
            self._history.record(uid, "info", "send", error=code.value)
        else:
            self._history.record(uid, "ok", "send", offset=offset)
        return code

    async def _get_id(self) -> bool:
        cluster = self._route.cluster
        try:
            response = await cluster.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
                4,
                InitProducerIdResponse,
                timeout_ms=TIMEOUT_MS,
            )
        except (NotSent, OutcomeUnknown):
            cluster.mark_stale()
            await asyncio.sleep(0.2)
            return False
        if response.error_code:
            cluster.mark_stale()
            return False
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
        self._sequence = 0
        self._is_established = False
        return True

    def _new_batch(self) -> Batch:
        count = self._random.choice((1, 1, 1, 2, 3))
        first = self._sent + 1
        self._sent += count
        uids = [f"{self._name}-{number}" for number in range(first, first + count)]
        batch = Batch(first, uids, self._sequence, self._producer_id, self._producer_epoch)
        self._sequence += count
        return batch

    def _send_waiting(self) -> None:
        for batch in self._window:
            if not batch.is_in_flight and not batch.is_done:
                batch.is_in_flight = True
                self._start(self._deliver(batch), f"{self._name}#{batch.first}")

    async def _deliver(self, batch: Batch) -> None:
        for index, uid in enumerate(batch.uids):
            arguments: dict[str, Any] = {"tp": self._tp, "uid": uid, "acks": self._acks}
            if self._acks != -1:
                arguments["weak"] = True
            if self._topic.is_compacted:
                arguments["key"] = key_of(uid)
            if self._idempotent:
                arguments |= {"pid": batch.producer_id, "seq": batch.sequence + index}
            self._history.record(uid, "invoke", "send", **arguments, retry=batch.attempts > 0)
        batch.attempts += 1
        # All earlier batches were acknowledged when it was sent.
        is_first = bool(self._window) and self._window[0] is batch
        outcome = await self._attempt(batch, is_first=is_first)
        batch.is_in_flight = False
        if outcome == "retry" and batch in self._window:
            self._route.mark_stale()
            await asyncio.sleep(self._random.choice((0.01, 0.1, 0.5)))
            # Later batches fail as well; all are sent again in order.
            self._send_waiting()
            return
        batch.is_done = True
        if outcome == "lost":
            # The session has ended; batches in flight stay unknown.
            self._window.clear()
            self._producer_id = -1
        while self._window and self._window[0].is_done:
            self._window.pop(0)

    async def _attempt(self, batch: Batch, *, is_first: bool) -> str:
        try:
            code, offset = await self._produce(batch)
        except NotSent as error:
            self._end(batch, "fail", error=str(error))
            # The batch had no effect, so a non-idempotent producer simply continues.
            return "retry" if self._idempotent else "done"
        except OutcomeUnknown as error:
            self._end(batch, "info", error=str(error))
            return "retry" if self._idempotent else "done"
        if code == ErrorCode.NONE:
            for index, uid in enumerate(batch.uids):
                self._history.record(uid, "ok", "send", offset=offset + index)
            self._is_established = True
            return "done"
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._end(batch, "info", error="duplicate of an old batch")
            return "done"
        kind: EventType = "fail" if code in NOT_APPENDED else "info"
        self._end(batch, kind, error=code.value, is_first=is_first)
        self._route.mark_stale()
        if not self._idempotent:
            return "done"
        if code in RETRIABLE:
            return "retry"
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first:
            return "retry"
        return "lost"

    def _end(self, batch: Batch, kind: EventType, **v: Any) -> None:
        for uid in batch.uids:
            self._history.record(uid, kind, "send", **v)

    async def _produce(self, batch: Batch) -> tuple[ErrorCode, int]:
        now_ms = TIMESTAMP_MS + batch.first
        data = build_batch(
            [
                Record(index, now_ms, key_of(uid).encode(), uid.encode())
                for index, uid in enumerate(batch.uids)
            ],
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.sequence if self._idempotent else -1,
        )
        request = producing.ProduceRequest(
            acks=self._acks,
            timeout_ms=TIMEOUT_MS // 2,
            topic_data=[
                producing.TopicProduceData(
                    name=self._topic.name,
                    topic_id=self._topic.topic_id,
                    partition_data=[
                        producing.PartitionProduceData(index=self._partition, records=data)
                    ],
                )
            ],
        )
        response = await self._route.request(
            request,
            self._version,
            producing.ProduceResponse,
            timeout_ms=TIMEOUT_MS if self._acks else NO_RESPONSE_MS,
        )
        result = response.responses[0].partition_responses[0]
        return ErrorCode(result.error_code), result.base_offset
