"""`lograft produce`: lines into records."""

import json
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lograft.cli.stalls import StallWatch
from lograft.cli.values import raw_bytes, typed
from lograft.client.admin import Admin, topic_resource
from lograft.client.errors import NotAuthorized, TopicMissing
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.types import Acknowledged
from lograft.model.errors import InvalidInput

#: A setting of topics that grow when somebody produces beyond their last partition: how far.
_GROWS_TO: Final = "auto.create.partitions.max"


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
    before an error or a signal are flushed."""
    pending: deque[Delivery] = deque()
    sent = 0
    async with watch:
        try:
            async for text in texts:
                line = parse(text, sent + 1)
                if check is not None and line.partition is not None:
                    await check(line.partition)
                watch.is_enqueuing = True
                delivery = await producer.enqueue(
                    topic,
                    line.value,
                    key=line.key,
                    partition=line.partition,
                    timestamp_ms=line.timestamp_ms,
                    headers=line.headers,
                )
                watch.is_enqueuing = False
                pending.append(delivery)
                sent += 1
                while pending and pending[0].done():
                    acknowledged(pending.popleft().result())
                on_sent(sent)
        finally:
            await producer.flush()
            while pending:
                acknowledged(await pending.popleft())
    return sent
