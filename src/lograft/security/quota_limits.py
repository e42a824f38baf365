"""Finds the quota of a client: which of the stored limits applies to a user and a client id.

Limits are stored for entities: a user, a client id, both, and for the default of each. The first
one in this order applies; it is shared by all clients with the same `ClientKey`.

    1  user alice, client id c         5  default user, default client id
    2  user alice, default client id   6  default user
    3  user alice                      7  client id c
    4  default user, client id c       8  default client id
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: Entity type and name; None is the default of the type.
Entity = Iterable[tuple[str, str | None]]


class ClientKey(NamedTuple):
    """The clients that share a quota; an empty part is not distinguished."""

    user: str
    client_id: str


class _Default:
    """The name of a default entity: no client can have it."""


_DEFAULT: Final = _Default()
_Name = str | _Default | None


class QuotaLimits:
    """The limits of one quota for users and client ids."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Mapping[tuple[_Name, _Name], float]) -> None:
        self._limits = limits

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> tuple[ClientKey, float] | None:
        """Returns who shares the quota of this client, and its limit; None without a limit.

        An empty client id is a special case, as in Kafka: it is looked up like a user's quota even
        if a quota for all client ids of the user has been found first.
        """
        limits = self._limits
        for user_name, client_name in (
            (user, client_id),
            (user, _DEFAULT),
            (user, None),
            (_DEFAULT, client_id),
            (_DEFAULT, _DEFAULT),
            (_DEFAULT, None),
        ):
            if (user_name, client_name) in limits:
                key = ClientKey(user, "" if client_name is None else client_id)
                break
        else:
            key = ClientKey("", client_id)
        limit = self._limit_of(key)
        return None if limit is None else (key, limit)

    def _limit_of(self, key: ClientKey) -> float | None:
        user, client_id = key
        candidates: tuple[tuple[_Name, _Name], ...] = ()
        if user and client_id:
            candidates = (
                (user, client_id),
                (user, _DEFAULT),
                (_DEFAULT, client_id),
                (_DEFAULT, _DEFAULT),
            )
        elif user:
            candidates = ((user, None), (_DEFAULT, None))
        elif client_id:
            candidates = ((None, client_id), (None, _DEFAULT))
        for candidate in candidates:
            limit = self._limits.get(candidate)
            if limit is not None:
                return limit
        return None


def limits_of(key: str, quotas: Iterable[tuple[Entity, Mapping[str, float]]]) -> QuotaLimits:
    """Returns the stored limits of the quota `key` for users and client ids."""
    limits: dict[tuple[_Name, _Name], float] = {}
    for entity, values in quotas:
        names = {kind: _DEFAULT if name is None else name for kind, name in entity}
        if key in values and IP not in names and names:
            limits[(names.get(USER), names.get(CLIENT_ID))] = values[key]
    return QuotaLimits(limits)


class ConnectionRates(NamedTuple):
    """The limits of new connections per second, by IP address."""

    by_address: Mapping[str, float]
    #: For all other addresses; None: no limit.
    default: float | None

    def find(self, address: str) -> float | None:
        return self.by_address.get(address, self.default)


def connection_rates_of(
    quotas: Iterable[tuple[Entity, Mapping[str, float]]],
) -> ConnectionRates:
    by_address: dict[str, float] = {}
    default = None
    for entity, values in quotas:
        rate = values.get(CONNECTION_CREATION_RATE)
        names = dict(entity)
        if rate is None or IP not in names:
            continue
        address = names[IP]
        if address is None:
            default = rate
        else:
            by_address[address] = rate
    return ConnectionRates(by_address, default)
