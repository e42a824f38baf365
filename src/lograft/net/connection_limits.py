"""Connection limits: max.connections and max.connection.creation.rate, of the node and of single
listeners, and max.connections.per.ip.

The rules are Kafka's (KIP-402, KIP-612). A listener at its limit accepts no connection until
another closes; clients wait in the backlog. The inter-broker listener is protected if there are
others: only its own limits apply to it, and the node closes the least recently active connection of
another listener instead. Only the limits per address reject connections: max.connections.per.ip at
once, the quota connection_creation_rate after a delay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from lograft.model.settings.broker import BrokerConfig
from lograft.model.settings.keys import INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    connections_max: int = INT_MAX
    #: Connections per second.
    creation_rate: int = INT_MAX
    per_ip_max: int = INT_MAX
    #: By address.
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    #: By listener; the others have no separate limit.
    listener_connections_max: Mapping[str, int] = field(default_factory=dict)
    listener_creation_rates: Mapping[str, int] = field(default_factory=dict)
    protected_listener: str | None = None


def limits_of(
    config: BrokerConfig, listeners: Iterable[str], *, per_ip_overrides: Mapping[str, int]
) -> ConnectionLimits:
    def own_values(setting: str) -> dict[str, int]:
        texts = {name: config.listener_text(setting, listener=name) for name in listeners}
        return {name: int(text) for name, text in texts.items() if text is not None}

    return ConnectionLimits(
        connections_max=config.max_connections,
        creation_rate=config.max_connection_creation_rate,
        per_ip_max=config.max_connections_per_ip,
        per_ip_overrides=per_ip_overrides,
        listener_connections_max=own_values("max.connections"),
        listener_creation_rates=own_values("max.connection.creation.rate"),
        protected_listener=config.inter_broker_listener_name,
    )


class RateLimit:
    """Admits `rate` events per second, and up to one second's worth of them at once. Kafka delays a
    connection by at most one second (one window of its quotas), so a rate of 0 means one per
    second."""

    __slots__ = ("_budget", "_growth", "_updated_ms", "rate")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._growth = max(rate, 1)
        #: In thousandths of an event: it grows by `_growth` each millisecond.
        self._budget = self._growth * 1000
        self._updated_ms: int | None = None

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time until the next event is admitted."""
        self._refill(now_ms)
        missing = 1000 - self._budget
        return 0 if missing <= 0 else -(-missing // self._growth)

    def record(self, now_ms: int) -> None:
        self._refill(now_ms)
        self._budget -= 1000

    def _refill(self, now_ms: int) -> None:
        if self._updated_ms is not None:
            grown = self._budget + (now_ms - self._updated_ms) * self._growth
            self._budget = min(grown, self._growth * 1000)
        self._updated_ms = now_ms


class LimitedConnection(Protocol):
    @property
    def active_ms(self) -> int: ...

    def close(self) -> None: ...


class LimitedListener(Protocol):
    """A listener that checks the limits before it accepts a connection."""

    def accept_waiting(self) -> None:
        """Called after limits or counts have changed: the listener may accept again."""

    def open_connections(self) -> Iterable[LimitedConnection]:
        """Returns the connections that are not closing."""


class AddressRates(Protocol):
    """Limits the new connections of each address (the quota connection_creation_rate)."""

    def record(self, host: str, now_ms: int) -> int:
        """Returns for how long a new connection is delayed before it is closed; 0 if it is
        accepted."""


#: Returned by `wait_ms` while no connection may be accepted until another is closed.
UNTIL_RELEASED: Final = -1


class ConnectionQuota:
    """Counts the connections of the listeners that share the limits."""

    __slots__ = (
        "_broker_rate",
        "_counts",
        "_limits",
        "_listener_rates",
        "_listeners",
        "_per_ip",
        "_total",
        "address_rates",
    )

    def __init__(
        self, limits: ConnectionLimits | None = None, *, address_rates: AddressRates | None = None
    ) -> None:
        self.address_rates = address_rates
        self._limits = limits or ConnectionLimits()
        self._listeners: dict[str, LimitedListener] = {}
        self._total = 0
        self._counts: dict[str, int] = {}
        self._per_ip: dict[str, int] = {}
        self._broker_rate: RateLimit | None = None
        self._listener_rates: dict[str, RateLimit] = {}
        self._set_rates()

    @property
    def total(self) -> int:
        return self._total

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    def add(self, name: str, listener: LimitedListener) -> None:
        self._listeners[name] = listener

    def remove(self, name: str) -> None:
        self._listeners.pop(name, None)

    def update(self, limits: ConnectionLimits) -> None:
        """Applies limits to new connections immediately. Of the existing connections, those beyond
        max.connections are closed."""
        self._limits = limits
        self._set_rates()
        self._close_excess()
        self._wake()

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Returns how long the listener has to wait before it accepts, or UNTIL_RELEASED."""
        limits = self._limits
        if self._counts.get(listener, 0) >= limits.listener_connections_max.get(listener, INT_MAX):
            return UNTIL_RELEASED
        if self._total >= limits.connections_max and not self._is_protected(listener):
            return UNTIL_RELEASED
        return max((rate.wait_ms(now_ms) for rate in self._rates(listener)), default=0)

    def throttle_ms(self, host: str, now_ms: int) -> int:
        """Counts a new connection of the address; returns for how long it is delayed before it is
        closed, or 0 if it is within the quota."""
        return 0 if self.address_rates is None else self.address_rates.record(host, now_ms)

    def take(self, listener: str, host: str, now_ms: int) -> str | None:
        """Counts an accepted connection; returns the reason if it must be rejected, or None."""
        for rate in self._rates(listener):
            rate.record(now_ms)
        held = self._per_ip.get(host, 0)
        limit = self._limits.per_ip_overrides.get(host, self._limits.per_ip_max)
        if held >= limit:
            return f"max.connections.per.ip={limit} is reached for {host}"
        self._total += 1
        self._counts[listener] = self._counts.get(listener, 0) + 1
        self._per_ip[host] = held + 1
        if self._is_protected(listener):
            self._close_excess()
        return None

    def release(self, listener: str, host: str) -> None:
        self._total -= 1
        self._counts[listener] -= 1
        held = self._per_ip[host] - 1
        if held:
            self._per_ip[host] = held
        else:
            del self._per_ip[host]
        self._wake()

    def _is_protected(self, listener: str) -> bool:
        return listener == self._limits.protected_listener and len(self._listeners) > 1

    def _rates(self, listener: str) -> Iterable[RateLimit]:
        if self._broker_rate is not None and not self._is_protected(listener):
            yield self._broker_rate
        if listener in self._listener_rates:
            yield self._listener_rates[listener]

    def _set_rates(self) -> None:
        """Keeps the counts of rates that have not changed."""
        rate_limit, rate = self._broker_rate, self._limits.creation_rate
        if rate_limit is None or rate_limit.rate != rate:
            self._broker_rate = None if rate == INT_MAX else RateLimit(rate)
        previous = self._listener_rates
        self._listener_rates = {
            name: previous[name]
            if name in previous and previous[name].rate == rate
            else RateLimit(rate)
            for name, rate in self._limits.listener_creation_rates.items()
        }

    def _close_excess(self) -> None:
        candidates = [
            connection
            for name, listener in self._listeners.items()
            if not self._is_protected(name)
            for connection in listener.open_connections()
        ]
        protected = sum(count for name, count in self._counts.items() if self._is_protected(name))
        excess = protected + len(candidates) - self._limits.connections_max
        if excess > 0:
            candidates.sort(key=lambda connection: connection.active_ms)
            for connection in candidates[:excess]:
                connection.close()

    def _wake(self) -> None:
        for listener in list(self._listeners.values()):
            listener.accept_waiting()
