"""Client telemetry (KIP-714): the metrics that clients are subscribed to, and their last pushes.

The broker remembers the clients that requested their subscription, as Kafka's broker does: at most
`CLIENTS_MAX`, and it evicts the least recently seen. An evicted client only has to request its
subscription again. The broker keeps the numbers of the last push of each client, at most
`KEPT_POINTS_MAX` of all clients, and shows them at /metrics until they are outdated. It requests
cumulative values, so the last push of a client is complete.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from lograft.broker.client_series import ClientSeries
from lograft.metadata.client_metrics import (
    Selection,
    Subscription,
    parse_subscription,
    select_metrics,
)
from lograft.metadata.types import ConfigResource, ResourceType
from lograft.model.errors import ErrorCode, Rejected
from lograft.model.metrics import Counter, Gauge, Sample
from lograft.wire.otlp import Point

#: As Kafka's brokers.
CLIENTS_MAX: Final = 16_384
#: Maximum number of points of all clients, and of one. A point takes some hundred bytes.
KEPT_POINTS_MAX: Final = 100_000
CLIENT_POINTS_MAX: Final = 10_000
#: Number of its intervals after which the last push of a client is outdated, at least a minute.
OUTDATED_INTERVALS: Final = 3
OUTDATED_MS_MIN: Final = 60_000
LONG_AGO_MS: Final = -(1 << 62)
#: Errors of a push after which the client may ask for its subscription at once.
ASKS_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)

LOGGER: Final = logging.getLogger(__name__)

SUBSCRIPTIONS: Final = Gauge(
    "lograft_telemetry_subscriptions", "Client metrics subscriptions of the cluster."
)
CLIENTS: Final = Gauge(
    "lograft_telemetry_clients", "Clients that asked this broker for a telemetry subscription."
)
KEPT_POINTS: Final = Gauge(
    "lograft_telemetry_points", "Data points of the clients' latest pushes kept in memory."
)
PUSHES: Final = Counter("lograft_telemetry_pushes_total", "Pushes of clients that were accepted.")
PUSHED_BYTES: Final = Counter(
    "lograft_telemetry_pushed_bytes_total", "Size of the accepted pushes, decompressed."
)
DROPPED_POINTS: Final = Counter(
    "lograft_telemetry_dropped_points_total",
    "Dropped data points: histograms, deltas, and points beyond the per-client limit.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """The metrics that a client pushed last, in OpenTelemetry's format (OTLP MetricsData)."""

    client_instance_id: UUID
    #: Attributes of the client, by the names that subscriptions match.
    client: Mapping[str, str]
    #: By the broker's clock.
    received_ms: int
    is_terminating: bool
    #: Decompressed.
    size_bytes: int
    points: tuple[Point, ...]
    dropped_points: int


