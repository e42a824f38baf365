"""Pushes the metrics of a client to brokers (KIP-714, enable.metrics.push).

    wait for a connection ──▶ GetTelemetrySubscriptions ──▶ wait ──▶ PushTelemetry ─┐
             ▲                          ▲                    ▲                      │
             └── no broker supports it  └── it has changed ──┴──────────────────────┘

A cluster without subscriptions gets at most one request per interval, and a broker that does not
have the API gets none. No connection is opened for telemetry. Errors never reach the application.
"""

import asyncio
import logging
from collections.abc import Iterable
from math import isnan
from typing import Any, Final

from lograft.client.broker_connection import BrokerConnection
from lograft.client.errors import ClientError
from lograft.client.metering.declarations import Statistic
from lograft.client.metering.names import MetricName
from lograft.client.metering.registry import MetricRegistry
from lograft.client.network import Network
from lograft.model.errors import ErrorCode
from lograft.model.seams import Runtime, Task
from lograft.model.types import ZERO_UUID
from lograft.wire.apis import GET_TELEMETRY_SUBSCRIPTIONS_KEY, PUSH_TELEMETRY_KEY
from lograft.wire.compression import Codec, compress
from lograft.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from lograft.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from lograft.wire.otlp import Point, Temporality, encode_metrics

LOGGER: Final = logging.getLogger(__name__)

