"""The queue of records from other threads: order, waiting records, rejected records, close."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lograft.client.errors import BufferFull, Closed, SerializationFailed, TimedOut
from lograft.client.producing.batches import Batch
from lograft.client.producing.cross_thread_queue import RECORDS_MAX, CrossThreadQueue
from lograft.client.producing.deliveries import Delivery
from lograft.client.producing.interceptors import Outgoing
from lograft.client.producing.record_pipeline import RecordPipeline
from tests.support.scenarios import scenario


class StandInPipeline(RecordPipeline):
    """Records wait for `released` while `is_full`, or if their topic is `unknown`."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.is_full = False
        self.released = asyncio.Event()
        self.rejects = False
        self.reported: list[Exception] = []

    def report_failure(self, error: Exception) -> None:
        self.reported.append(error)

    def is_known(self, topic: str, partition: int | None) -> bool:
        return topic != "unknown"

    def intercept(self, record: Outgoing) -> Outgoing:
        return record

    def put_if_known(self, record: Outgoing) -> Delivery | None:
        if record.topic == "bad":
            raise SerializationFailed("no")
        if self.is_full:
            raise BufferFull("full")
        if record.topic == "unknown":
            return None
        return self._delivery(record)

    async def enqueue_intercepted(self, record: Outgoing) -> Delivery:
        await self.released.wait()
        if self.rejects:
            raise TimedOut("no metadata")
        self.is_full = False
        return self._delivery(record)

    def _delivery(self, record: Outgoing) -> Delivery:
        self.taken.append(record.value)
        return Delivery(Batch("t", 0, 0, (0,)), 0, -1)


def play(scenario: Callable[[StandInPipeline, CrossThreadQueue], Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pipeline = StandInPipeline()
        tasks: list[asyncio.Task[None]] = []

        def post(function: Callable[[], object]) -> None:
            loop.call_soon_threadsafe(function)

        def spawn() -> None:
            tasks.append(loop.create_task(queue.drain_slowly()))

        queue = CrossThreadQueue(pipeline, post, spawn)
        await scenario(pipeline, queue)
        for task in tasks:
            await task

    asyncio.run(main())


@scenario(play)
async def test_queued_records_are_taken_in_one_iteration(
    pipeline: StandInPipeline, queue: CrossThreadQueue, /
) -> None:
    promises = [queue.put(Outgoing("t", number)) for number in range(5)]
    assert not promises[0].is_settled
    await queue.wait_empty()
    assert pipeline.taken == [0, 1, 2, 3, 4]
    assert all(promise.delivery is not None for promise in promises)
    queue.put(Outgoing("t", 5))
    await queue.wait_empty()
    assert pipeline.taken[-1] == 5


@pytest.mark.parametrize("reason", ["no space", "unknown topic"])
@scenario(play)
async def test_records_behind_a_waiting_record_keep_their_order(
    pipeline: StandInPipeline, queue: CrossThreadQueue, /, reason: str
) -> None:
    pipeline.is_full = reason == "no space"
    first = "t" if pipeline.is_full else "unknown"
    promises = [queue.put(Outgoing(first, "first")), queue.put(Outgoing("t", "second"))]
    settled: list[str] = []
    promises[1].on_settled(lambda: settled.append("second"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    queue.put(Outgoing("t", "third"))
    assert pipeline.taken == []
    pipeline.released.set()
    await queue.wait_empty()
    assert pipeline.taken == ["first", "second", "third"]
    assert settled == ["second"]


def test_rejected_record_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pipeline: StandInPipeline, queue: CrossThreadQueue) -> None:
        bad, good = queue.put(Outgoing("bad", 1)), queue.put(Outgoing("t", 2))
        await queue.wait_empty()
        assert isinstance(bad.error, SerializationFailed)
        assert good.error is None
        assert pipeline.reported == [bad.error]
        pipeline.rejects = True
        pipeline.released.set()
        late, after = queue.put(Outgoing("unknown", 3)), queue.put(Outgoing("t", 4))
        await queue.wait_empty()
        assert isinstance(late.error, TimedOut)
        assert after.delivery is not None
        assert pipeline.taken == [2, 4]

    play(scenario)
    assert caplog.text.count("a record was rejected before it was buffered") == 2


@scenario(play)
async def test_close_rejects_queued_and_later_records(
    pipeline: StandInPipeline, queue: CrossThreadQueue, /
) -> None:
    promises = [queue.put(Outgoing("t", number)) for number in range(RECORDS_MAX)]
    assert queue.is_full
    queue.close()
    assert {type(promise.error) for promise in promises} == {Closed}
    assert isinstance(queue.put(Outgoing("t", "late")).error, Closed)
    assert len(pipeline.reported) == RECORDS_MAX + 1
    await queue.wait_empty()


@scenario(play)
async def test_takes_at_once_is_false_while_records_wait(
    pipeline: StandInPipeline, queue: CrossThreadQueue, /
) -> None:
    known = Outgoing("t", 1)
    assert queue.takes_at_once(known)
    assert not queue.takes_at_once(Outgoing("unknown", 1))
    for number in range(RECORDS_MAX):
        queue.put(Outgoing("t", number))
    assert not queue.takes_at_once(known)
    await queue.wait_empty()
    pipeline.is_full = True
    waiting = queue.put(known)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not queue.takes_at_once(known), "the record before it waits for space"
    pipeline.released.set()
    await queue.wait_empty()
    assert waiting.delivery is not None
    assert queue.takes_at_once(known)


@scenario(play)
async def test_close_rejects_waiting_record(
    pipeline: StandInPipeline, queue: CrossThreadQueue, /
) -> None:
    waiting = queue.put(Outgoing("unknown", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    queue.close()
    pipeline.released.set()
    await queue.wait_empty()
    assert isinstance(waiting.error, Closed)
    assert pipeline.reported == [], "the pipeline itself reports the waiting record"
