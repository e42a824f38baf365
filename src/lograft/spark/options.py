"""Options of `format("lograft")`: those of Spark's Kafka source and sink, and Lograft's own.

Spark passes option names in lower case. Unknown options are rejected with a list of the known ones,
because a misspelt `startingOffset` must not silently read from the default position.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
#: The sink writes headers if the rows have a headers column; it accepts the reader's option.
_WRITE: Final = (
    "topic",
    "includeHeaders",
    "delivery",
    "stagingTimeout",
    "txnAppId",
    "txnVersion",
)
#: Spark passes its own options along with ours.
_SPARK_OPTIONS: Final = ("checkpointLocation", "queryName", "path")

#: Client settings that the source and the sink control themselves, each with its alternative.
_REJECTED: Final = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are bytes: cast them in the query",
    "value.deserializer": "values are bytes: cast them in the query",
    "key.serializer": "keys are bytes or strings: cast them in the query",
    "value.serializer": "values are bytes or strings: cast them in the query",
    "enable.auto.commit": "the checkpoint has the offsets; set progressGroup to commit them, too",
    "interceptor.classes": "records are processed as columnar batches",
    "transactional.id": "set delivery=exactly-once, which uses its own transactions",
}

#: A hold is renewed several times before it expires, between two micro-batches.
_HOLD_MS_MIN: Final = 10_000

Delivery = Literal["at-least-once", "exactly-once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topics to read; exactly one of the fields is set."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    subscription: Subscription
    start: Position
    end: Position
    #: Whether a starting timestamp after the last record means the log end, instead of an error.
    late_start_is_latest: bool
    fails_on_data_loss: bool
    #: None means no limit.
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
    #: How long unread records are held after the query's last commit; None disables the hold.
    retention_hold_ms: int | None
    columns: tuple[str, ...]
    #: Client settings, without the prefix; some are secret.
    client: Mapping[str, str] = field(repr=False)

    @property
    def with_headers(self) -> bool:
        return HEADERS in self.columns

    @property
    def limits_triggers(self) -> bool:
        return bool(self.trigger_offsets_max or self.trigger_offsets_min or self.trigger_bytes_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    #: None: each row's topic column names its topic.
    topic: str | None
    delivery: Delivery
    #: How long staged records may wait for the driver before the broker aborts their transaction.
    staging_timeout_ms: int
    #: Application ID and version of a batch write, which make it idempotent as in Delta Lake.
    name: tuple[str, int] | None
    client: Mapping[str, str] = field(repr=False)


def read_options(given: Mapping[str, str], *, is_streaming: bool) -> ReadOptions:
    options = _OptionReader(given, _READ)
    if is_streaming:
        options.reject(_ENDS, "a stream has no end; use a batch query to read up to an offset")
    return ReadOptions(
        subscription=_subscription(options),
        start=_position(options, "starting", default=LATEST if is_streaming else EARLIEST),
        end=_position(options, "ending", default=LATEST),
        late_start_is_latest=options.choice(
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
    """Returns the columns, which Spark needs before it says whether a batch or a stream is read."""
    return _columns(_OptionReader(given, _READ))


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = _OptionReader(given, _WRITE)
    delivery: Delivery = "at-least-once"
    if options.choice("delivery", ("at-least-once", "exactly-once"), default=delivery) != delivery:
        delivery = "exactly-once"
    return WriteOptions(
        topic=options.text("topic"),
        delivery=delivery,
        staging_timeout_ms=options.duration_ms("stagingTimeout", default="15m"),
        name=_write_name(options, delivery),
        client=_producer_settings(options, delivery),
    )


def _write_name(options: "_OptionReader", delivery: Delivery) -> tuple[str, int] | None:
    name, version = options.text("txnAppId"), options.number("txnVersion", lowest=0)
    if (name is None) != (version is None):
        raise InvalidConfig("txnAppId and txnVersion must be set together")
    if name is None or version is None:
        return None
    if delivery != "exactly-once":
        raise InvalidConfig("txnAppId needs delivery to be exactly-once")
    return name, version


def _producer_settings(options: "_OptionReader", delivery: Delivery) -> dict[str, str]:
    settings = options.client_settings(ProducerSettings)
    if delivery == "exactly-once":
        # Settings that cannot be used with transactions are rejected here, not in every task.
        ProducerSettings.read(settings, transactional_id="checked")
    return settings


class _OptionReader:
    """Reads the given options, whose names are case-insensitive."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        self._known = tuple(known)
        names = {name.lower() for name in (*self._known, *_SPARK_OPTIONS)}
        for name in self._values:
            if name not in names and not name.startswith(CLIENT_PREFIX):
                raise InvalidConfig(_describe_unknown_option(name, self._known))

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
        return self.choice(name, ("true", "false"), default=str(default).lower()) == "true"

    def choice(self, name: str, choices: tuple[str, ...], *, default: str) -> str:
        text = (self.text(name) or default).lower()
        if text not in choices:
            raise InvalidConfig(f"{name} is {text!r}, but must be {' or '.join(choices)}")
        return text

    def duration_ms(self, name: str, *, default: str) -> int:
        return parse_duration_ms(name, self.text(name) or default)

    def given_names(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name.lower() in self._values]

    def reject(self, names: Iterable[str], reason: str) -> None:
        for name in self.given_names(names):
            raise InvalidConfig(f"{name} cannot be set: {reason}")

    def client_settings(self, kind: type[ClientSettings]) -> dict[str, str]:
        """Returns the validated settings of this kind of client. Settings of the other kind are
        ignored, because the same options may be passed to a query's source and sink."""
        settings = {
            name.removeprefix(CLIENT_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(CLIENT_PREFIX)
        }
        for name in settings:
            if name in _REJECTED:
                raise InvalidConfig(f"{CLIENT_PREFIX}{name} cannot be set: {_REJECTED[name]}")
        if not settings.get("bootstrap.servers"):
            raise InvalidConfig("kafka.bootstrap.servers must be set: host:port,…")
        for name in settings.keys() - _CLIENT_SETTINGS:
            raise InvalidConfig(_unknown_setting(name))
        own = {name: value for name, value in settings.items() if name in _names_of(kind)}
        kind.read(own)
        return own


def _names_of(kind: type[ClientSettings]) -> frozenset[str]:
    return kind.setting_names() | kind.unsupported.keys()


#: Every setting of Kafka's consumer and producer.
_CLIENT_SETTINGS: Final = _names_of(ConsumerSettings) | _names_of(ProducerSettings)


def _unknown_setting(name: str) -> str:
    close = get_close_matches(name, _CLIENT_SETTINGS, n=1)
    hint = f"; did you mean {CLIENT_PREFIX}{close[0]}?" if close else ""
    return f"{CLIENT_PREFIX}{name} is not a setting of Kafka's consumer or producer{hint}"


def _describe_unknown_option(name: str, known: tuple[str, ...]) -> str:
    canonical = {option.lower(): option for option in known}
    close = get_close_matches(name, canonical, n=1)
    hint = f"; did you mean {canonical[close[0]]}?" if close else ""
    allowed = ", ".join(sorted(known, key=str.lower))
    return f"{name} is not an option{hint} Allowed are {CLIENT_PREFIX}* and {allowed}"


def _subscription(options: _OptionReader) -> Subscription:
    named = options.given_names(_SUBSCRIPTIONS)
    if len(named) != 1:
        raise InvalidConfig(
            f"exactly one of {', '.join(_SUBSCRIPTIONS)} must be set"
            + (f", not {' and '.join(named)}" if named else "")
        )
    text = options.text(named[0])
    assert text is not None
    match named[0]:
        case "assign":
            return Subscription(partitions=parse_partitions("assign", text))
        case "subscribe":
            topics = sorted({name.strip() for name in text.split(",") if name.strip()})
            if not topics:
                raise InvalidConfig(f"subscribe is {text!r}, but must be a list of topics: a,b,…")
            return Subscription(topics=tuple(topics))
        case _:
            try:
                re.compile(text)
            except re.error as error:
                raise InvalidConfig(f"subscribePattern is {text!r}: {error}") from None
            return Subscription(pattern=text)


def _position(options: _OptionReader, which: str, *, default: int) -> Position:
    """If several options are given, Spark's precedence applies: timestamp, timestamps, offsets."""
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
    keyword = text.lower()
    if keyword == pointless:
        raise InvalidConfig(f"{name} is {keyword!r}: no records would ever be read")
    if keyword in ("earliest", "latest"):
        return AtEnd(EARLIEST if keyword == "earliest" else LATEST)
    offsets = parse_offsets(name, text)
    for (topic, index), offset in offsets.items():
        if (offset == EARLIEST and pointless == "earliest") or (
            offset == LATEST and pointless == "latest"
        ):
            raise InvalidConfig(
                f"{name} has {offset} for {topic}-{index}: no records would be read"
            )
    return AtOffsets(offsets)


def _minimum(options: _OptionReader) -> int | None:
    minimum = options.number("minOffsetsPerTrigger", lowest=1)
    maximum = options.number("maxOffsetsPerTrigger", lowest=1)
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidConfig(
            f"minOffsetsPerTrigger is {minimum}, but must not exceed maxOffsetsPerTrigger,"
            f" which is {maximum}"
        )
    return minimum


def _hold(options: _OptionReader) -> int | None:
    if options.text("retentionHold") is None:
        return None
    if options.text("progressGroup") is None:
        raise InvalidConfig(
            "retentionHold needs progressGroup, in whose committed offsets the hold is stored"
        )
    hold_ms = options.duration_ms("retentionHold", default="")
    if hold_ms < _HOLD_MS_MIN:
        raise InvalidConfig(f"retentionHold must be at least {_HOLD_MS_MIN // 1000} s")
    return hold_ms


def _columns(options: _OptionReader) -> tuple[str, ...]:
    default: tuple[str, ...] = COLUMNS
    if options.boolean("includeHeaders", default=False):
        default = (*COLUMNS, HEADERS)
    text = options.text("columns")
    if text is None:
        return default
    names = {column.lower(): column for column in (*COLUMNS, HEADERS)}
    selected = []
    for column in (part.strip() for part in text.split(",")):
        if column.lower() not in names:
            raise InvalidConfig(
                f"columns contains {column!r}, but allowed are {', '.join(names.values())}"
            )
        selected.append(names[column.lower()])
    if len(set(selected)) != len(selected):
        raise InvalidConfig(f"columns is {text!r}, but must contain each column once")
    return tuple(selected)


def _or_default(number: int | None, default: int) -> int:
    return default if number is None else number
