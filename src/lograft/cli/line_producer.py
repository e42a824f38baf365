"""`lograft produce`: lines into records."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lograft.cli.output import count
from lograft.cli.stall_watch import StallWatch
from lograft.cli.values import raw_bytes, typed
from lograft.client.admin import Admin, topic_resource
from lograft.client.errors import ClientError, NotAuthorized, TopicMissing
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.types import Acknowledged
from lograft.model.errors import InvalidInput

#: A setting of topics that grow when somebody produces beyond their last partition: how far.
_GROWS_TO: Final = "auto.create.partitions.max"
#: How long a command that a signal ends waits for acknowledgements.
INTERRUPTED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    #: A format of values, or "record": JSON objects with key, value, headers, partition, time.
    form: str = "text"
    key: str | None = None
    #: Between key and value in a line.
    key_separator: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    #: A line that is this text is a tombstone.
    null: str | None = None


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


def parse_line(text: str, number: int, options: ProduceOptions) -> Line:
    try:
        if options.form == "record":
            return _record(json.loads(text), options)
        return _plain(text, options)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"line {number}: {error}") from None


def _plain(text: str, options: ProduceOptions) -> Line:
    key = options.key
    if options.key_separator is not None:
        key, separator, rest = text.partition(options.key_separator)
        if not separator:
            raise InvalidInput(
                f"there is no {options.key_separator!r} between a key and a value in {text[:40]!r}"
            )
        text = rest
    value = None if options.null is not None and text == options.null else typed(text, options.form)
    return Line(
        None if key is None else raw_bytes(key),
        value,
        options.headers,
        options.partition,
        options.timestamp_ms,
    )


def _record(read: Mapping[str, Any], options: ProduceOptions) -> Line:
    """As `lograft consume --json` writes them."""
    headers = read.get("headers") or {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Line(
        _encoded(read.get("key", options.key)),
        _encoded(read.get("value")),
        options.headers + tuple((str(name), _encoded(one)) for name, one in pairs),
        read.get("partition", options.partition),
        read.get("timestamp_ms", options.timestamp_ms),
    )


def _encoded(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return typed(value, "hex") if value.startswith("0x") else value.encode("utf-8")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class Places:
    """The partitions that records for a topic may name. A producer would wait max.block.ms for one
    that is not there; who types its number wants to hear at once."""

    def __init__(self, admin: Admin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        #: So many are there, or will be as soon as somebody produces to them.
        self._count = 0

    async def check(self, partition: int) -> None:
        if 0 <= partition < self._count:
            return
        try:
            described = await self._admin.describe_topics([self._topic])
            there = len(described[self._topic].partitions)
            limit = await self._grows_to() if partition >= there else 0
            self._count = max(there, limit)
        except (TopicMissing, NotAuthorized):
            return  # It may be created, or made larger, by what is sent.
        if not 0 <= partition < self._count:
            growth = f" and grows to {limit} on demand ({_GROWS_TO})" if limit else ""
            raise InvalidInput(
                f"topic {self._topic!r} has {there} partitions{growth}, numbered from 0, so there"
                f" is no partition {partition}"
            )

    async def _grows_to(self) -> int:
        resource = topic_resource(self._topic)
        found = await self._admin.describe_configs([resource], names=[_GROWS_TO])
        entry = found[resource].get(_GROWS_TO)
        return int(entry.value) if entry is not None and entry.value is not None else 0


class Unacknowledged(ClientError):
    """The command was interrupted before all records were acknowledged."""


class _Sending:
    """The records of one command, from their lines to their acknowledgements."""

    def __init__(
        self, producer: Producer, topic: str, acknowledged: Callable[[Acknowledged], None]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._acknowledged = acknowledged
        self._pending: deque[Delivery] = deque()
        self.sent = 0

    @property
    def unacknowledged(self) -> int:
        return sum(not delivery.done() for delivery in self._pending)

    async def send(self, line: Line) -> None:
        delivery = await self._producer.enqueue(
            self._topic,
            line.value,
            key=line.key,
            partition=line.partition,
            timestamp_ms=line.timestamp_ms,
            headers=line.headers,
        )
        self._pending.append(delivery)
        self.sent += 1
        while self._pending and self._pending[0].done():
            self._acknowledged(self._pending.popleft().result())

    async def wait(self) -> None:
        """Waits until all records are acknowledged; raises the error of the first that failed."""
        await self._producer.flush()
        while self._pending:
            self._acknowledged(await self._pending.popleft())

    async def end(self, timeout_seconds: float) -> int:
        """Flushes for at most this long and closes the producer; returns how many records were
        not acknowledged."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._producer.flush()
        except TimeoutError:
            pass
        await self._producer.close(timeout_ms=0)
        lost = 0
        while self._pending:
            try:
                self._acknowledged(self._pending.popleft().result())
            except ClientError:
                lost += 1
        return lost


async def produce(
    producer: Producer,
    topic: str,
    texts: AsyncIterable[str],
    parse: Callable[[str, int], Line],
    *,
    on_sent: Callable[[int], None] = lambda _sent: None,
    acknowledged: Callable[[Acknowledged], None] = lambda _one: None,
    check: Callable[[int], Awaitable[None]] | None = None,
    watch: StallWatch,
) -> int:
    """Sends a record for each text and waits for every acknowledgement; returns how many records
    there were. `check` raises for a partition that the topic cannot have. Records that were read
    before an error are flushed. After a signal (a cancellation) the wait for acknowledgements is
    short, and Unacknowledged is raised if some are missing."""
    sending = _Sending(producer, topic, acknowledged)
    async with watch:
        try:
            try:
                async for text in texts:
                    line = parse(text, sending.sent + 1)
                    if check is not None and line.partition is not None:
                        await check(line.partition)
                    watch.is_enqueuing = True
                    await sending.send(line)
                    watch.is_enqueuing = False
                    on_sent(sending.sent)
            except Exception:
                await sending.wait()
                raise
            await sending.wait()
        except asyncio.CancelledError:
            await _end(sending, watch)
            raise
    return sending.sent


async def _end(sending: _Sending, watch: StallWatch) -> None:
    # The record that waits for metadata or for space in the buffer will not be sent.
    dropped = 1 if watch.is_enqueuing else 0
    total = sending.sent + dropped
    if sending.unacknowledged:
        watch.say(
            f"interrupted: waiting up to {INTERRUPTED_SECONDS:g} s for the acknowledgements of"
            f" {count(sending.unacknowledged, 'record')}; a second signal exits immediately"
        )
    lost = dropped + await sending.end(INTERRUPTED_SECONDS)
    if lost:
        raise Unacknowledged(
            f"interrupted: {lost} of {count(total, 'record')} not acknowledged, possibly lost"
        )
