"""The faces without await, on a client that is easy to see through."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lograft.client import blocking
from lograft.client.admin import Admin
from lograft.client.consumer import Consumer
from lograft.client.errors import (
    BufferFull,
    Closed,
    InvalidTopic,
    SerializationFailed,
    TimedOut,
    WrongUse,
)
from lograft.client.faces import Face, OwnedFace, awaited, called, entered
from lograft.client.producer import Producer
from lograft.testing import Cluster


class Counter:
    def __init__(self) -> None:
        self.value = 0
        self.threads: set[str] = set()
        self.seen: list[str] = []

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def close(self) -> None:
        self.seen.append("closed")

    async def add(self, number: int, *, times: int = 1) -> int:
        """Adds a number."""
        await asyncio.sleep(0)
        self.threads.add(threading.current_thread().name)
        self.value += number * times
        return self.value

    def current(self) -> int:
        return self.value

    @asynccontextmanager
    async def noted(self, what: str) -> AsyncIterator[str]:
        self.seen.append(f"begin {what}")
        try:
            yield what
            self.seen.append(f"end {what}")
        except ValueError:
            self.seen.append(f"abort {what}")
            raise


class BlockingCounter(Face[Counter]):
    def __init__(self) -> None:
        super().__init__(Counter(), "counter")

    add = awaited(Counter.add)
    add_as_text = awaited(Counter.add, lambda _face, value: f"{value}")
    current = called(Counter.current)
    noted = entered(Counter.noted)


def test_methods_wait_for_those_of_the_client_in_its_thread() -> None:
    with BlockingCounter() as counter:
        assert counter.add(2, times=3) == 6
        text: str = counter.add_as_text(1)
        assert text == "7"
        assert counter.current() == 7
        assert counter.add.__doc__ == "Adds a number."
    assert counter._client.threads == {"lograft counter"}
    assert counter._client.seen == ["closed"]


def test_contexts_are_entered_and_hear_of_errors() -> None:
    with BlockingCounter() as counter:
        with counter.noted("one") as one:
            assert one == "one"
        with pytest.raises(ValueError, match="no"), counter.noted("two"):
            raise ValueError("no")
    assert counter._client.seen == ["begin one", "end one", "begin two", "abort two", "closed"]


def test_it_says_when_it_cannot_be_used() -> None:
    counter = BlockingCounter()
    with pytest.raises(WrongUse, match="not open"):
        counter.add(1)
    with counter, pytest.raises(WrongUse, match="already"):
        counter.start()
    with pytest.raises(Closed, match="the counter is closed"):
        counter.add(1)
    with pytest.raises(Closed):
        counter.current()


def test_a_callback_can_neither_wait_nor_close_and_does_no_harm_by_trying() -> None:
    with BlockingCounter() as counter:
        for forbidden in (counter.close, lambda: counter.add(1)):
            with pytest.raises(WrongUse, match="a callback runs in the counter's thread"):
                counter.call(forbidden)
        assert counter.add(1) == 1
    assert counter._client.seen == ["closed"]


class OwnedCounter(OwnedFace[Counter]):
    def __init__(self) -> None:
        super().__init__(Counter(), "counter")

    add = awaited(Counter.add)


def test_what_belongs_to_a_thread_says_so_to_others() -> None:
    raised: list[BaseException] = []

    def use(counter: OwnedCounter) -> None:
        try:
            counter.add(1)
        except WrongUse as error:
            raised.append(error)
        try:
            counter.close()
        except WrongUse as error:
            raised.append(error)

    with OwnedCounter() as counter:
        assert counter.add(1) == 1
        other = threading.Thread(target=use, args=(counter,), name="other")
        other.start()
        other.join()
        assert counter.add(1) == 2
    assert "belongs to thread 'MainThread'" in str(raised[0])
    assert "this is thread 'other'" in str(raised[0])
    assert str(raised[1]) == str(raised[0])


@pytest.mark.parametrize(
    ("asynchronous", "face"),
    [(Producer, blocking.Producer), (Consumer, blocking.Consumer), (Admin, blocking.Admin)],
)
def test_faces_have_the_words_of_the_asynchronous_clients(
    asynchronous: type[object], face: type[object]
) -> None:
    for name, _member in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_"):
            assert hasattr(face, name), name


def send_for_ever(producer: blocking.Producer) -> None:
    while True:
        producer.send_nowait("t", b"nobody takes it" * 10)


def test_records_that_nobody_waits_for() -> None:
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("t")
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        with blocking.Producer(**settings, buffer_memory=50_000, retry_backoff_ms=10) as producer:
            with pytest.raises(WrongUse, match="topic 't' is not known yet"):
                producer.send_nowait("t", b"too soon")
            producer.prepare("t")
            with pytest.raises(WrongUse, match="has 1 partitions, so there is no partition 3"):
                producer.send_nowait("t", b"beyond", partition=3)
            deliveries = [producer.send_nowait("t", b"%d" % number) for number in range(300)]
            offsets = [delivery.result(timeout_ms=60_000).offset for delivery in deliveries]
            assert offsets == list(range(300))
            cluster.kill(1)
            with pytest.raises(BufferFull):
                send_for_ever(producer)
            producer.close(timeout_ms=0)


def test_callbacks_that_raise_break_nothing() -> None:
    def raises(delivery: blocking.Delivery) -> None:
        raise asyncio.CancelledError if delivery.done() else AssertionError

    def partitioner(topic: str, key: bytes | None, partition_count: int) -> int:
        if key == b"bad":
            raise ValueError("my own")
        return 0

    with Cluster(nodes=1) as cluster:
        cluster.create_topic("t")
        with blocking.Producer(
            bootstrap_servers=cluster.bootstrap_servers, partitioner_class=partitioner
        ) as producer:
            waits = producer.enqueue("t", b"the topic is not known yet", key=b"bad")
            refused = producer.enqueue("no such name!", b"refused")
            text = producer.enqueue("t", 5)
            good = [producer.enqueue("t", b"%d" % number) for number in range(3)]
            for one in (waits, refused, text, *good):
                one.add_done_callback(raises)
            with pytest.raises(ValueError, match="my own"):
                waits.result(timeout_ms=60_000)
            with pytest.raises(InvalidTopic):
                refused.result(timeout_ms=60_000)
            with pytest.raises(SerializationFailed):
                text.result(timeout_ms=60_000)
            assert [one.result(timeout_ms=60_000).offset for one in good] == [0, 1, 2]
            producer.flush()


def test_who_waits_for_a_delivery_waits_no_longer_than_said() -> None:
    settings: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "max_block_ms": 600_000}
    with blocking.Producer(**settings) as producer:
        delivery = producer.enqueue("t", b"nobody is there")
        with pytest.raises(TimedOut, match="no known fate after 10 ms"):
            delivery.result(timeout_ms=10)
        producer.close(timeout_ms=0)
    with pytest.raises(Closed):
        delivery.result()


@pytest.mark.parametrize("ending", ["", "producer.flush()", "producer.close()"])
def test_a_program_that_ends_with_records_under_way_is_told(ending: str) -> None:
    program = f"""
import sys
from lograft.client.blocking import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.start()
producer.prepare("t")
producer.enqueue("t", b"v")
{ending}
"""
    with Cluster() as cluster:
        cluster.create_topic("t")
        ended = subprocess.run(
            [sys.executable, "-c", program, cluster.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert ("without closing its producer" in ended.stderr) == (not ending), ended.stderr
