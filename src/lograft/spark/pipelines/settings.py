"""What a pipeline's file says, as typed values. Pure: text in, values or a sentence out.

[source]
bootstrap = "localhost:9092"
topics = ["orders"]

[spark]
master = "local[*]"

[lake]
folder = "./lake/orders"
"""

import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from lograft.model.errors import InvalidConfig

T = TypeVar("T")

_NOUNS: Final[Mapping[Any, str]] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    bootstrap: str
    topics: tuple[str, ...]
    #: earliest, latest, offsets as JSON, or a time in ms.
    starting: str | int = "earliest"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    #: A consumer group that shows how far the pipeline is.
    progress_group: str | None = None
    #: How long that group's unread records are held after the pipeline was last seen: "1h".
    retention_hold: str | None = None
    fail_on_data_loss: bool = True
    #: Client settings, by Kafka's names.
    kafka: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        if not self.topics or not all(self.topics):
            raise InvalidConfig("source.topics must name at least one topic, and no empty one")
        for name in ("max_offsets_per_trigger", "max_bytes_per_trigger"):
            _check_at_least(1, f"source.{name}", getattr(self, name))

    def options(self) -> dict[str, str]:
        """For `format("lograft")`, without where to begin."""
        options = {f"kafka.{name}": str(value) for name, value in self.kafka.items()}
        options["kafka.bootstrap.servers"] = self.bootstrap
        return options

    def batch_options(self) -> dict[str, str]:
        options = self.options() | {"subscribe": ",".join(self.topics)}
        if isinstance(self.starting, int):
            options["startingTimestamp"] = str(self.starting)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        elif self.starting != "latest":
            options["startingOffsets"] = self.starting
        options["failOnDataLoss"] = str(self.fail_on_data_loss).lower()
        return options

    def stream_options(self) -> dict[str, str]:
        options = self.batch_options()
        if self.starting == "latest":
            options["startingOffsets"] = "latest"
        given = {
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "progressGroup": self.progress_group,
            "retentionHold": self.retention_hold,
        }
        return options | {name: str(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    master: str = "local[*]"
    #: A Spark Connect server (`sc://host`); wins over `master`.
    remote: str | None = None
    #: "available-now": all there is, then done. Else how often: "10 seconds".
    trigger: str = "available-now"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What the values of records are."""

    format: str = "json"
    #: Of Avro: a record's schema, as JSON.
    schema_file: str | None = None
    #: Of Protobuf: what `protoc --include_imports --descriptor_set_out` wrote, and whose message.
    descriptor_file: str | None = None
    message: str | None = None
    #: Bytes before each value that are not part of it, such as the id of a schema registry.
    skip_bytes: int = 0

    def check(self) -> None:
        needed = {
            "json": set[str](),
            "avro": {"schema_file"},
            "protobuf": {"descriptor_file", "message"},
        }.get(self.format)
        if needed is None:
            raise InvalidConfig(
                f"value.format is {self.format!r}, but must be json, avro or protobuf"
            )
        for name in ("schema_file", "descriptor_file", "message"):
            if (getattr(self, name) is not None) != (name in needed):
                verb = "needs" if name in needed else "does not have"
                raise InvalidConfig(f"value.format {self.format} {verb} value.{name}")
        if self.skip_bytes < 0 or (self.skip_bytes and self.format == "json"):
            raise InvalidConfig("value.skip_bytes is a number of bytes before Avro or Protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    folder: str
    format: str = "parquet"
    value: Value = field(default_factory=Value)
    #: Columns with their types (`id BIGINT, name STRING`); None: inferred from the first records.
    schema: str | None = None
    #: Of the records' JSON: when they happened. None: the record's own time.
    event_time: str | None = None
    partition_by: tuple[str, ...] = ("date",)
    #: Where records go that are not what the schema says. None: into a table beside this one.
    dead_letter_topic: str | None = None
    #: After so many batches their files are put together; 0: never.
    compact_every: int = 20

    def check(self) -> None:
        _check_at_least(0, "lake.compact_every", self.compact_every)
        if self.format not in ("parquet", "delta", "iceberg"):
            raise InvalidConfig(
                f"lake.format is {self.format!r}, but must be parquet, delta or iceberg"
            )
        if self.schema is not None and self.value.format != "json":
            raise InvalidConfig(
                f"lake.schema is for JSON: the schema of {self.value.format} is in its file"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    #: Checkpoints are kept here, and the table if there is no topic.
    folder: str
    #: Length of a window: "5 minutes"; with `slide`, windows overlap; `session_gap` instead makes
    #: windows that last as long as there is activity.
    window: str | None = None
    slide: str | None = None
    session_gap: str | None = None
    schema: str | None = None
    event_time: str | None = None
    watermark: str = "10 minutes"
    group_by: tuple[str, ...] = ()
    #: Name → SQL: `revenue = "sum(price * quantity)"`.
    aggregates: Mapping[str, str] = field(default_factory=lambda: {"records": "count(*)"})
    #: append: a window is told once, when its watermark has passed. update, complete: as it grows.
    mode: str = "append"
    topic: str | None = None

    def check(self) -> None:
        if (self.window is None) == (self.session_gap is None):
            raise InvalidConfig("windows needs either window or session_gap")
        if self.slide is not None and self.window is None:
            raise InvalidConfig("windows.slide needs windows.window")
        if self.mode not in ("append", "update", "complete"):
            raise InvalidConfig(
                f"windows.mode is {self.mode!r}, but must be append, update or complete"
            )
        if self.mode == "update" and self.topic is None:
            raise InvalidConfig("windows.mode update needs windows.topic: files cannot be updated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    #: The report is written here.
    folder: str
    hot_keys: int = 20
    #: Also reads `__consumer_offsets`, which not everybody may: when groups have read what.
    commit_history: bool = True

    def check(self) -> None:
        _check_at_least(0, "audit.hot_keys", self.hot_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    source: Source
    spark: Spark
    lake: Lake | None = None
    windows: Windows | None = None
    audit: Audit | None = None
    state: State | None = None


def read_settings(text: str) -> Settings:
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"this is not TOML: {error}") from None
    return _read(Settings, {"spark": {}} | given, "")


def _read(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """A dataclass from a table of a file."""
    kinds = typing.get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]}?" if close else "."
            raise InvalidConfig(
                f"{where}{name} is not a setting{hint} Allowed are {', '.join(known)}"
            )
    values = {name: _value(kinds[name], one, f"{where}{name}") for name, one in given.items()}
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise InvalidConfig(f"{where}{name} must be set")
    made = kind(**values)
    if hasattr(made, "check"):
        made.check()
    return made


def _check_at_least(lowest: int, name: str, number: int | None) -> None:
    if number is not None and number < lowest:
        raise InvalidConfig(f"{name} is {number}, but must be at least {lowest}")


def _value(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [one for one in typing.get_args(kind) if one is not types.NoneType]
        if len(kinds) == 1:
            return _value(kinds[0], value, where)
        return _plain(kinds, value, where)
    if origin is tuple:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InvalidConfig(f"{where} is {value!r}, but must be a list of strings")
        return tuple(value)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise InvalidConfig(f"{where} is {value!r}, but must be a table")
        return {name: _as_text(one, f"{where}.{name}") for name, one in value.items()}
    if kind in _NOUNS:
        return _plain([kind], value, where)
    if not isinstance(value, dict):
        raise InvalidConfig(f"{where} is {value!r}, but must be a section")
    return _read(kind, value, f"{where}.")


def _plain(kinds: Sequence[type], value: Any, where: str) -> Any:
    """Of exactly one of these types: to Python, true is a number."""
    if type(value) not in kinds:
        nouns = " or ".join(_NOUNS[one] for one in kinds)
        raise InvalidConfig(f"{where} is {value!r}, but must be {nouns}")
    return value


def _as_text(value: Any, where: str) -> str:
    """A setting of somebody else, as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InvalidConfig(f"{where} is {value!r}, but must be text or a number")
    return str(value)
