"""Settings of the pipelines, parsed from a TOML file. Pure.

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
    #: earliest, latest, offsets as JSON, or a timestamp in ms.
    starting: str | int = "earliest"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    #: Consumer group to which the pipeline commits its offsets.
    progress_group: str | None = None
    #: How long unread records are held after the group's last commit: "1h".
    retention_hold: str | None = None
    fail_on_data_loss: bool = True
    #: Client settings, by Kafka's names.
    kafka: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        if not self.topics or not all(self.topics):
            raise InvalidConfig("source.topics must list at least one topic, without empty names")
        for name in ("max_offsets_per_trigger", "max_bytes_per_trigger"):
            _check_at_least(1, f"source.{name}", getattr(self, name))

    def options(self) -> dict[str, str]:
        """Returns options for `format("lograft")`, without topics and offsets."""
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
    #: Spark Connect server (`sc://host`); takes precedence over `master`.
    remote: str | None = None
    #: "available-now": reads all available records and completes. Otherwise an interval: "10
    #: seconds".
    trigger: str = "available-now"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Format of the record values."""

    format: str = "json"
    #: Avro: file with the schema of a record, as JSON.
    schema_file: str | None = None
    #: Protobuf: output file of `protoc --include_imports --descriptor_set_out`, and message name.
    descriptor_file: str | None = None
    message: str | None = None
    #: Bytes to skip before each value, such as a schema registry's ID.
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
                verb = "requires" if name in needed else "does not allow"
                raise InvalidConfig(f"value.format {self.format} {verb} value.{name}")
        if self.skip_bytes < 0 or (self.skip_bytes and self.format == "json"):
            raise InvalidConfig(
                "value.skip_bytes must be at least 0, and needs format avro or protobuf"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    folder: str
    format: str = "parquet"
    value: Value = field(default_factory=Value)
    #: Columns with their types (`id BIGINT, name STRING`); None: inferred from the first records.
    schema: str | None = None
    #: Field with the event time. None: the record's timestamp.
    event_time: str | None = None
    partition_by: tuple[str, ...] = ("date",)
    #: Topic for records that do not match the schema. None: a table in the folder `_dead`.
    dead_letter_topic: str | None = None
    #: Number of batches between compactions of small files; 0 disables compaction.
    compact_every: int = 20

    def check(self) -> None:
        _check_at_least(0, "lake.compact_every", self.compact_every)
        if self.format not in ("parquet", "delta", "iceberg"):
            raise InvalidConfig(
                f"lake.format is {self.format!r}, but must be parquet, delta or iceberg"
            )
        if self.schema is not None and self.value.format != "json":
            raise InvalidConfig(
                f"lake.schema applies only to JSON: {self.value.format} uses a schema file"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    #: Folder of the checkpoint, and of the table if there is no topic.
    folder: str
    #: Length of a window: "5 minutes". With `slide`, windows overlap. Use `session_gap` instead for
    #: session windows.
    window: str | None = None
    slide: str | None = None
    session_gap: str | None = None
    schema: str | None = None
    event_time: str | None = None
    watermark: str = "10 minutes"
    group_by: tuple[str, ...] = ()
    #: Name → SQL: `revenue = "sum(price * quantity)"`.
    aggregates: Mapping[str, str] = field(default_factory=lambda: {"records": "count(*)"})
    #: append: a window is written once, after the watermark has passed its end. update, complete:
    #: whenever it changes.
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
    #: Folder of the report.
    folder: str
    hot_keys: int = 20
    #: Also reads commits from `__consumer_offsets`, which may require an ACL.
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
        raise InvalidConfig(f"the file is not valid TOML: {error}") from None
    return _read(Settings, {"spark": {}} | given, "")


def _read(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """Builds a dataclass from a TOML table."""
    kinds = typing.get_type_hints(kind)
    known = {setting.name: setting for setting in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise InvalidConfig(
                f"{where}{name} is not a setting{hint} Allowed are {', '.join(known)}"
            )
    values = {name: _value(kinds[name], value, f"{where}{name}") for name, value in given.items()}
    for name, setting in known.items():
        has_default = setting.default is not MISSING or setting.default_factory is not MISSING
        if name not in values and not has_default:
            raise InvalidConfig(f"{where}{name} must be set")
    result = kind(**values)
    if hasattr(result, "check"):
        result.check()
    return result


def _check_at_least(lowest: int, name: str, number: int | None) -> None:
    if number is not None and number < lowest:
        raise InvalidConfig(f"{name} is {number}, but must be at least {lowest}")


def _value(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [choice for choice in typing.get_args(kind) if choice is not types.NoneType]
        if len(kinds) == 1:
            return _value(kinds[0], value, where)
        return _plain(kinds, value, where)
    if origin is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidConfig(f"{where} is {value!r}, but must be a list of strings")
        return tuple(value)
    if origin is Mapping:
        if not isinstance(value, dict):
            raise InvalidConfig(f"{where} is {value!r}, but must be a table")
        return {name: _as_text(item, f"{where}.{name}") for name, item in value.items()}
    if kind in _NOUNS:
        return _plain([kind], value, where)
    if not isinstance(value, dict):
        raise InvalidConfig(f"{where} is {value!r}, but must be a section")
    return _read(kind, value, f"{where}.")


def _plain(kinds: Sequence[type], value: Any, where: str) -> Any:
    """Checks for exactly these types, because in Python a bool is also an int."""
    if type(value) not in kinds:
        nouns = " or ".join(_NOUNS[kind] for kind in kinds)
        raise InvalidConfig(f"{where} is {value!r}, but must be {nouns}")
    return value


def _as_text(value: Any, where: str) -> str:
    """Converts a setting of Spark or of the client to text."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InvalidConfig(f"{where} is {value!r}, but must be text or a number")
    return str(value)
