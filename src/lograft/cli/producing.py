"""`lograft produce`: lines into records."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lograft.cli.values import raw_bytes, typed
from lograft.client.producer import Producer
from lograft.client.producing.deliveries import Delivery
from lograft.client.types import Acknowledged
from lograft.model.errors import InvalidInput


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


def lines_of(texts: Iterable[str], options: ProduceOptions) -> Iterator[Line]:
    for number, text in enumerate(texts, 1):
        try:
            if options.form == "record":
                yield _record(json.loads(text), options)
            else:
                yield _plain(text, options)
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


async def produce(
    producer: Producer,
    topic: str,
    lines: Iterable[Line],
    on_sent: Callable[[int], None],
    *,
    acknowledged: Callable[[Acknowledged], None],
) -> int:
    """Sends all of them, and waits for every acknowledgement; how many there were."""
    deliveries: list[Delivery] = []
    sent = 0
    for line in lines:
        deliveries.append(
            await producer.enqueue(
                topic,
                line.value,
                key=line.key,
                partition=line.partition,
                timestamp_ms=line.timestamp_ms,
                headers=line.headers,
            )
        )
        sent += 1
        if len(deliveries) >= 10_000:
            await _settle(deliveries, acknowledged)
        on_sent(sent)
    await producer.flush()
    await _settle(deliveries, acknowledged)
    return sent


async def _settle(deliveries: list[Delivery], acknowledged: Callable[[Acknowledged], None]) -> None:
    for one in deliveries:
        acknowledged(await one)
    deliveries.clear()
