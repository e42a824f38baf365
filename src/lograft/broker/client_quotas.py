"""The quotas of a node's clients: follows the limits in the metadata image, and holds what clients
have used of them.

As in Kafka, each broker enforces the quotas by itself: a client that connects to three brokers gets
three times its quota. Changes to the cluster's partitions are counted by the active controller. One
object for each node, shared by its listeners.
"""

from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Final

from lograft.broker.cluster_metadata import ClusterMetadata
from lograft.metadata.delta import MetadataDelta
from lograft.model.metrics import Counter, Gauge, Sample, enum_label
from lograft.model.settings.broker import BrokerConfig
from lograft.security.client_usage import ClientUsage, ConnectionUsage, MutationUsage
from lograft.security.quota_limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ConnectionRates,
    connection_rates_of,
    limits_of,
)
from lograft.security.quota_rates import QuotaWindow

QUOTAS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
#: Settings with the number of windows and their length.
CLIENT_WINDOW: Final = ("quota.window.num", "quota.window.size.seconds")
CONTROLLER_WINDOW: Final = ("controller.quota.window.num", "controller.quota.window.size.seconds")
QUOTA: Final = enum_label("quota", QUOTAS)
THROTTLED: Final = Counter(
    "lograft_quota_throttled_requests_total",
    "Requests whose clients were throttled because they exceeded the quota.",
    QUOTA,
)
THROTTLE_SECONDS: Final = Counter(
    "lograft_quota_throttle_seconds_total",
    "Total throttle time of requests.",
    QUOTA,
)
CLIENTS: Final = Gauge(
    "lograft_quota_clients", "Clients whose use of the quota is measured at present.", QUOTA
)
EVICTED: Final = Counter(
    "lograft_quota_clients_evicted_total",
    "Clients evicted from quota tracking because the limit was reached.",
    QUOTA,
)


class ClientQuotas:
    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        config = metadata.static_config
        window = _window(config, CLIENT_WINDOW)
        self._window = window
        self.produce = ClientUsage(window)
        self.fetch = ClientUsage(window)
        #: In percent of the event loop's time. As in Kafka, at most one window of throttle time.
        self.request = ClientUsage(window, throttle_ms_max=window.sample_ms)
        self.mutations = MutationUsage(_window(config, CONTROLLER_WINDOW))
        self._connection_rates = ConnectionRates({}, None)
        #: Whether requests of any client are measured: without such a quota, nothing is computed.
        self.is_active = False
        #: Called when `is_active` has changed.
        self.on_activity_changed: list[Callable[[], None]] = []
        metadata.on_changed.append(self._on_changed)
        self._follow()

    def connection_rates(self) -> "ConnectionRateQuotas":
        """Returns a new counter of connections, for the listeners of one role."""
        return ConnectionRateQuotas(self, ConnectionUsage(self._window))

    def connection_rate(self, address: str) -> float | None:
        return self._connection_rates.find(address)

    def collect_samples(self) -> Iterator[Sample]:
        usages: tuple[ClientUsage | MutationUsage, ...] = (
            self.produce,
            self.fetch,
            self.request,
            self.mutations,
        )
        for quota, usage in zip(QUOTAS, usages, strict=True):
            yield THROTTLED.sample(usage.throttled, quota)
            yield THROTTLE_SECONDS.sample(usage.throttled_ms / 1000, quota)
            yield CLIENTS.sample(usage.clients, quota)
            yield EVICTED.sample(usage.evicted_count, quota)

    def _on_changed(self, delta: MetadataDelta) -> None:
        if delta.quotas:
            self._follow()

    def _follow(self) -> None:
        quotas = self._metadata.image.client_quotas
        for key, usage in (
            (PRODUCER_BYTE_RATE, self.produce),
            (CONSUMER_BYTE_RATE, self.fetch),
            (REQUEST_PERCENTAGE, self.request),
            (CONTROLLER_MUTATION_RATE, self.mutations),
        ):
            usage.set_limits(limits_of(key, quotas.items()))
        rates = connection_rates_of(quotas.items())
        self._connection_rates = ConnectionRates(
            {_normalize(address): rate for address, rate in rates.by_address.items()},
            rates.default,
        )
        was_active = self.is_active
        self.is_active = self.produce.is_limited or self.fetch.is_limited or self.request.is_limited
        if self.is_active != was_active:
            for on_activity_changed in self.on_activity_changed:
                on_activity_changed()


class ConnectionRateQuotas:
    """The new connections of one role's listeners. A `net.connection_limits.AddressRates`."""

    def __init__(self, quotas: ClientQuotas, usage: ConnectionUsage) -> None:
        self._quotas = quotas
        self._usage = usage

    def record(self, host: str, now_ms: int) -> int:
        """Returns for how long a new connection is delayed before it is closed; 0 if it is
        accepted."""
        rate = self._quotas.connection_rate(host)
        if rate is None:
            return 0
        return self._usage.record(host, rate, now_ms)


def _window(config: BrokerConfig, settings: tuple[str, str]) -> QuotaWindow:
    samples, seconds = (int(config.text(name) or 1) for name in settings)
    return QuotaWindow(samples, seconds * 1000)


def _normalize(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address
