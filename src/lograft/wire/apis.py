"""The APIs of the protocol, their versions, and the modules of their message classes.

The table is Kafka 4.3.1's. A node advertises those that have a handler.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

from lograft.wire.errors import UnsupportedVersion
from lograft.wire.message import Message
from lograft.wire.messages.index import APIS

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
JOIN_GROUP_KEY: Final = 11
SYNC_GROUP_KEY: Final = 14
API_VERSIONS_KEY: Final = 18
GET_TELEMETRY_SUBSCRIPTIONS_KEY: Final = 71
PUSH_TELEMETRY_KEY: Final = 72


class Versions(NamedTuple):
    """A range of versions of one API, both ends included."""

    oldest: int
    newest: int

    def common(self, other: "Versions") -> int | None:
        """Returns the latest version in both ranges, or None."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None


#: Ranges by API key.
ApiRanges = Mapping[int, Versions]


class ApiSpec(NamedTuple):
    key: int
    name: str
    #: Module of `lograft.wire.messages`; also the name of the handler's module.
    module: str
    min_version: int
    #: The last version that is stable.
    max_version: int
    #: A later version that Kafka offers only with `unstable.api.versions.enable`, or None.
    unstable_version: int | None
    flexible_since: int
    #: "broker", "controller" or both: the listeners on which the API is served.
    listeners: frozenset[str]


def _specs() -> dict[int, ApiSpec]:
    return {
        key: ApiSpec(
            key=key,
            name=name,
            module=module,
            min_version=first,
            max_version=last - unstable,
            unstable_version=last if unstable else None,
            flexible_since=flexible,
            listeners=frozenset(listeners),
        )
        for key, name, module, first, last, unstable, flexible, listeners in APIS
    }


API_VERSIONS: Final[dict[int, ApiSpec]] = _specs()


def spec_of(key: int) -> ApiSpec:
    try:
        return API_VERSIONS[key]
    except KeyError:
        raise UnsupportedVersion(f"API {key} does not exist.") from None


def request_class(key: int) -> type[Message]:
    return _message_class(spec_of(key), "Request")


def response_class(key: int) -> type[Message]:
    return _message_class(spec_of(key), "Response")


def _message_class(spec: ApiSpec, direction: str) -> type[Message]:
    module = import_module(f"lograft.wire.messages.{spec.module}")
    kind: type[Message] = getattr(module, spec.name + direction)
    return kind


def request_header_version(key: int, version: int) -> int:
    return 2 if version >= spec_of(key).flexible_since else 1


def response_header_version(key: int, version: int) -> int:
    """ApiVersions always has header version 0: the client does not know the server's versions
    yet."""
    return 1 if version >= spec_of(key).flexible_since and key != API_VERSIONS_KEY else 0
