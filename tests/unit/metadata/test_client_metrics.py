from uuid import UUID

import pytest

from lograft.metadata.client_metrics import (
    VALUE_LENGTH_MAX,
    Selection,
    Subscription,
    parse_subscription,
    select_metrics,
)
from lograft.model.errors import ErrorCode, Rejected

CLIENT = {
    "client_id": "billing-7",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAABQ",
    "client_software_name": "librdkafka",
    "client_software_version": "2.12.0",
    "client_source_address": "10.0.0.1",
    "client_source_port": "4711",
}


def subscription(metrics: str = "", interval_ms: str = "", match: str = "") -> Subscription:
    values = {"metrics": metrics, "interval.ms": interval_ms, "match": match}
    return parse_subscription("s", {name: text for name, text in values.items() if text})


@pytest.mark.parametrize(
    ("match", "is_for"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),  # the whole value must match
        ("client_id=billing-.*,client_software_name=librdkafka", True),
        ("client_id=billing-.*,client_software_name=apache-kafka-java", False),
        (" client_source_port = 47.. ", True),
        ("client_source_address=10\\.0\\.0\\.[0-9]", True),
        ("client_software_version=2\\.(11|12)\\..*", True),
        ("client_instance_id=A+BQ", True),
    ],
)
def test_all_patterns_must_match(match: str, is_for: bool) -> None:
    assert subscription(match=match).is_for(CLIENT) == is_for


def test_a_client_without_an_id_and_long_values_match_nothing() -> None:
    chosen = subscription(match="client_id=.*")
    assert not chosen.is_for({"client_source_port": "1"})
    assert chosen.is_for({"client_id": "x" * VALUE_LENGTH_MAX})
    assert not chosen.is_for({"client_id": "x" * (VALUE_LENGTH_MAX + 1)})


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"other": "1"}, ErrorCode.INVALID_REQUEST),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "rack=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=(?=a)a"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_settings(values: dict[str, str], code: ErrorCode) -> None:
    with pytest.raises(Rejected) as found:
        parse_subscription("s", values)
    assert found.value.code == code


def test_a_client_gets_the_metrics_of_all_its_subscriptions() -> None:
    first = subscription("org.apache.kafka.producer.,other", "60000", "client_id=billing.*")
    second = subscription("org.apache.kafka.consumer.,other", "30000")
    foreign = subscription("*", "100", "client_id=other")
    assert select_metrics([], CLIENT) == Selection((), 300_000)
    assert select_metrics([foreign], CLIENT) == Selection((), 300_000)
    selected = select_metrics([first, second, foreign], CLIENT)
    metrics = ("org.apache.kafka.consumer.", "org.apache.kafka.producer.", "other")
    assert selected == Selection(metrics, 30_000)
    assert select_metrics([first, subscription("*")], CLIENT) == Selection(("*",), 60_000)


def test_the_subscription_id_follows_metrics_interval_and_client() -> None:
    selection = Selection(("a",), 1000)
    ids = {
        selection.subscription_id(UUID(int=5)),
        selection.subscription_id(UUID(int=6)),
        Selection(("b",), 1000).subscription_id(UUID(int=5)),
        Selection(("a",), 2000).subscription_id(UUID(int=5)),
    }
    assert len(ids) == 4
    assert all(-(1 << 31) <= number < 1 << 31 for number in ids)
    assert Selection(("a",), 1000).subscription_id(UUID(int=5)) in ids
