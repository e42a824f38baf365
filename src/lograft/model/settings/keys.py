"""The definition of a setting: type, default, valid values and update mode.

The tables of settings (`topic`, `broker_table`) consist of `ConfigKey`s. As in Kafka's files and
messages, all values are text; `ConfigKey.parse` converts text into a typed value or raises
`InvalidConfig` with a message that says what is allowed.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol, TypeAlias

from lograft.model.errors import InvalidConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
SHORT_MAX: Final = 2**15 - 1
#: Maximum length of a value: a single setting must not fill the metadata log.
VALUE_LENGTH_MAX: Final = 32767

#: Python's float also accepts 1_000 and inf; Java's NaN is useless in any setting.
_JAVA_DOUBLE: Final = re.compile(
    r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)

#: Java's trim() removes these characters; Python's strip() would also remove no-break spaces.
_JAVA_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))


class ConfigType(IntEnum):
    """The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The source of a value; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class UpdateMode(Enum):
    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Secret:
    """A password: compared by value, and never printed."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Secret([hidden])"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | Secret | None


class Check(Protocol):
    def find_problem(self, value: ConfigValue) -> str | None:
        """Returns the problem of an invalid value, as the end of a sentence; None if it is
        valid."""


class Between(NamedTuple):
    low: float
    high: float | None = None

    def find_problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, int | float):
            return None
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None


class BetweenOr(NamedTuple):
    low: int
    high: int
    exception: int

    def find_problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, int) or value == self.exception or self.low <= value <= self.high:
            return None
        return f"Value must be between {self.low} and {self.high} or equal to {self.exception}"


class OneOf(NamedTuple):
    options: tuple[str, ...]
    any_case: bool = False

    def find_problem(self, value: ConfigValue) -> str | None:
        if value in self.options:
            return None
        if self.any_case and isinstance(value, str) and value.upper() in self.options:
            return None
        return f"String must be one of: {', '.join(self.options)}"


class ListOf(NamedTuple):
    """With options () the list may contain any word."""

    options: tuple[str, ...] = ()
    may_be_empty: bool = True

    def find_problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, tuple):
            return None
        if not value:
            return None if self.may_be_empty else "The list must not be empty"
        if "" in value:
            return "The list must not contain an empty entry"
        for item in value:
            if self.options and item not in self.options:
                return f"String must be one of: {', '.join(self.options)}"
        return None


class NotEmpty(NamedTuple):
    def find_problem(self, value: ConfigValue) -> str | None:
        return "String must be non-empty" if value == "" else None


class ThrottledReplicas(NamedTuple):
    def find_problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, tuple) or value in ((), ("*",)):
            return None
        if all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in value):
            return None
        return "It must be '*' or a list of [partitionId]:[brokerId],[partitionId]:[brokerId],..."


class PartitionModes(NamedTuple):
    """A replication mode for single partitions of a topic."""

    def find_problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, tuple):
            return None
        items = [re.fullmatch(r"([0-9]+):(isr|raft)", item) for item in value]
        if not all(items):
            return "It must be a list of [partitionId]:isr and [partitionId]:raft"
        partitions = [int(item[1]) for item in items if item is not None]
        if len(partitions) != len(set(partitions)):
            return "It must name each partition once"
        return None


class Used(NamedTuple):
    """The setting is used."""


class NoEffect(NamedTuple):
    """The setting is accepted, but has no effect."""

    #: A clause without capital letter and full stop: it follows "No effect in Lograft:".
    reason: str


class PartlyUsed(NamedTuple):
    """The setting is a list of which some items have no effect."""

    items: tuple[str, ...]
    #: A clause without capital letter and full stop: it follows "No effect in Lograft of …:".
    reason: str


class Unsupported(NamedTuple):
    """The setting is rejected unless it is off, because ignoring it would harm operators who rely
    on the protection or the placement of data that it provides."""

    #: A clause without capital letter and full stop: it follows "Not supported by Lograft:".
    reason: str


Effect: TypeAlias = Used | PartlyUsed | NoEffect | Unsupported
USED: Final = Used()


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    #: As text; None if the setting has no default.
    default: str | None
    check: Check | None = None
    importance: Importance = Importance.MEDIUM
    mode: UpdateMode = UpdateMode.READ_ONLY
    #: Not shown by DescribeConfigs; for tests and emergencies.
    internal: bool = False
    #: The effect of the setting in Lograft; tests/tidy compares it with the code that reads
    #: settings.
    effect: Effect = USED

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def is_default(self, text: str | None) -> bool:
        return self.parse(text) == self.parse(self.default)

    def is_valid(self, text: str | None) -> bool:
        try:
            self.parse(text)
        except InvalidConfig:
            return False
        return True

    def parse(self, text: str | None) -> ConfigValue:
        if text is None:
            return None
        check_length(self.name, text)
        value = self._convert(text.strip(_JAVA_BLANKS), text)
        problem = self.check.find_problem(value) if self.check is not None else None
        if problem is not None:
            raise self._invalid(text, problem)
        return value

    def _convert(self, text: str, original: str) -> ConfigValue:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() in ("true", "false"):
                    return text.lower() == "true"
                raise self._invalid(original, "Expected value to be either true or false")
            case ConfigType.INT:
                return self._integer(text, original, INT_MAX)
            case ConfigType.LONG:
                return self._integer(text, original, LONG_MAX)
            case ConfigType.SHORT:
                return self._integer(text, original, SHORT_MAX)
            case ConfigType.DOUBLE:
                if not _JAVA_DOUBLE.fullmatch(text):
                    raise self._invalid(original, "Not a number of type DOUBLE")
                return float(text.rstrip("fFdD"))
            case ConfigType.LIST:
                return split_list(text)
            case ConfigType.PASSWORD:
                return Secret(original)
            case _:
                return text

    def _integer(self, text: str, original: str, largest: int) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and -largest - 1 <= int(text) <= largest:
            return int(text)
        raise self._invalid(original, f"Not a number of type {self.type.name}")

    def _invalid(self, text: str, problem: str) -> InvalidConfig:
        shown = "[hidden]" if self.is_sensitive else text
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {problem}")


def check_length(name: str, text: str) -> None:
    """Raises InvalidConfig, also for unknown names."""
    if len(text) > VALUE_LENGTH_MAX:
        raise InvalidConfig(
            f"Invalid value for configuration {name[:200]}: it has {len(text)} characters,"
            f" the limit is {VALUE_LENGTH_MAX}"
        )


def split_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


def table_of(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    return {key.name: key for key in keys}


class AlterOperation(IntEnum):
    """The numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    name: str
    operation: AlterOperation
    value: str | None


def apply_alterations(
    keys: Mapping[str, ConfigKey], current: Mapping[str, str], alterations: Iterable[Alteration]
) -> dict[str, str]:
    """Returns the explicit values after the alterations, without checking them.

    As in Kafka, APPEND and SUBTRACT start from the explicit value, or from the default if there is
    none.
    """
    result = dict(current)
    for name, operation, value in alterations:
        if operation is AlterOperation.DELETE:
            result.pop(name, None)
            continue
        if value is None:
            raise InvalidConfig(f"Null value not supported for configuration {name}")
        if operation is AlterOperation.SET:
            result[name] = value
            continue
        key = keys.get(name)
        verb = "append" if operation is AlterOperation.APPEND else "subtract"
        if key is None or key.type is not ConfigType.LIST:
            raise InvalidConfig(f"Config value {verb} is not allowed for config key: {name}")
        items = list(split_list(result.get(name, key.default or "")))
        operands = split_list(value)
        if operation is AlterOperation.APPEND:
            items += [item for item in dict.fromkeys(operands) if item not in items]
        else:
            items = [item for item in items if item not in operands]
        result[name] = ",".join(items)
    return result
