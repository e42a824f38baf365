"""`lograft consume`: reads records and prints them, or writes them to a Parquet file."""

import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lograft.cli.group_resets import parse_datetime_ms, parse_duration_ms
from lograft.cli.interrupts import output_guard
from lograft.cli.output import NOTHING, count, warn
from lograft.cli.progress import progress_bar
from lograft.cli.stall_watch import watch_consumer
from lograft.cli.values import format_bytes, parse_json, raw_bytes, text_of, to_json
from lograft.client.consumer import Consumer
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.model.errors import InvalidInput
from lograft.runtime.clock import SystemClock

POLL_MS: Final = 500
_NUMBER: Final = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions that a record must meet; None and () stand for no condition."""

    key: str | None = None
    grep: re.Pattern[str] | None = None
    #: (dotted path of a field of a JSON value, the value that it must have)
    where: tuple[tuple[str, Any], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def matches(self, record: ConsumerRecord) -> bool:
        if self.key is not None and record.key != raw_bytes(self.key):
            return False
        if self.grep is not None and not self.grep.search(text_of(record.value or b"") or ""):
            return False
        if self.headers:
            headers = {(name, text_of(value or b"")) for name, value in record.headers}
            if not headers.issuperset(self.headers):
                return False
        if self.where:
            value = parse_json(record.value)
            return all(_field_of(value, path) == expected for path, expected in self.where)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    topic: str
    #: Empty for all partitions.
    partitions: tuple[int, ...] = ()
    #: None: the group's committed offsets; without them the beginning, or the end with `follow`.
    start: str | None = None
    follow: bool = False
    count_max: int | None = None
    form: str = "auto"
    with_metadata: bool = True
    as_json: bool = False
    #: The path of a Parquet file to write instead of printing the records.
    output: str | None = None
    filter: Filter = Filter()
    #: Whether the consumer joins the group, which assigns its partitions.
    is_member: bool = False


async def run(settings: Mapping[str, Any], options: ConsumeOptions) -> None:
    """Reads the records and prints them or writes them to a file. With a group, the offsets of the
    printed records are committed."""
    async with Consumer(settings) as consumer:
        if options.is_member:
            consumer.subscribe([options.topic])
            async with watch_consumer(consumer, options.topic, (), warn):
                found = read_records(consumer, None, options.filter, options.count_max, {})
                await _print_records(found, options)
            return
        info = (await consumer.topics()).get(options.topic)
        if info is None:
            raise _missing_topic(options.topic)
        existing = [partition.partition for partition in info.partitions]
        if missing := sorted(set(options.partitions) - set(existing)):
            raise InvalidInput(f"topic {options.topic} has no partition {missing[0]}")
        indexes = options.partitions or existing
        partitions = [TopicPartition(options.topic, index) for index in indexes]
        consumer.assign(partitions)
        async with watch_consumer(consumer, options.topic, indexes, warn):
            await _read_assigned(consumer, partitions, options)


async def _read_assigned(
    consumer: Consumer, partitions: Sequence[TopicPartition], options: ConsumeOptions
) -> None:
    for partition, offset in (await _start_offsets(consumer, partitions, options)).items():
        consumer.seek(partition, offset)
    ends = None if options.follow else await consumer.end_offsets(partitions)
    if options.output is not None:
        assert ends is not None
        await _write_file(consumer, options, ends)
        return
    seen: dict[TopicPartition, int] = {}
    found = read_records(consumer, ends, options.filter, options.count_max, seen)
    try:
        await _print_records(found, options)
    finally:
        if consumer.settings.group_id is not None:
            await consumer.commit(seen)


async def newest_of(
    settings: Mapping[str, Any], topic: str, key: bytes, partition: int | None
) -> ConsumerRecord | None:
    async with Consumer(settings) as consumer:
        if topic not in await consumer.topics():
            raise _missing_topic(topic)
        return await consumer.get(topic, key, partition=partition)


def _missing_topic(topic: str) -> InvalidInput:
    return InvalidInput(f"topic {topic} does not exist: `lograft topics list` shows all topics")


async def _print_records(found: AsyncGenerator[ConsumerRecord], options: ConsumeOptions) -> None:
    async with aclosing(found):
        async for record in found:
            text = json_of(record) if options.as_json else None
            line = text or line_of(record, options.form, with_metadata=options.with_metadata)
            with output_guard:
                print(line, flush=options.follow)
    # Flush before committing: records that were not printed must not be committed.
    with output_guard:
        sys.stdout.flush()


async def _start_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], options: ConsumeOptions
) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    if consumer.settings.group_id is not None:
        # Raises if the group may not read the topic, even if there are no records to fetch.
        committed = await consumer.committed(partitions)
        if options.start is None:
            offsets = {
                partition: position.offset
                for partition, position in committed.items()
                if position is not None
            }
    rest = [partition for partition in partitions if partition not in offsets]
    start = options.start or ("end" if options.follow else "beginning")
    return offsets | await find_offsets(consumer, rest, start, SystemClock().wall_ms())


async def _write_file(
    consumer: Consumer, options: ConsumeOptions, ends: Mapping[TopicPartition, int]
) -> None:
    assert options.output is not None
    with progress_bar("writing", 0) as progress:
        rows = await write_parquet(
            consumer,
            options.output,
            ends,
            lambda rows: progress(rows, f"{rows:,} records"),
            options.count_max,
        )
    print(f"{count(rows, 'record')} written to {options.output}.")


def parse_where(texts: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    found = []
    for text in texts:
        path, sign, value = text.partition("=")
        if not path or not sign:
            raise InvalidInput(
                f"invalid condition {text}: write FIELD=VALUE, such as customer.country=FR"
            )
        try:
            found.append((path, json.loads(value)))
        except ValueError:
            found.append((path, value))
    return tuple(found)


def _field_of(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


# ── start and end offsets ────────────────────────────────────────────────────────────────────


async def find_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], text: str, now_ms: int
) -> dict[TopicPartition, int]:
    """Returns the offsets of a position: `beginning`, `end`, an offset, `-N` (the last N records of
    each partition), a time, or `1h` (ago)."""
    first = await consumer.beginning_offsets(partitions)
    end = await consumer.end_offsets(partitions)
    if text == "beginning":
        return first
    if text == "end":
        return end
    if _NUMBER.fullmatch(text):
        number = int(text)
        if number < 0:
            return {
                partition: max(first[partition], end[partition] + number)
                for partition in partitions
            }
        return {
            partition: min(max(first[partition], number), end[partition])
            for partition in partitions
        }
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, _time_ms(text, now_ms)))
    return {
        partition: end[partition] if (position := found[partition]) is None else position.offset
        for partition in partitions
    }


def _time_ms(text: str, now_ms: int) -> int:
    try:
        return now_ms - parse_duration_ms(text)
    except InvalidInput:
        pass
    try:
        return parse_datetime_ms(text)
    except InvalidInput:
        raise InvalidInput(
            f"invalid position {text}: write beginning, end, an offset, -10, 1h or"
            " 2026-05-01T12:00:00Z"
        ) from None


async def read_records(
    consumer: Consumer,
    ends: Mapping[TopicPartition, int] | None,
    filter: Filter,
    count_max: int | None,
    seen: dict[TopicPartition, int],
) -> AsyncGenerator[ConsumerRecord]:
    """Yields records up to the end offsets, or without an end if there are none. `seen` gets the
    offset after the last record that was shown or filtered out. Closing the generator seeks back to
    records that were fetched but not shown, so that the next consumer of the group reads them."""
    yielded = 0
    remaining: dict[TopicPartition, int] = {}
    try:
        while not await _has_reached(consumer, ends):
            polled = await consumer.poll(timeout_ms=POLL_MS)
            remaining |= {partition: found[0].offset for partition, found in polled.items()}
            for partition, found in polled.items():
                for record in found:
                    if ends is not None and record.offset >= ends[partition]:
                        break
                    if filter.matches(record):
                        yield record
                        yielded += 1
                    seen[partition] = remaining[partition] = record.offset + 1
                    if count_max is not None and yielded >= count_max:
                        return
            remaining.clear()
    finally:
        for partition in consumer.assignment() & remaining.keys():
            consumer.seek(partition, remaining[partition])


async def _has_reached(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    for partition, end in ends.items():
        if await consumer.position(partition) < end:
            return False
    return True


# ── formatting ───────────────────────────────────────────────────────────────────────────────


def line_of(record: ConsumerRecord, form: str, *, with_metadata: bool) -> str:
    text = format_bytes(record.value, form)
    if not with_metadata:
        return text
    parts = [
        f"{record.topic}-{record.partition}@{record.offset}",
        format_timestamp(record.timestamp_ms),
        NOTHING
        if record.key is None
        else format_bytes(record.key, "auto" if form == "json" else form),
        text,
    ]
    if record.headers:
        headers = (f"{name}={format_bytes(value)}" for name, value in record.headers)
        parts.append(f"[{', '.join(headers)}]")
    return "  ".join(parts)


def json_of(record: ConsumerRecord) -> str:
    """Formats a record as a line of JSON, which `lograft produce --format record` can read. Headers
    are an object, or a list of pairs if a name occurs more than once."""
    pairs = [(name, to_json(value)) for name, value in record.headers]
    headers = dict(pairs)
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": to_json(record.key),
            "value": to_json(record.value),
            "headers": headers if len(headers) == len(pairs) else pairs,
        },
        ensure_ascii=False,
    )


def format_timestamp(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # outside the range of datetime
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


# ── Parquet ──────────────────────────────────────────────────────────────────────────────────


async def write_parquet(
    consumer: Consumer,
    path: str,
    ends: Mapping[TopicPartition, int],
    on_rows: Callable[[int], None],
    count_max: int | None,
) -> int:
    """Writes records to a Parquet file as columns, without an object per record; returns the number
    of rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from lograft.client.columns.decoder import SCHEMA_WITH_HEADERS

    rows = 0
    with pq.ParquetWriter(path, SCHEMA_WITH_HEADERS) as writer:
        while not await _has_reached(consumer, ends) and (count_max is None or rows < count_max):
            table = await consumer.fetch_arrow(timeout_ms=POLL_MS, with_headers=True)
            keep = None
            for partition, end in ends.items():
                beyond = pc.and_(
                    pc.equal(table["partition"], partition.partition),
                    pc.greater_equal(table["offset"], end),
                )
                keep = pc.invert(beyond) if keep is None else pc.and_(keep, pc.invert(beyond))
            table = table.filter(keep)
            if count_max is not None:
                table = table.slice(0, count_max - rows)
            if table.num_rows:
                writer.write_table(table)
            rows += table.num_rows
            on_rows(rows)
    return rows
