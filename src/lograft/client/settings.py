"""Settings of clients: Kafka's names, defaults and rules, as fields of frozen dataclasses.

    class ProducerSettings(ClientSettings):
        linger_ms: int = setting(5, at_least(0))

A field's name is Kafka's with dots for underscores, so `linger.ms` and `linger_ms` name the same
thing, and values may be text (from a file) or what they are. What a class does not know is named in
a warning; what it knows and cannot do is refused with the reason (`refused` of the class).
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
#: Says what is wrong with a value, or None.
Check = Callable[[Any], str | None]

_CHECK: Final = "check"
_READS: Final = "reads"
_TRUE: Final = frozenset(("true",))
_FALSE: Final = frozenset(("false",))


class Secret(str):
    """A password or private key; never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def reveal(self) -> str:
        return str.__str__(self)


def setting(
    default: Any = MISSING, check: Check | None = None, reads: Callable[[Any], Any] | None = None
) -> Any:
    """A field. `reads`: what other spellings of a value mean, before it is looked at."""
    return field(default=default, metadata={_CHECK: check, _READS: reads})


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
    """A setting of Kafka's that cannot be followed; its default is taken as if it were not set."""

    default: str | None
    reason: str

    def is_default(self, value: Any) -> bool:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return value is None or text == self.default


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all kinds of settings can do."""

    unsupported: ClassVar[Mapping[str, UnsupportedSetting]] = {}

    def __post_init__(self) -> None:
        for one in fields(self):
            check: Check | None = one.metadata.get(_CHECK)
            problem = None if check is None else check(getattr(self, one.name))
            if problem is not None:
                raise InvalidConfig(
                    f"{dotted(one.name)} is {getattr(self, one.name)!r}, but {problem}"
                )
        self.check()

    def check(self) -> None:
        """Rules between settings; raises InvalidConfig."""

    @classmethod
    def setting_names(cls) -> frozenset[str]:
        """Kafka's dotted names of these settings."""
        return frozenset(dotted(one.name) for one in fields(cls))

    @classmethod
    def read(cls: type[S], given: Mapping[str, Any], **more: Any) -> S:
        """From dotted or underscored names; `more` wins over `given`."""
        known = {one.name: one.metadata.get(_READS) for one in fields(cls)}
        kinds = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for name, value in {**_underscored(given), **_underscored(more)}.items():
            if name in known:
                reads = known[name]
                meant = value if reads is None else reads(value)
                values[name] = _converted(dotted(name), meant, kinds[name])
            elif (unsupported := cls.unsupported.get(dotted(name))) is not None:
                if not unsupported.is_default(value):
                    raise InvalidConfig(f"{dotted(name)} cannot be set: {unsupported.reason}")
            else:
                LOGGER.warning("%s is not a setting of this client: it has no effect", dotted(name))
        missing = [
            dotted(one.name)
            for one in fields(cls)
            if one.default is MISSING and one.default_factory is MISSING and one.name not in values
        ]
        if missing:
            raise InvalidConfig(f"{', '.join(missing)} must be set")
        return cls(**values)


def dotted(name: str) -> str:
    return name.replace("_", ".")


def _underscored(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in given.items()}


def _converted(name: str, value: Any, kind: Any) -> Any:
    """`value` as the field's type; text is read as Kafka reads it from a file."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [one for one in typing.get_args(kind) if one is not types.NoneType]
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
    wanted = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidConfig(f"{name} is {value!r}, but must be {wanted}")
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or (isinstance(value, float) and number != value):
        raise InvalidConfig(f"{name} is {value!r}, but must be {wanted}")
    return number


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidConfig(f"{name} is {value!r}, but must be text")
    return value.strip() if type(value) is str else value
