"""The options of `format("lograft")`: those of Spark's Kafka source and sink, and some more.

Spark hands options over with names in lower case. What is not known is refused, with the names that
are: a misspelt `startingOffset` must not read from somewhere else.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from lograft.client import ClientSettings, ConsumerSettings, ProducerSettings
from lograft.model.errors import InvalidConfig
from lograft.model.types import TopicPartition
from lograft.spark.durations import parse_duration_ms
from lograft.spark.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTime,
    AtTimes,
    Position,
    parse_offsets,
    parse_partitions,
)

CLIENT_PREFIX: Final = "kafka."
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"

_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_ONLY_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "progressGroup",
    "retentionHold",
)
_READ: Final = (
    *_SUBSCRIPTIONS,
    *_STARTS,
    *_ENDS,
    *_ONLY_STREAMS,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "columns",
)
#: Headers are written where there is a column of them; the option is a reader's, and may be set.
_WRITE: Final = (
    "topic",
    "includeHeaders",
    "delivery",
    "stagingTimeout",
    "txnAppId",
    "txnVersion",
)
#: Spark puts its own options among ours.
_SPARKS: Final = ("checkpointLocation", "queryName", "path")

#: Settings that would change what the source or the sink is; each with what to do instead.
_REFUSED: Final = {
    "auto.offset.reset": "say where to begin with startingOffsets",
    "key.deserializer": "keys are bytes: cast them in the query",
    "value.deserializer": "values are bytes: cast them in the query",
    "key.serializer": "keys are bytes or strings: cast them in the query",
    "value.serializer": "values are bytes or strings: cast them in the query",
    "enable.auto.commit": "progress is in the checkpoint; name a progressGroup to see it",
    "interceptor.classes": "records go through in columns, never one by one",
    "transactional.id": "delivery=exactly-once makes transactions of its own",
}

#: A hold is renewed a few times in its life, between two micro-batches.
_HOLD_MS_MIN: Final = 10_000

Delivery = Literal["at-least-once", "exactly-once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Exactly one of them says something."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    subscription: Subscription
    start: Position
    end: Position
    #: A time after the last record: end there (True), or fail.
    late_start_is_latest: bool
    fails_on_data_loss: bool
    #: None: no limit.
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms_max: int
    trigger_bytes_max: int | None
    partitions_min: int | None
    partition_records_max: int | None
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int
    progress_group: str | None
    #: How long unread records stay held after the query was last seen; None: they are not.
    retention_hold_ms: int | None
    columns: tuple[str, ...]
    #: For the client, without their prefix.
    client: Mapping[str, str]

    @property
    def with_headers(self) -> bool:
        return HEADERS in self.columns

    @property
    def limits_triggers(self) -> bool:
        return bool(self.trigger_offsets_max or self.trigger_offsets_min or self.trigger_bytes_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    #: None: each row names its topic.
    topic: str | None
    delivery: Delivery
    #: How long staged records may wait for the driver before the broker throws them away.
    staging_timeout_ms: int
    #: Names a write of a table, so that it is known when it is asked for again; as in Delta Lake.
    name: tuple[str, int] | None
    client: Mapping[str, str]


def read_options(given: Mapping[str, str], *, is_streaming: bool) -> ReadOptions:
    options = _Given(given, _READ)
    if is_streaming:
        options.refuse(_ENDS, "a stream has no end; read a batch to stop somewhere")
    return ReadOptions(
        subscription=_subscription(options),
        start=_position(options, "starting", default=LATEST if is_streaming else EARLIEST),
        end=_position(options, "ending", default=LATEST),
        late_start_is_latest=options.one_of(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), default="error"
        )
        == "latest",
        fails_on_data_loss=options.boolean("failOnDataLoss", default=True),
        trigger_offsets_max=options.number("maxOffsetsPerTrigger", lowest=1),
        trigger_offsets_min=_minimum(options),
        trigger_delay_ms_max=options.duration_ms("maxTriggerDelay", default="15m"),
        trigger_bytes_max=options.number("maxBytesPerTrigger", lowest=1),
        partitions_min=options.number("minPartitions", lowest=1),
        partition_records_max=options.number("maxRecordsPerPartition", lowest=1),
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs", lowest=1) or 120_000,
        offset_retries=_or_default(options.number("fetchOffset.numRetries", lowest=0), 3),
        offset_retry_ms=_or_default(options.number("fetchOffset.retryIntervalMs", lowest=0), 10),
        progress_group=options.text("progressGroup"),
        retention_hold_ms=_hold(options),
        columns=_columns(options),
        client=options.client_settings(ConsumerSettings),
    )


def read_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """All that must be known before it is known whether a batch or a stream is read."""
    return _columns(_Given(given, _READ))


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = _Given(given, _WRITE)
    delivery: Delivery = "at-least-once"
    if options.one_of("delivery", ("at-least-once", "exactly-once"), default=delivery) != delivery:
        delivery = "exactly-once"
    return WriteOptions(
        topic=options.text("topic"),
        delivery=delivery,
        staging_timeout_ms=options.duration_ms("stagingTimeout", default="15m"),
        name=_write_name(options, delivery),
        client=_producer_settings(options, delivery),
    )


def _write_name(options: "_Given", delivery: Delivery) -> tuple[str, int] | None:
    name, version = options.text("txnAppId"), options.number("txnVersion", lowest=0)
    if (name is None) != (version is None):
        raise InvalidConfig("txnAppId and txnVersion name a write together: set both or none")
    if name is None or version is None:
        return None
    if delivery != "exactly-once":
        raise InvalidConfig("txnAppId needs delivery to be exactly-once")
    return name, version


def _producer_settings(options: "_Given", delivery: Delivery) -> dict[str, str]:
    settings = options.client_settings(ProducerSettings)
    if delivery == "exactly-once":
        # Found here, and not by every task: what cannot be part of a transaction.
        ProducerSettings.read(settings, transactional_id="checked")
    return settings


class _Given:
    """The options that were given, by their names in lower case."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        self._known = tuple(known)
        names = {name.lower() for name in (*self._known, *_SPARKS)}
        for name in self._values:
            if name not in names and not name.startswith(CLIENT_PREFIX):
                raise InvalidConfig(_unknown(name, self._known))

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise InvalidConfig(f"{name} is empty")
        return value.strip()

    def number(self, name: str, *, lowest: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?\d+", text) or int(text) < lowest:
            raise InvalidConfig(f"{name} is {text!r}, but must be a number of at least {lowest}")
        return int(text)

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), default=str(default).lower()) == "true"

    def one_of(self, name: str, choices: tuple[str, ...], *, default: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in choices:
            raise InvalidConfig(f"{name} is {text!r}, but must be {' or '.join(choices)}")
        return text

    def duration_ms(self, name: str, *, default: str) -> int:
        return parse_duration_ms(name, self.text(name) or default)

    def named(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name.lower() in self._values]

    def refuse(self, names: Iterable[str], reason: str) -> None:
        for name in self.named(names):
            raise InvalidConfig(f"{name} cannot be set here: {reason}")

    def client_settings(self, kind: type[ClientSettings]) -> dict[str, str]:
        """Those of this kind of client, each checked. Those of the other kind are passed over: one
        set of options may serve a query's source and its sink."""
        settings = {
            name.removeprefix(CLIENT_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(CLIENT_PREFIX)
        }
        for name in settings:
            if name in _REFUSED:
                raise InvalidConfig(f"{CLIENT_PREFIX}{name} cannot be set: {_REFUSED[name]}")
        if not settings.get("bootstrap.servers"):
            raise InvalidConfig("kafka.bootstrap.servers must be set: host:port,…")
        for name in settings.keys() - _CLIENT_SETTINGS:
            raise InvalidConfig(_unknown_setting(name))
        own = {name: value for name, value in settings.items() if name in _names_of(kind)}
        kind.read(own)
        return own


def _names_of(kind: type[ClientSettings]) -> frozenset[str]:
    return kind.setting_names() | kind.unsupported.keys()


#: Every name that means something to one of Kafka's clients.
_CLIENT_SETTINGS: Final = _names_of(ConsumerSettings) | _names_of(ProducerSettings)


def _unknown_setting(name: str) -> str:
    close = get_close_matches(name, _CLIENT_SETTINGS, n=1)
    hint = f"; did you mean {CLIENT_PREFIX}{close[0]}?" if close else ""
    return f"{CLIENT_PREFIX}{name} is not a setting of Kafka's consumer or producer{hint}"


def _unknown(name: str, known: tuple[str, ...]) -> str:
    canonical = {one.lower(): one for one in known}
    close = get_close_matches(name, canonical, n=1)
    hint = f"; did you mean {canonical[close[0]]}?" if close else ""
    allowed = ", ".join(sorted(known, key=str.lower))
    return f"{name} is not an option{hint} Allowed are {CLIENT_PREFIX}* and {allowed}"


def _subscription(options: _Given) -> Subscription:
    named = options.named(_SUBSCRIPTIONS)
    if len(named) != 1:
        raise InvalidConfig(
            f"one of {', '.join(_SUBSCRIPTIONS)} must be set, and one only"
            + (f", not {' and '.join(named)}" if named else "")
        )
    text = options.text(named[0])
    assert text is not None
    match named[0]:
        case "assign":
            return Subscription(partitions=parse_partitions("assign", text))
        case "subscribe":
            topics = sorted({one.strip() for one in text.split(",") if one.strip()})
            if not topics:
                raise InvalidConfig(f"subscribe is {text!r}, but must be topics: a,b,…")
            return Subscription(topics=tuple(topics))
        case _:
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidConfig(f"subscribePattern is {text!r}: {error}") from None
            return Subscription(pattern=text)


def _position(options: _Given, which: str, *, default: int) -> Position:
    """Where several are given, Spark's order holds: timestamp, timestamps, offsets."""
    timestamp = options.number(f"{which}Timestamp", lowest=0)
    if timestamp is not None:
        return AtTime(timestamp)
    name = f"{which}OffsetsByTimestamp"
    text = options.text(name)
    if text is not None:
        return AtTimes(parse_offsets(name, text, lowest=0))
    name = f"{which}Offsets"
    text = options.text(name)
    if text is None:
        return AtEnd(default)
    pointless = {"ending": "earliest", "starting": "latest" if default == EARLIEST else ""}[which]
    word = text.lower()
    if word == pointless:
        raise InvalidConfig(f"{name} is {word!r}: nothing would ever be read")
    if word in ("earliest", "latest"):
        return AtEnd(EARLIEST if word == "earliest" else LATEST)
    offsets = parse_offsets(name, text)
    for (topic, index), offset in offsets.items():
        if (offset == EARLIEST and pointless == "earliest") or (
            offset == LATEST and pointless == "latest"
        ):
            raise InvalidConfig(f"{name} has {offset} for {topic}-{index}: nothing would be read")
    return AtOffsets(offsets)


def _minimum(options: _Given) -> int | None:
    minimum = options.number("minOffsetsPerTrigger", lowest=1)
    maximum = options.number("maxOffsetsPerTrigger", lowest=1)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidConfig(
            f"minOffsetsPerTrigger is {minimum}, but must not be above maxOffsetsPerTrigger,"
            f" which is {maximum}"
        )
    return minimum


def _hold(options: _Given) -> int | None:
    if options.text("retentionHold") is None:
        return None
    if options.text("progressGroup") is None:
        raise InvalidConfig("retentionHold needs a progressGroup: the hold is in its offsets")
    hold_ms = options.duration_ms("retentionHold", default="")
    if hold_ms < _HOLD_MS_MIN:
        raise InvalidConfig(f"retentionHold must be at least {_HOLD_MS_MIN // 1000} s")
    return hold_ms


def _columns(options: _Given) -> tuple[str, ...]:
    everything: tuple[str, ...] = COLUMNS
    if options.boolean("includeHeaders", default=False):
        everything = (*COLUMNS, HEADERS)
    text = options.text("columns")
    if text is None:
        return everything
    names = {one.lower(): one for one in (*COLUMNS, HEADERS)}
    chosen = []
    for one in (part.strip() for part in text.split(",")):
        if one.lower() not in names:
            raise InvalidConfig(
                f"columns names {one!r}, but must be some of {', '.join(names.values())}"
            )
        chosen.append(names[one.lower()])
    if len(set(chosen)) != len(chosen):
        raise InvalidConfig(f"columns is {text!r}, but must name each column once")
    return tuple(chosen)


def _or_default(number: int | None, default: int) -> int:
    return default if number is None else number
