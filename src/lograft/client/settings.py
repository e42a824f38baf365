"""Settings of clients: Kafka's names, defaults and validation, as fields of frozen dataclasses.

    class ProducerSettings(ClientSettings):
        linger_ms: int = setting(5, at_least(0))

The name of a field is Kafka's with underscores for dots, so `linger.ms` and `linger_ms` are the
same setting. Values may be text (from a file) or of the field's type. Unknown settings cause a
warning; unsupported ones are rejected with the reason (`unsupported` of the class).
"""

import logging
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, TypeVar

from lograft.model.errors import InvalidConfig

LOGGER: Final = logging.getLogger(__name__)

S = TypeVar("S", bound="Settings")
#: Returns what is wrong with a value, or None.
Check = Callable[[Any], str | None]

_CHECK: Final = "check"
_CONVERT: Final = "convert"
_TRUE: Final = frozenset(("true",))
_FALSE: Final = frozenset(("false",))


class Secret(str):
    """A password or private key; its repr and str are masked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def reveal(self) -> str:
        return str.__str__(self)


def setting(
    default: Any = MISSING, check: Check | None = None, convert: Callable[[Any], Any] | None = None
) -> Any:
    """Returns a dataclass field. `convert`: converts alternative forms of a value before
    validation."""
    return field(default=default, metadata={_CHECK: check, _CONVERT: convert})


def at_least(minimum: int) -> Check:
    return lambda value: None if value >= minimum else f"must be at least {minimum}"


def between(minimum: int, maximum: int) -> Check:
    def check(value: Any) -> str | None:
        return None if minimum <= value <= maximum else f"must be {minimum} to {maximum}"

    return check


def one_of(*choices: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in choices else f"must be one of {', '.join(choices)}"

    return check


def not_empty(value: Any) -> str | None:
    return "must not be empty" if value is not None and not value else None


class UnsupportedSetting(typing.NamedTuple):
    """A setting of Kafka that is not supported; its default value is accepted and ignored."""

    default: str | None
    reason: str

    def is_default(self, value: Any) -> bool:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return value is None or text == self.default


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of the settings of all clients."""

    unsupported: ClassVar[Mapping[str, UnsupportedSetting]] = {}

    def __post_init__(self) -> None:
        for setting_field in fields(self):
            name = setting_field.name
            check: Check | None = setting_field.metadata.get(_CHECK)
            problem = None if check is None else check(getattr(self, name))
            if problem is not None:
                raise InvalidConfig(f"{to_dotted(name)} is {getattr(self, name)!r}, but {problem}")
        self.check()

    def check(self) -> None:
        """Validates settings that depend on each other. Raises InvalidConfig."""

    @classmethod
    def setting_names(cls) -> frozenset[str]:
        """Returns Kafka's dotted names of these settings."""
        return frozenset(to_dotted(field.name) for field in fields(cls))

    @classmethod
    def read(cls: type[S], settings: Mapping[str, Any], **keywords: Any) -> S:
        """Returns the settings with dotted or underscored names; `keywords` take precedence over
        `settings`."""
        known = {field.name: field.metadata.get(_CONVERT) for field in fields(cls)}
        kinds = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in {**_to_keywords(settings), **_to_keywords(keywords)}.items():
            if name in known:
                convert = known[name]
                converted = value if convert is None else convert(value)
                values[name] = _convert(to_dotted(name), converted, kinds[name])
            elif (unsupported := cls.unsupported.get(to_dotted(name))) is not None:
                if not unsupported.is_default(value):
                    raise InvalidConfig(f"{to_dotted(name)} cannot be set: {unsupported.reason}")
            else:
                LOGGER.warning("unknown setting %s: this client ignores it", to_dotted(name))
        missing = [
            to_dotted(field.name)
            for field in fields(cls)
            if field.default is MISSING
            and field.default_factory is MISSING
            and field.name not in values
        ]
        if missing:
            raise InvalidConfig(f"{', '.join(missing)} must be set")
        return cls(**values)


def to_dotted(name: str) -> str:
    return name.replace("_", ".")


def _to_keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Returns the value as the field's type. Parses text as Kafka parses properties files."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
        if value is None and len(kinds) < len(typing.get_args(kind)):
            return None
        if len(kinds) > 1:
            return value
        kind, origin = kinds[0], typing.get_origin(kinds[0])
    if kind is bool:
        return _boolean(name, value)
    if kind is int or kind is float:
        return _number(name, value, kind)
    if kind is str:
        return _text(name, value)
    if kind is Secret:
        return Secret(_text(name, value))
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(part.strip() if isinstance(part, str) else part for part in parts if part)
    return value


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidConfig(f"{name} is {value!r}, but must be true or false")


def _number(name: str, value: Any, kind: type[int] | type[float]) -> float:
    expected = "an integer" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidConfig(f"{name} is {value!r}, but must be {expected}")
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or (isinstance(value, float) and number != value):
        raise InvalidConfig(f"{name} is {value!r}, but must be {expected}")
    return number


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} is {value!r}, but must be a string")
    return value.strip() if type(value) is str else value