class Client:
    """One client instance and its requests."""

    __slots__ = (
        "_asked_ms",
        "_pushed_ms",
        "attributes",
        "instance_id",
        "is_terminating",
        "last_error",
        "push",
        "selection",
        "subscription_id",
        "version",
    )

    def __init__(self, instance_id: UUID, attributes: Mapping[str, str]) -> None:
        self.instance_id = instance_id
        self.attributes = attributes
        self.push: Push | None = None
        self.version = -1

    def subscribe(self, selection: Selection, version: int) -> None:
        """A client with a new subscription may send its next request at once."""
        self.selection = selection
        self.subscription_id = selection.subscription_id(self.instance_id)
        #: Version of the subscriptions that the selection was made from.
        self.version = version
        self.last_error = ErrorCode.NONE
        self.is_terminating = False
        self._asked_ms = self._pushed_ms = LONG_AGO_MS

    def may_ask(self, now_ms: int) -> bool:
        """Records the time of the request if it is not too early."""
        if now_ms - max(self._asked_ms, self._pushed_ms) < self.selection.interval_ms:
            return self.last_error in ASKS_AGAIN
        self._asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Notes the push if it is not too early. The first after the subscription may come at any
        time: clients choose it at random."""
        is_first = self._asked_ms > self._pushed_ms
        if not is_first and now_ms - self._pushed_ms < self.selection.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


class Subscribed(NamedTuple):
    error: ErrorCode
    client: Client


class ClientTelemetry:
    def __init__(
        self, *, clients_max: int = CLIENTS_MAX, kept_points_max: int = KEPT_POINTS_MAX
    ) -> None:
        self._clients_max = clients_max
        self._kept_points_max = kept_points_max
        self._subscriptions: tuple[Subscription, ...] = ()
        #: Grows with every change of the subscriptions.
        self._version = 0
        #: The least recently seen first.
        self._clients: OrderedDict[UUID, Client] = OrderedDict()
        self._kept_points = 0
        self._pushes = 0
        self._pushed_bytes = 0
        self._dropped_points = 0
        self._series = ClientSeries()

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions)

    def on_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        changed: Iterable[ConfigResource],
    ) -> None:
        """The settings of some resources have changed."""
        if not any(resource.type == ResourceType.CLIENT_METRICS for resource in changed):
            return
        found = []
        for resource, values in configs.items():
            if resource.type != ResourceType.CLIENT_METRICS:
                continue
            try:
                found.append(parse_subscription(resource.name, values))
            except Rejected as refusal:
                LOGGER.warning(
                    "ignoring client metrics subscription %s: %s", resource.name, refusal
                )
        self._subscriptions = tuple(found)
        self._version += 1

    def ask(self, instance_id: UUID, attributes: Mapping[str, str], now_ms: int) -> Subscribed:
        """Handles GetTelemetrySubscriptions of a client."""
        client = self._client(instance_id, attributes)
        if not client.may_ask(now_ms):
            return Subscribed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, client)
        client.last_error = ErrorCode.NONE
        return Subscribed(ErrorCode.NONE, client)

    def check_push(
        self,
        instance_id: UUID,
        attributes: Mapping[str, str],
        now_ms: int,
        *,
        subscription_id: int,
        is_terminating: bool,
    ) -> Subscribed:
        client = self._client(instance_id, attributes)
        was_terminating, client.is_terminating = client.is_terminating, is_terminating
        if was_terminating:
            error = ErrorCode.INVALID_REQUEST
        elif not client.may_push(now_ms) and not is_terminating:
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        elif subscription_id != client.subscription_id:
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        else:
            error = ErrorCode.NONE
        client.last_error = error
        return Subscribed(error, client)

    def keep(self, push: Push) -> None:
        """Replaces the previous push of the client."""
        self._pushes += 1
        self._pushed_bytes += push.size_bytes
        self._dropped_points += push.dropped_points
        client = self._clients.get(push.client_instance_id)
        if client is None:
            return  # removed in the meantime
        self._drop_push(client)
        client.push = push
        self._kept_points += len(push.points)
        self._series.add(push.points)
        if self._kept_points > self._kept_points_max:
            self._make_space()

    def _make_space(self) -> None:
        """Drops the pushes of the least recently seen clients."""
        for client in self._clients.values():
            if self._kept_points <= self._kept_points_max:
                break
            self._drop_push(client)

    def pushes(self, now_ms: int) -> Iterator[Push]:
        """The last push of every client that is not outdated."""
        for client in self._clients.values():
            push = client.push
            if push is not None and now_ms - push.received_ms <= max(
                OUTDATED_MS_MIN, OUTDATED_INTERVALS * client.selection.interval_ms
            ):
                yield push

    def collect_samples(self) -> Iterator[Sample]:
        yield SUBSCRIPTIONS.sample(len(self._subscriptions))
        yield CLIENTS.sample(len(self._clients))
        yield KEPT_POINTS.sample(self._kept_points)
        yield PUSHES.sample(self._pushes)
        yield PUSHED_BYTES.sample(self._pushed_bytes)
        yield DROPPED_POINTS.sample(self._dropped_points)

    def collect_client_samples(self, now_ms: int) -> Iterator[Sample]:
        """Yields what clients pushed, by their names."""
        pushes = list(self.pushes(now_ms))
        yield from self._series.collect_samples(
            (
                push.client.get("client_id", ""),
                push.client.get("client_instance_id", ""),
                push.points,
            )
            for push in pushes
        )

    def _client(self, instance_id: UUID, attributes: Mapping[str, str]) -> Client:
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = Client(instance_id, attributes)
            if len(self._clients) > self._clients_max:
                _, forgotten = self._clients.popitem(last=False)
                self._drop_push(forgotten)
        else:
            self._clients.move_to_end(instance_id)
        if client.version != self._version:
            client.attributes = attributes
            client.subscribe(select_metrics(self._subscriptions, attributes), self._version)
        return client

    def _drop_push(self, client: Client) -> None:
        if client.push is not None:
            self._kept_points -= len(client.push.points)
            self._series.remove(client.push.points)
            client.push = None
