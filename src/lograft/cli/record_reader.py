"""`lograft consume`: records for eyes, for programs, and for Parquet files."""

import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lograft.cli.group_resets import parse_datetime_ms, parse_duration_ms
from lograft.cli.output import NOTHING, count
from lograft.cli.progress import progress_bar
from lograft.cli.values import as_json, loose_json, raw_bytes, shown, text_of
from lograft.client.consumer import Consumer
from lograft.client.types import ConsumerRecord, TopicPartition
from lograft.model.errors import InvalidInput
from lograft.runtime.clock import SystemClock

POLL_MS: Final = 500
_NUMBER: Final = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What a record must be; None and () ask for nothing."""

    key: str | None = None
    grep: re.Pattern[str] | None = None
    #: Fields of a JSON value by their dotted paths, and what they must be.
    where: tuple[tuple[str, Any], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def passes(self, record: ConsumerRecord) -> bool:
        if self.key is not None and record.key != raw_bytes(self.key):
            return False
        if self.grep is not None and not self.grep.search(text_of(record.value or b"") or ""):
            return False
        if self.headers:
            told = {(name, text_of(value or b"")) for name, value in record.headers}
            if not told.issuperset(self.headers):
                return False
        if self.where:
            value = loose_json(record.value)
            return all(_field(value, path) == wanted for path, wanted in self.where)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    topic: str
    #: Empty: all.
    partitions: tuple[int, ...] = ()
    #: None: where the group is, or at the beginning; what follows only, begins at the end.
    start: str | None = None
    follow: bool = False
    count_max: int | None = None
    form: str = "auto"
    with_place: bool = True
    as_json: bool = False
    #: A Parquet file instead of lines.
    output: str | None = None
    wanted: Filter = Filter()
    #: Of a group, which gives it partitions.
    is_member: bool = False


async def run(settings: Mapping[str, Any], options: ConsumeOptions) -> None:
    """Shows everything. With a group, what was shown is committed; one that follows is a member of
    it and shares the partitions with the others."""
    async with Consumer(settings) as consumer:
        seen: dict[TopicPartition, int] = {}
        if options.is_member:
            consumer.subscribe([options.topic])
            found = records(consumer, None, options.wanted, options.count_max, seen)
            await _show(found, options)
            return
        info = (await consumer.topics()).get(options.topic)
        if info is None:
            raise _no_topic(options.topic)
        there = [one.partition for one in info.partitions]
        if missing := sorted(set(options.partitions) - set(there)):
            raise InvalidInput(f"topic {options.topic} has no partition {missing[0]}")
        places = [TopicPartition(options.topic, one) for one in options.partitions or there]
        consumer.assign(places)
        for place, offset in (await _begin(consumer, places, options)).items():
            consumer.seek(place, offset)
        ends = None if options.follow else await consumer.end_offsets(places)
        if options.output is not None:
            assert ends is not None
            await _into_file(consumer, options, ends)
            return
        found = records(consumer, ends, options.wanted, options.count_max, seen)
        try:
            await _show(found, options)
        finally:
            if consumer.settings.group_id is not None:
                await consumer.commit(seen)


async def newest_of(
    settings: Mapping[str, Any], topic: str, key: bytes, partition: int | None
) -> ConsumerRecord | None:
    async with Consumer(settings) as consumer:
        if topic not in await consumer.topics():
            raise _no_topic(topic)
        return await consumer.get(topic, key, partition=partition)


def _no_topic(topic: str) -> InvalidInput:
    return InvalidInput(f"there is no topic {topic}; `lograft topics list` shows those there are")


async def _show(found: AsyncGenerator[ConsumerRecord], options: ConsumeOptions) -> None:
    async with aclosing(found):
        async for record in found:
            text = json_of(record) if options.as_json else None
            print(
                text or line_of(record, options.form, with_place=options.with_place),
                flush=options.follow,
            )
    # Flush before committing: records that were not printed must not be committed.
    sys.stdout.flush()


async def _begin(
    consumer: Consumer, places: Sequence[TopicPartition], options: ConsumeOptions
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    if consumer.settings.group_id is not None:
        # Raises if the group may not read the topic, even if there are no records to fetch.
        stands = await consumer.committed(places)
        if options.start is None:
            found = {place: one.offset for place, one in stands.items() if one is not None}
    rest = [place for place in places if place not in found]
    start = options.start or ("end" if options.follow else "beginning")
    return found | await starts_of(consumer, rest, start, SystemClock().wall_ms())


async def _into_file(
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
            raise InvalidInput(f"{text}: write it as in customer.country=FR")
        try:
            found.append((path, json.loads(value)))
        except ValueError:
            found.append((path, value))
    return tuple(found)


def _field(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


# ── where to begin and end ───────────────────────────────────────────────────────────────────


async def starts_of(
    consumer: Consumer, places: Sequence[TopicPartition], text: str, now_ms: int
) -> dict[TopicPartition, int]:
    """`beginning`, `end`, an offset, `-N` (the last N of each partition), a time, or `1h` (ago)."""
    first = await consumer.beginning_offsets(places)
    end = await consumer.end_offsets(places)
    if text == "beginning":
        return first
    if text == "end":
        return end
    if _NUMBER.fullmatch(text):
        number = int(text)
        if number < 0:
            return {place: max(first[place], end[place] + number) for place in places}
        return {place: min(max(first[place], number), end[place]) for place in places}
    found = await consumer.offsets_for_times(dict.fromkeys(places, _time_ms(text, now_ms)))
    return {place: end[place] if (one := found[place]) is None else one.offset for place in places}


def _time_ms(text: str, now_ms: int) -> int:
    try:
        return now_ms - parse_duration_ms(text)
    except InvalidInput:
        pass
    try:
        return parse_datetime_ms(text)
    except InvalidInput:
        raise InvalidInput(
            f"{text} is no place to begin: write beginning, end, an offset, -10, 1h or"
            " 2026-05-01T12:00:00Z"
        ) from None


async def records(
    consumer: Consumer,
    ends: Mapping[TopicPartition, int] | None,
    wanted: Filter,
    count_max: int | None,
    seen: dict[TopicPartition, int],
) -> AsyncGenerator[ConsumerRecord]:
    """Yields records up to the end offsets, or without an end if there are none. `seen` gets the
    offset after the last record that was shown or filtered out. Closing the generator seeks back to
    records that were fetched but not shown, so that the next consumer of the group reads them."""
    given = 0
    remaining: dict[TopicPartition, int] = {}
    try:
        while not await _has_reached(consumer, ends):
            polled = await consumer.poll(timeout_ms=POLL_MS)
            remaining |= {place: found[0].offset for place, found in polled.items()}
            for place, found in polled.items():
                for record in found:
                    if ends is not None and record.offset >= ends[place]:
                        break
                    if wanted.passes(record):
                        yield record
                        given += 1
                    seen[place] = remaining[place] = record.offset + 1
                    if count_max is not None and given >= count_max:
                        return
            remaining.clear()
    finally:
        for place in consumer.assignment() & remaining.keys():
            consumer.seek(place, remaining[place])


async def _has_reached(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> bool:
    if ends is None:
        return False
    for place, end in ends.items():
        if await consumer.position(place) < end:
            return False
    return True


# ── how it looks ─────────────────────────────────────────────────────────────────────────────


def line_of(record: ConsumerRecord, form: str, *, with_place: bool) -> str:
    value = shown(record.value, form)
    if not with_place:
        return value
    parts = [
        f"{record.topic}-{record.partition}@{record.offset}",
        moment_of(record.timestamp_ms),
        NOTHING if record.key is None else shown(record.key, "auto" if form == "json" else form),
        value,
    ]
    if record.headers:
        told = (f"{name}={shown(one)}" for name, one in record.headers)
        parts.append(f"[{', '.join(told)}]")
    return "  ".join(parts)


def json_of(record: ConsumerRecord) -> str:
    """One object in one line, as `lograft produce --format record` reads it. Headers are an object,
    or a list of pairs where one has a name that another has too."""
    pairs = [(name, as_json(one)) for name, one in record.headers]
    headers = dict(pairs)
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": as_json(record.key),
            "value": as_json(record.value),
            "headers": headers if len(headers) == len(pairs) else pairs,
        },
        ensure_ascii=False,
    )


def moment_of(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return NOTHING
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"  # after the year 9999
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


# ── Parquet ──────────────────────────────────────────────────────────────────────────────────


async def write_parquet(
    consumer: Consumer,
    path: str,
    ends: Mapping[TopicPartition, int],
    on_rows: Callable[[int], None],
    count_max: int | None,
) -> int:
    """Columns from the log's bytes to the file, without an object per record; how many rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from lograft.client.columns.decoder import SCHEMA_WITH_HEADERS

    rows = 0
    with pq.ParquetWriter(path, SCHEMA_WITH_HEADERS) as writer:
        while not await _has_reached(consumer, ends) and (count_max is None or rows < count_max):
            table = await consumer.fetch_arrow(timeout_ms=POLL_MS, with_headers=True)
            keep = None
            for place, end in ends.items():
                beyond = pc.and_(
                    pc.equal(table["partition"], place.partition),
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
