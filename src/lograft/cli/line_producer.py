"""`lograft produce`: parses lines and sends them as records."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lograft.cli.output import count
from lograft.cli.stall_watch import StallWatch
from lograft.cli.values import encode_text, raw_bytes
from lograft.client.admin import Admin, topic_resource
from lograft.client.errors import ClientError, NotAuthorized, TopicMissing
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.types import Acknowledged
from lograft.model.errors import InvalidInput

#: Topic setting: how many partitions a topic may get when records are sent to partitions that do
#: not exist yet.
_PARTITIONS_MAX: Final = "auto.create.partitions.max"
#: How long the command waits for acknowledgements after a signal.
INTERRUPTED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    #: A format of values, or "record": JSON objects with key, value, headers, partition, timestamp.
    form: str = "text"
    key: str | None = None
    #: Separates key and value in a line.
    key_separator: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    #: Values that are equal to this text become tombstones.
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
            return _parse_record(json.loads(text), options)
        return _parse_plain(text, options)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(f"line {number}: {error}") from None


def _parse_plain(text: str, options: ProduceOptions) -> Line:
    key = options.key
    if options.key_separator is not None:
        key, separator, rest = text.partition(options.key_separator)
        if not separator:
            raise InvalidInput(f"no key separator {options.key_separator!r} in {text[:40]!r}")
        text = rest
    value = (
        None
        if options.null is not None and text == options.null
        else encode_text(text, options.form)
    )
    return Line(
        None if key is None else raw_bytes(key),
        value,
        options.headers,
        options.partition,
        options.timestamp_ms,
    )


def _parse_record(fields: Mapping[str, Any], options: ProduceOptions) -> Line:
    """Builds a record from the JSON object that `lograft consume --json` prints for it."""
    headers = fields.get("headers") or {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return Line(
        _encode(fields.get("key", options.key)),
        _encode(fields.get("value")),
        options.headers + tuple((str(name), _encode(value)) for name, value in pairs),
        fields.get("partition", options.partition),
        fields.get("timestamp_ms", options.timestamp_ms),
    )


def _encode(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return encode_text(value, "hex") if value.startswith("0x") else value.encode("utf-8")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class PartitionCheck:
    """Rejects partitions that a topic does not have and cannot get. A producer would wait for such
    a partition for max.block.ms; the command reports the mistake immediately."""

    def __init__(self, admin: Admin, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        #: Number of partitions that exist or are created when a record is sent to them.
        self._count = 0

    async def check(self, partition: int) -> None:
        if 0 <= partition < self._count:
            return
        try:
            described = await self._admin.describe_topics([self._topic])
            existing = len(described[self._topic].partitions)
            limit = await self._read_partitions_max() if partition >= existing else 0
            self._count = max(existing, limit)
        except (TopicMissing, NotAuthorized):
            return  # Sending the record may create or extend the topic.
        if not 0 <= partition < self._count:
            growth = f" and grows up to {limit} on demand ({_PARTITIONS_MAX})" if limit else ""
            raise InvalidInput(
                f"partition {partition} does not exist: topic {self._topic!r} has {existing}"
                f" partitions{growth}, numbered from 0"
            )

    async def _read_partitions_max(self) -> int:
        resource = topic_resource(self._topic)
        found = await self._admin.describe_configs([resource], names=[_PARTITIONS_MAX])
        entry = found[resource].get(_PARTITIONS_MAX)
        return int(entry.value) if entry is not None and entry.value is not None else 0


class Unacknowledged(ClientError):
    """The command was interrupted before all records were acknowledged."""


class _Deliveries:
    """Sends the records of a command and keeps track of their acknowledgements."""

    def __init__(
        self, producer: Producer, topic: str, on_acknowledged: Callable[[Acknowledged], None]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._on_acknowledged = on_acknowledged
        self._pending: deque[Delivery] = deque()
        self.sent = 0

    @property
    def unacknowledged_count(self) -> int:
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
            self._on_acknowledged(self._pending.popleft().result())

    async def wait(self) -> None:
        """Waits until all records are acknowledged; raises the error of the first that failed."""
        await self._producer.flush()
        while self._pending:
            self._on_acknowledged(await self._pending.popleft())

    async def flush_and_close(self, timeout_seconds: float) -> int:
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
                self._on_acknowledged(self._pending.popleft().result())
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
    on_acknowledged: Callable[[Acknowledged], None] = lambda _acknowledged: None,
    check: Callable[[int], Awaitable[None]] | None = None,
    watch: StallWatch,
) -> int:
    """Sends a record for each text and waits for every acknowledgement; returns how many records
    there were. `check` raises for a partition that the topic cannot have. Records that were read
    before an error are flushed. After a signal (a cancellation) the wait for acknowledgements is
    short, and Unacknowledged is raised if some are missing."""
    deliveries = _Deliveries(producer, topic, on_acknowledged)
    async with watch:
        try:
            try:
                async for text in texts:
                    line = parse(text, deliveries.sent + 1)
                    if check is not None and line.partition is not None:
                        await check(line.partition)
                    watch.is_enqueuing = True
                    await deliveries.send(line)
                    watch.is_enqueuing = False
                    on_sent(deliveries.sent)
            except Exception:
                await deliveries.wait()
                raise
            await deliveries.wait()
        except asyncio.CancelledError:
            await _finish(deliveries, watch)
            raise
    return deliveries.sent


async def _finish(deliveries: _Deliveries, watch: StallWatch) -> None:
    # The record that waits for metadata or for space in the buffer will not be sent.
    dropped = 1 if watch.is_enqueuing else 0
    total = deliveries.sent + dropped
    if deliveries.unacknowledged_count:
        watch.report(
            f"interrupted: waiting up to {INTERRUPTED_SECONDS:g} s for the acknowledgements of"
            f" {count(deliveries.unacknowledged_count, 'record')};"
            " a second signal exits immediately"
        )
    lost = dropped + await deliveries.flush_and_close(INTERRUPTED_SECONDS)
    if lost:
        raise Unacknowledged(
            f"interrupted: {lost} of {count(total, 'record')} not acknowledged, possibly lost"
        )