#: Until the next attempt without a subscription, as in Kafka.
INTERVAL_MS_DEFAULT: Final = 300_000
#: For the last push, when the client closes.
CLOSE_TIMEOUT_MS: Final = 1_000
#: The first push of a subscription is at a random time in this range of the interval, so that
#: clients that start together do not push together.
JITTER: Final = (0.5, 1.5)
ALL_METRICS: Final = "*"
#: The broker will never accept telemetry of this client.
_FINAL: Final = frozenset(
    (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION)
)
#: The client has to ask for its subscription again, immediately.
_OUTDATED: Final = frozenset(
    (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
)


class TelemetryPusher:
    """The telemetry of one client; `start`, then `close` before its connections are closed."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        metrics: MetricRegistry,
        *,
        resource: Iterable[tuple[str, str]],
        request_timeout_ms: int,
    ) -> None:
        """`resource`: what is true of all metrics, such as the group of a consumer."""
        self._runtime = runtime
        self._network = network
        self._metrics = metrics
        self._resource = tuple(resource)
        self._request_timeout_ms = request_timeout_ms
        self._instance_id = ZERO_UUID
        #: None: it has to be requested. Without metrics it is requested again every interval.
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._interval_ms = INTERVAL_MS_DEFAULT
        self._is_disabled = False
        #: The next request for the subscription may be sent immediately.
        self._is_outdated = False
        #: The totals of the last accepted push, for deltas, and its time.
        self._pushed_totals: dict[MetricName, float] = {}
        self._pushed_ns = self._start_ns = runtime.clock.wall_ms() * 1_000_000
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._runtime.spawn(self._run(), name="client telemetry")

    async def close(self) -> None:
        """Pushes a last time, if the client has a subscription."""
        if self._task is not None:
            self._task.cancel()
        connection = self._find_connection()
        if self._is_subscribed and connection is not None and not self._is_disabled:
            try:
                await self._push(connection, timeout_ms=CLOSE_TIMEOUT_MS, is_terminating=True)
            except ClientError as error:
                LOGGER.debug("the last metrics were not pushed: %s", error)

    @property
    def _is_subscribed(self) -> bool:
        return self._subscription is not None and bool(self._subscription.requested_metrics)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while not self._is_disabled:
            connection = await self._wait_connection()
            if connection is None:
                continue
            pause = 1.0
            try:
                if self._is_subscribed:
                    await self._push(
                        connection, timeout_ms=self._request_timeout_ms, is_terminating=False
                    )
                elif await self._subscribe(connection):
                    pause = self._runtime.randomness.uniform(*JITTER)
            except ClientError as error:
                LOGGER.debug("telemetry request to %s failed: %s", connection.address, error)
            if self._is_outdated:
                self._is_outdated = False
                continue
            await asyncio.sleep(self._interval_ms * pause / 1_000)

    async def _wait_connection(self) -> BrokerConnection | None:
        """Returns a connection to a broker that supports telemetry. Without one, waits until a
        connection is opened or the interval is over, and returns None."""
        opened = self._network.wait_opened()
        connection = self._find_connection()
        if connection is None:
            try:
                async with asyncio.timeout(self._interval_ms / 1_000):
                    await opened
            except TimeoutError:
                pass
        return connection

    def _find_connection(self) -> BrokerConnection | None:
        return next(
            (
                connection
                for connection in self._network.ready_connections()
                if GET_TELEMETRY_SUBSCRIPTIONS_KEY in connection.versions
                and PUSH_TELEMETRY_KEY in connection.versions
            ),
            None,
        )

    # ── requests ─────────────────────────────────────────────────────────────────────────────

    async def _subscribe(self, connection: BrokerConnection) -> bool:
        """Returns whether the cluster wants metrics of this client."""
        response = await connection.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id),
            GetTelemetrySubscriptionsResponse,
            timeout_ms=self._request_timeout_ms,
        )
        if response.error_code:
            self._handle_error("subscription", response.error_code)
            return False
        self._subscription = response
        self._instance_id = response.client_instance_id
        self._interval_ms = response.push_interval_ms or INTERVAL_MS_DEFAULT
        return self._is_subscribed

    async def _push(
        self, connection: BrokerConnection, *, timeout_ms: int, is_terminating: bool
    ) -> None:
        subscription = self._subscription
        assert subscription is not None
        now_ns = self._runtime.clock.wall_ms() * 1_000_000
        totals: dict[MetricName, float] = {}
        points = self._points(subscription, totals)
        start_ns = self._pushed_ns if subscription.delta_temporality else self._start_ns
        data = encode_metrics(self._resource, points, start_ns=start_ns, now_ns=now_ns)
        codec = _codec_of(subscription.accepted_compression_types)
        payload = bytes(compress(codec, data)) if codec else data
        if len(payload) > subscription.telemetry_max_bytes > 0:
            LOGGER.debug("%d bytes of metrics are too many to push", len(payload))
            return
        response = await connection.request(
            PushTelemetryRequest(
                client_instance_id=self._instance_id,
                subscription_id=subscription.subscription_id,
                terminating=is_terminating,
                compression_type=codec,
                metrics=payload,
            ),
            PushTelemetryResponse,
            timeout_ms=timeout_ms,
        )
        if response.error_code:
            self._handle_error("push", response.error_code)
        else:
            self._pushed_totals, self._pushed_ns = totals, now_ns

    def _handle_error(self, what: str, code: int) -> None:
        LOGGER.debug("the broker rejected a telemetry %s with error %d", what, code)
        if code in _FINAL:
            LOGGER.info("metrics are no longer pushed: the broker rejected them (error %d)", code)
            self._is_disabled = True
        elif code in _OUTDATED:
            self._subscription = None
            self._is_outdated = True

    def _points(
        self, subscription: GetTelemetrySubscriptionsResponse, totals: dict[MetricName, float]
    ) -> list[Point]:
        """Returns the requested metrics. Adds the totals of sums to `totals`."""
        requested = tuple(subscription.requested_metrics)
        is_delta = subscription.delta_temporality
        temporality = Temporality.DELTA if is_delta else Temporality.CUMULATIVE
        points = []
        for name, statistic, value in self._metrics.measure():
            telemetry_name = name.telemetry_name
            if isinstance(value, str) or isnan(value):
                continue
            if ALL_METRICS not in requested and not telemetry_name.startswith(requested):
                continue
            is_counter = statistic is Statistic.TOTAL
            if is_counter:
                totals[name] = value
                if is_delta:
                    value -= self._pushed_totals.get(name, 0)
            points.append(
                Point(telemetry_name, _attributes_of(name), value, is_counter, temporality)
            )
        return sorted(points, key=lambda point: point.name)


def _attributes_of(name: MetricName) -> tuple[tuple[str, str], ...]:
    """The broker knows the client id."""
    return tuple((tag.replace("-", "_"), text) for tag, text in name.tags if tag != "client-id")


def _codec_of(accepted: Iterable[int]) -> Codec:
    """Returns the first type that the broker accepts; its order is that of its preference."""
    known: dict[int, Codec] = {int(codec): codec for codec in Codec}
    return next((known[each] for each in accepted if each in known), Codec.NONE)


def resource_of(settings: Any) -> list[tuple[str, str]]:
    """Returns the settings of a client that identify it beyond its client id, as in Kafka."""
    names = ("group_id", "group_instance_id", "client_rack", "transactional_id")
    return [(name, value) for name in names if (value := getattr(settings, name, None))]
