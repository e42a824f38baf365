"""Records of threads on their way into the loop: in order, whatever the first of them waits for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lograft.client.errors import BufferFull, Closed, SerializationFailed, TimedOut
from lograft.client.producing.batches import Batch
from lograft.client.producing.deliveries import Delivery
from lograft.client.producing.handover import RECORDS_MAX, Handover
from lograft.client.producing.intake import Intake
from lograft.client.producing.interceptors import Outgoing
from tests.support.scenarios import scenario


class StandInIntake(Intake):
    """Takes what it is told to: `full` and `unknown` topics make a record wait for `released`."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.is_full = False
        self.released = asyncio.Event()
        self.refuses = False
        self.reported: list[Exception] = []

    def report_failure(self, error: Exception) -> None:
        self.reported.append(error)

    def is_known(self, topic: str, partition: int | None) -> bool:
        return topic != "unknown"

    def intercepted(self, record: Outgoing) -> Outgoing:
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
        if self.refuses:
            raise TimedOut("never came")
        self.is_full = False
        return self._delivery(record)

    def _delivery(self, record: Outgoing) -> Delivery:
        self.taken.append(record.value)
        return Delivery(Batch("t", 0, 0, (0,)), 0, -1)


def play(scenario: Callable[[StandInIntake, Handover], Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        intake = StandInIntake()
        tasks: list[asyncio.Task[None]] = []

        def post(function: Callable[[], object]) -> None:
            loop.call_soon_threadsafe(function)

        def spawn() -> None:
            tasks.append(loop.create_task(handover.drain_slowly()))

        handover = Handover(intake, post, spawn)
        await scenario(intake, handover)
        for task in tasks:
            await task

    asyncio.run(main())


@scenario(play)
async def test_what_lies_there_is_taken_in_one_turn(
    intake: StandInIntake, handover: Handover, /
) -> None:
    promises = [handover.put(Outgoing("t", number)) for number in range(5)]
    assert not promises[0].is_settled
    await handover.wait_empty()
    assert intake.taken == [0, 1, 2, 3, 4]
    assert all(one.delivery is not None for one in promises)
    handover.put(Outgoing("t", 5))
    await handover.wait_empty()
    assert intake.taken[-1] == 5


@pytest.mark.parametrize("reason", ["no room", "unknown topic"])
@scenario(play)
async def test_those_behind_a_record_that_waits_keep_their_places(
    intake: StandInIntake, handover: Handover, /, reason: str
) -> None:
    intake.is_full = reason == "no room"
    first = "t" if intake.is_full else "unknown"
    promises = [handover.put(Outgoing(first, "first")), handover.put(Outgoing("t", "second"))]
    settled: list[str] = []
    promises[1].on_settled(lambda: settled.append("second"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    handover.put(Outgoing("t", "third"))
    assert intake.taken == []
    intake.released.set()
    await handover.wait_empty()
    assert intake.taken == ["first", "second", "third"]
    assert settled == ["second"]


def test_what_cannot_be_taken_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(intake: StandInIntake, handover: Handover) -> None:
        bad, good = handover.put(Outgoing("bad", 1)), handover.put(Outgoing("t", 2))
        await handover.wait_empty()
        assert isinstance(bad.error, SerializationFailed)
        assert good.error is None
        assert intake.reported == [bad.error]
        intake.refuses = True
        intake.released.set()
        late, after = handover.put(Outgoing("unknown", 3)), handover.put(Outgoing("t", 4))
        await handover.wait_empty()
        assert isinstance(late.error, TimedOut)
        assert after.delivery is not None
        assert intake.taken == [2, 4]

    play(scenario)
    assert caplog.text.count("a record was not taken") == 2


@scenario(play)
async def test_the_queue_says_when_it_is_full_and_ends_with_the_client(
    intake: StandInIntake, handover: Handover, /
) -> None:
    promises = [handover.put(Outgoing("t", number)) for number in range(RECORDS_MAX)]
    assert handover.is_full
    handover.end()
    assert {type(one.error) for one in promises} == {Closed}
    assert isinstance(handover.put(Outgoing("t", "late")).error, Closed)
    assert len(intake.reported) == RECORDS_MAX + 1
    await handover.wait_empty()


@scenario(play)
async def test_it_says_what_the_loop_will_not_take_at_once(
    intake: StandInIntake, handover: Handover, /
) -> None:
    known = Outgoing("t", 1)
    assert handover.takes_at_once(known)
    assert not handover.takes_at_once(Outgoing("unknown", 1))
    for number in range(RECORDS_MAX):
        handover.put(Outgoing("t", number))
    assert not handover.takes_at_once(known)
    await handover.wait_empty()
    intake.is_full = True
    waiting = handover.put(known)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not handover.takes_at_once(known), "the one before it waits for room"
    intake.released.set()
    await handover.wait_empty()
    assert waiting.delivery is not None
    assert handover.takes_at_once(known)


@scenario(play)
async def test_the_end_finds_a_record_that_waits(
    intake: StandInIntake, handover: Handover, /
) -> None:
    waiting = handover.put(Outgoing("unknown", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    handover.end()
    intake.released.set()
    await handover.wait_empty()
    assert isinstance(waiting.error, Closed)
    assert intake.reported == [], "the intake reports the record that waits in it"
