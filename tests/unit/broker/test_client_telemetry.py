import logging
from uuid import UUID

import pytest

from lograft.broker.client_telemetry import (
    CLIENTS,
    KEPT_POINTS,
    OUTDATED_MS_MIN,
    SUBSCRIPTIONS,
    ClientTelemetry,
    Push,
)
from lograft.metadata.types import ConfigResource, ResourceType
from lograft.model.errors import ErrorCode
from lograft.model.metrics import value_of
from lograft.wire.otlp import Point

ALL = ConfigResource(ResourceType.CLIENT_METRICS, "all")
INTERVAL_MS = 10_000
CONFIGS = {ALL: {"metrics": "*", "interval.ms": str(INTERVAL_MS)}}
CLIENT = UUID(int=5)
ATTRIBUTES = {"client_id": "c"}
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def subscribed(**limits: int) -> ClientTelemetry:
    telemetry = ClientTelemetry(**limits)
    telemetry.on_configs(CONFIGS, [ALL])
    return telemetry


def push_of(client: UUID, size: int, now_ms: int = 0) -> Push:
    return Push(
        client_instance_id=client,
        client=ATTRIBUTES,
        received_ms=now_ms,
        is_terminating=False,
        size_bytes=100 * size,
        points=tuple(Point(f"m{number}", (), number) for number in range(size)),
        dropped_points=0,
    )


def check(
    telemetry: ClientTelemetry,
    now_ms: int,
    *,
    subscription_id: int | None = None,
    is_terminating: bool = False,
) -> ErrorCode:
    if subscription_id is None:
        subscription_id = telemetry._client(CLIENT, ATTRIBUTES).subscription_id
    return telemetry.check_push(
        CLIENT,
        ATTRIBUTES,
        now_ms,
        subscription_id=subscription_id,
        is_terminating=is_terminating,
    ).error


def test_a_client_asks_once_in_its_interval() -> None:
    telemetry = subscribed()
    assert telemetry.ask(CLIENT, ATTRIBUTES, 0).error == 0
    assert telemetry.ask(CLIENT, ATTRIBUTES, INTERVAL_MS - 1).error == THROTTLED
    assert telemetry.ask(CLIENT, ATTRIBUTES, INTERVAL_MS).error == 0
    # The first push after it may come at any time, the next one an interval later.
    assert check(telemetry, INTERVAL_MS + 1) == 0
    assert check(telemetry, INTERVAL_MS + 2) == THROTTLED
    assert check(telemetry, 2 * INTERVAL_MS + 1) == 0
    # Pushes count too.
    assert telemetry.ask(CLIENT, ATTRIBUTES, 3 * INTERVAL_MS).error == THROTTLED
    assert telemetry.ask(CLIENT, ATTRIBUTES, 3 * INTERVAL_MS + 1).error == 0


def test_a_changed_subscription_is_told_at_once() -> None:
    telemetry = subscribed()
    before = telemetry.ask(CLIENT, ATTRIBUTES, 0).client.subscription_id
    telemetry.on_configs({ALL: {"metrics": "a."}}, [ALL])
    assert check(telemetry, 1, subscription_id=before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    error, client = telemetry.ask(CLIENT, ATTRIBUTES, 2)
    assert error == 0
    assert client.selection.metrics == ("a.",)
    assert client.subscription_id != before
    # Other settings change nothing.
    telemetry.on_configs(CONFIGS, [ConfigResource(ResourceType.TOPIC, "t")])
    assert telemetry.ask(CLIENT, ATTRIBUTES, 3).error == THROTTLED


def test_after_a_terminating_push_none_is_taken() -> None:
    telemetry = subscribed()
    telemetry.ask(CLIENT, ATTRIBUTES, 0)
    assert check(telemetry, 1) == 0
    assert check(telemetry, 2, is_terminating=True) == 0  # also before the interval is over
    assert check(telemetry, 2 * INTERVAL_MS, is_terminating=True) == ErrorCode.INVALID_REQUEST


def test_unusable_subscriptions_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = ClientTelemetry()
    bad = ConfigResource(ResourceType.CLIENT_METRICS, "bad")
    with caplog.at_level(logging.WARNING):
        telemetry.on_configs({bad: {"match": "client_id=(?=a)"}, **CONFIGS}, [bad])
    assert "ignoring client metrics subscription bad" in caplog.text
    assert telemetry.ask(CLIENT, ATTRIBUTES, 0).client.selection.metrics == ("*",)
    telemetry.on_configs({}, [bad, ALL])
    assert not telemetry.has_subscriptions


def test_clients_and_points_are_bounded() -> None:
    telemetry = subscribed(clients_max=3, kept_points_max=100)
    clients = [UUID(int=number) for number in range(2, 6)]
    for client in clients[:3]:
        telemetry.ask(client, ATTRIBUTES, 0)
        telemetry.keep(push_of(client, 40))
    # The push of the least recently seen client is removed for the newest.
    assert [push.client_instance_id for push in telemetry.pushes(0)] == clients[1:3]
    telemetry.ask(clients[1], ATTRIBUTES, 1)
    telemetry.ask(clients[3], ATTRIBUTES, 1)  # the first is removed, and the third
    telemetry.ask(clients[0], ATTRIBUTES, 1)  # and the third
    assert [push.client_instance_id for push in telemetry.pushes(0)] == [clients[1]]
    assert value_of(telemetry, SUBSCRIPTIONS) == 1
    assert value_of(telemetry, CLIENTS) == 3
    assert value_of(telemetry, KEPT_POINTS) == 40
    telemetry.keep(push_of(clients[1], 60))  # replaces the last push of a client that is removed
    telemetry.keep(push_of(clients[2], 60))  # of a client that is forgotten
    assert value_of(telemetry, KEPT_POINTS) == 60
    telemetry.keep(push_of(clients[1], 101))
    assert value_of(telemetry, KEPT_POINTS) == 0


def test_outdated_pushes_are_not_shown() -> None:
    telemetry = subscribed()
    telemetry.ask(CLIENT, ATTRIBUTES, 0)
    telemetry.keep(push_of(CLIENT, 5, now_ms=100))
    assert [len(push.points) for push in telemetry.pushes(100 + OUTDATED_MS_MIN)] == [5]
    assert list(telemetry.pushes(101 + OUTDATED_MS_MIN)) == []


def test_pushes_become_series_until_they_are_outdated() -> None:
    telemetry = subscribed()
    telemetry.ask(CLIENT, ATTRIBUTES, 0)
    telemetry.keep(push_of(CLIENT, 2, now_ms=100))

    def shown(now_ms: int) -> list[tuple[str, float]]:
        samples = telemetry.collect_client_samples(now_ms)
        return [(sample.metric.name, float(str(sample.value))) for sample in samples]

    assert shown(100) == [("kafka_client_m0", 0), ("kafka_client_m1", 1)]
    assert shown(101 + OUTDATED_MS_MIN) == []
    telemetry.keep(push_of(CLIENT, 1, now_ms=101))
    assert shown(101) == [("kafka_client_m0", 0)]
