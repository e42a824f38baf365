"""The blocking clients: `BlockingClient` with a small client of its own, then the real ones."""

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
from lograft.client.blocking_client import (
    BlockingClient,
    SingleThreadClient,
    blocking_method,
    context_method,
    direct_method,
)
from lograft.client.consumer import Consumer
from lograft.client.errors import (
    BufferFull,
    Closed,
    InvalidTopic,
    SerializationFailed,
    TimedOut,
    WrongUse,
)
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
    async def recorded(self, name: str) -> AsyncIterator[str]:
        self.seen.append(f"begin {name}")
        try:
            yield name
            self.seen.append(f"end {name}")
        except ValueError:
            self.seen.append(f"abort {name}")
            raise


class BlockingCounter(BlockingClient[Counter]):
    def __init__(self) -> None:
        super().__init__(Counter(), "counter")

    add = blocking_method(Counter.add)
    add_as_text = blocking_method(Counter.add, lambda _client, value: f"{value}")
    current = direct_method(Counter.current)
    recorded = context_method(Counter.recorded)


def test_methods_run_in_the_client_thread_and_return_results() -> None:
    with BlockingCounter() as counter:
        assert counter.add(2, times=3) == 6
        text: str = counter.add_as_text(1)
        assert text == "7"
        assert counter.current() == 7
        assert counter.add.__doc__ == "Adds a number."
    assert counter._client.threads == {"lograft counter"}
    assert counter._client.seen == ["closed"]


def test_context_managers_are_entered_and_see_exceptions() -> None:
    with BlockingCounter() as counter:
        with counter.recorded("one") as name:
            assert name == "one"
        with pytest.raises(ValueError, match="no"), counter.recorded("two"):
            raise ValueError("no")
    assert counter._client.seen == ["begin one", "end one", "begin two", "abort two", "closed"]


def test_use_before_start_and_after_close_raises() -> None:
    counter = BlockingCounter()
    with pytest.raises(WrongUse, match="not open"):
        counter.add(1)
    with counter, pytest.raises(WrongUse, match="already"):
        counter.start()
    with pytest.raises(Closed, match="the counter is closed"):
        counter.add(1)
    with pytest.raises(Closed):
        counter.current()


def test_callback_can_neither_wait_nor_close() -> None:
    with BlockingCounter() as counter:
        for forbidden in (counter.close, lambda: counter.add(1)):
            with pytest.raises(WrongUse, match="a callback runs in the counter's thread"):
                counter.call(forbidden)
        assert counter.add(1) == 1
    assert counter._client.seen == ["closed"]


class OwnedCounter(SingleThreadClient[Counter]):
    def __init__(self) -> None:
        super().__init__(Counter(), "counter")

    add = blocking_method(Counter.add)


def test_single_thread_client_rejects_other_threads() -> None:
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
    assert "but thread 'other'" in str(raised[0])
    assert str(raised[1]) == str(raised[0])


@pytest.mark.parametrize(
    ("asynchronous", "blocking_class"),
    [(Producer, blocking.Producer), (Consumer, blocking.Consumer), (Admin, blocking.Admin)],
)
def test_blocking_clients_have_all_methods_of_the_asynchronous_ones(
    asynchronous: type[object], blocking_class: type[object]
) -> None:
    for name, _member in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_"):
            assert hasattr(blocking_class, name), name


def send_forever(producer: blocking.Producer) -> None:
    while True:
        producer.send_nowait("t", b"never sent" * 10)


def test_send_nowait_needs_known_topic_and_free_buffer_space() -> None:
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("t")
        settings: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        with blocking.Producer(**settings, buffer_memory=50_000, retry_backoff_ms=10) as producer:
            with pytest.raises(WrongUse, match="no metadata of topic 't' yet"):
                producer.send_nowait("t", b"no metadata yet")
            producer.prepare("t")
            with pytest.raises(WrongUse, match="has 1 partitions, so there is no partition 3"):
                producer.send_nowait("t", b"beyond", partition=3)
            deliveries = [producer.send_nowait("t", b"%d" % number) for number in range(300)]
            offsets = [delivery.result(timeout_ms=60_000).offset for delivery in deliveries]
            assert offsets == list(range(300))
            cluster.kill(1)
            with pytest.raises(BufferFull):
                send_forever(producer)
            producer.close(timeout_ms=0)


def test_exceptions_of_callbacks_and_partitioners_do_not_affect_other_records() -> None:
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
            rejected = producer.enqueue("no such name!", b"rejected")
            text = producer.enqueue("t", 5)
            good = [producer.enqueue("t", b"%d" % number) for number in range(3)]
            for delivery in (waits, rejected, text, *good):
                delivery.add_done_callback(raises)
            with pytest.raises(ValueError, match="my own"):
                waits.result(timeout_ms=60_000)
            with pytest.raises(InvalidTopic):
                rejected.result(timeout_ms=60_000)
            with pytest.raises(SerializationFailed):
                text.result(timeout_ms=60_000)
            assert [delivery.result(timeout_ms=60_000).offset for delivery in good] == [0, 1, 2]
            producer.flush()


def test_result_raises_after_its_timeout() -> None:
    settings: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "max_block_ms": 600_000}
    with blocking.Producer(**settings) as producer:
        delivery = producer.enqueue("t", b"no broker listens")
        with pytest.raises(TimedOut, match="still pending after 10 ms"):
            delivery.result(timeout_ms=10)
        producer.close(timeout_ms=0)
    with pytest.raises(Closed):
        delivery.result()


@pytest.mark.parametrize("ending", ["", "producer.flush()", "producer.close()"])
def test_program_that_exits_with_pending_records_logs_a_warning(ending: str) -> None:
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
